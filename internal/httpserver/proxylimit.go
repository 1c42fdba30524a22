package httpserver

import (
	"slices"
	"sync"

	"k8s.io/apiserver/pkg/authentication/user"
)

// ProxyLimiter bounds the requests that a server proxies to nodes, pods,
// services and other servers, over one connection each. A Listener does not
// bound them, since one HTTP/2 connection carries many requests.
//
// No user has more than maxPerUser requests, and no tenant has more than are
// still free, so that there is always room for another tenant. Members of
// system:masters are never refused. A ProxyLimiter is safe for concurrent use.
type ProxyLimiter struct {
	limits limits

	mu      sync.Mutex     // guards the following
	all     int            // of users and tenants
	users   map[string]int // requests of each user
	tenants map[string]int // requests of each tenant
}

// NewProxyLimiter returns a limiter for as many requests as a NewMainListener
// accepts connections, so that the two of them leave a quarter of the files
// that the process may open.
func NewProxyLimiter() *ProxyLimiter { return newProxyLimiter(share(files()/8*3, 1)) }

func newProxyLimiter(most limits) *ProxyLimiter {
	return &ProxyLimiter{limits: most, users: map[string]int{}, tenants: map[string]int{}}
}

// Acquire counts a user's request, and returns false if it must be refused. If
// it returns true, the caller calls release once, when the request has ended.
func (l *ProxyLimiter) Acquire(who user.Info) (release func(), ok bool) {
	if slices.Contains(who.GetGroups(), user.SystemPrivilegedGroup) {
		return func() {}, true
	}
	name := who.GetName()
	tenant := Tenant(name)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users[name] >= l.limits.perUser || l.tenants[tenant] >= l.limits.known-l.all {
		return nil, false
	}
	l.all++
	l.users[name]++
	l.tenants[tenant]++
	return func() { l.release(name, tenant) }, true
}

func (l *ProxyLimiter) release(name, tenant string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.users[name]--; l.users[name] == 0 {
		delete(l.users, name)
	}
	if l.tenants[tenant]--; l.tenants[tenant] == 0 {
		delete(l.tenants, tenant)
	}
}
