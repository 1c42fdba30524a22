package httpserver

import (
	"fmt"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
)

// One user has so many requests passed on and no more, one namespace no more
// than are free; others, and administrators, do not notice.
func TestOnward(t *testing.T) {
	o := newOnward(limits{known: 40, perUser: 10})
	var ends []func()
	begin := func(want bool, who *user.DefaultInfo) {
		t.Helper()
		done, ok := o.Begin(who)
		if ok != want {
			t.Errorf("%s with %d of %d: %v", who.Name, o.users[who.Name], o.all, ok)
		}
		if ok {
			ends = append(ends, done)
		}
	}
	greedy := &user.DefaultInfo{Name: "greedy"}
	for range 10 {
		begin(true, greedy)
	}
	begin(false, greedy)
	for i := range 15 { // of the 30 that are free
		begin(true, &user.DefaultInfo{Name: fmt.Sprint("system:serviceaccount:evil:", i)})
	}
	begin(false, &user.DefaultInfo{Name: "system:serviceaccount:evil:another"})
	begin(true, &user.DefaultInfo{Name: "system:serviceaccount:good:one"})
	for range 50 {
		begin(true, &user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup}})
	}
	ends[0]()
	ends = ends[1:]
	begin(true, greedy)
	for _, end := range ends {
		end()
	}
	if o.all != 0 || len(o.users) != 0 || len(o.tenants) != 0 {
		t.Errorf("%+v is left", o)
	}
}
