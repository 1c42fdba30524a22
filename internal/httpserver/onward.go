package httpserver

import (
	"slices"
	"sync"

	"k8s.io/apiserver/pkg/authentication/user"
)

// Onward bounds the requests that are passed on to nodes, pods, services and
// other servers, each by a connection of its own. An HTTP/2 connection carries
// many of them, so that a Door's bounds are none for the files that they take.
//
// No user has more than maxPerUser, and no tenant more than are free: however
// many tenants take what they can, there is always room for another. Members
// of system:masters are never refused. Its methods may be called from any
// goroutine.
type Onward struct {
	limits limits

	mu      sync.Mutex     // guards the following
	all     int            // of users and tenants
	users   map[string]int // requests of each user
	tenants map[string]int // requests of each tenant
}

// NewOnward bounds the requests that are passed on by what a NewMainDoor
// leaves of the files that the process may open.
func NewOnward() *Onward { return newOnward(share(files()/8*3, 1)) }

func newOnward(most limits) *Onward {
	return &Onward{limits: most, users: map[string]int{}, tenants: map[string]int{}}
}

// Begin says whether a user's request may be passed on. Its end must be told
// by calling done, once, unless it was refused.
func (o *Onward) Begin(who user.Info) (done func(), ok bool) {
	if slices.Contains(who.GetGroups(), user.SystemPrivilegedGroup) {
		return func() {}, true
	}
	name := who.GetName()
	of := Tenant(name)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.users[name] >= o.limits.perUser || o.tenants[of] >= o.limits.known-o.all {
		return nil, false
	}
	o.all++
	o.users[name]++
	o.tenants[of]++
	return func() { o.end(name, of) }, true
}

func (o *Onward) end(name, of string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all--
	if o.users[name]--; o.users[name] == 0 {
		delete(o.users, name)
	}
	if o.tenants[of]--; o.tenants[of] == 0 {
		delete(o.tenants, of)
	}
}
