package httpserver

import (
	"fmt"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
)

// A user and a namespace have bounded numbers of proxied requests. Others and
// administrators are unaffected.
func TestProxyLimiter(t *testing.T) {
	l := newProxyLimiter(limits{known: 40, perUser: 10})
	var releases []func()
	acquire := func(want bool, who *user.DefaultInfo) {
		t.Helper()
		release, ok := l.Acquire(who)
		if ok != want {
			t.Errorf("%s with %d of %d: %v", who.Name, l.users[who.Name], l.all, ok)
		}
		if ok {
			releases = append(releases, release)
		}
	}
	greedy := &user.DefaultInfo{Name: "greedy"}
	for range 10 {
		acquire(true, greedy)
	}
	acquire(false, greedy)
	for i := range 15 { // of the 30 that are free
		acquire(true, &user.DefaultInfo{Name: fmt.Sprint("system:serviceaccount:evil:", i)})
	}
	acquire(false, &user.DefaultInfo{Name: "system:serviceaccount:evil:another"})
	acquire(true, &user.DefaultInfo{Name: "system:serviceaccount:good:one"})
	for range 50 {
		acquire(true, &user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup}})
	}
	releases[0]()
	releases = releases[1:]
	acquire(true, greedy)
	for _, release := range releases {
		release()
	}
	if l.all != 0 || len(l.users) != 0 || len(l.tenants) != 0 {
		t.Errorf("%+v is left", l)
	}
}
