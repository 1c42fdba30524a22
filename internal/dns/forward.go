package dns

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
)

const (
	// maxForwards bounds the queries that wait for resolvers, and
	// maxForwardsPerClient bounds them for one client.
	maxForwards          = 1024
	maxForwardsPerClient = 128
	// silentPeriod is how long a resolver that did not answer is asked after the
	// others.
	silentPeriod = 10 * time.Second
)

// forwarder queries resolvers in order and caches their answers for a short
// time. The resolvers are the host's unless the ConfigMap kube-system/kube-dns
// has others.
type forwarder struct {
	resolvConf string
	machine    string   // Config.Machine
	own        []string // addresses and ports at which the cluster's DNS itself is reached
	uplinks    string   // systemd-resolved's own resolv.conf
	settings   atomic.Pointer[settings]
	quota      *quota // of queries under way
	cache      answerCache
	silent     silent
	counts     *counts
}

func newForwarder(resolvConf, machine string, own []string) *forwarder {
	const uplinks = "/run/systemd/resolve/resolv.conf"
	f := &forwarder{resolvConf: resolvConf, machine: machine, own: own, uplinks: uplinks, quota: newQuota(maxForwards, maxForwardsPerClient), cache: newAnswerCache()}
	f.settings.Store(&settings{})
	return f
}

// set changes the settings.
func (f *forwarder) set(s *settings) {
	f.settings.Store(s)
	f.cache.clear()
}

// resolvers returns the addresses and ports of the resolvers for a name. It
// leaves out the cluster's own DNS, because a query to it would loop. It reads
// the host's file for each query that is not cached, because a laptop changes
// networks.
func (f *forwarder) resolvers(name string) []string {
	list := f.settings.Load().resolvers(name)
	if list == nil {
		c, err := dns.ClientConfigFromFile(f.resolvConf)
		if err != nil {
			return nil
		}
		servers := c.Servers
		if isStub(servers) {
			if own, err := dns.ClientConfigFromFile(f.uplinks); err == nil {
				servers = slices.Concat(servers, own.Servers)
			}
		}
		for _, server := range servers {
			at := net.JoinHostPort(server, c.Port)
			if a, err := netip.ParseAddr(server); f.machine != "" && err == nil && a.IsLoopback() {
				at = f.machine
			}
			if !slices.Contains(list, at) {
				list = append(list, at)
			}
		}
	}
	list = slices.DeleteFunc(slices.Clone(list), func(server string) bool { return slices.Contains(f.own, server) })
	return f.silent.last(list)
}

// isStub reports whether the only resolver is that of systemd-resolved on the machine's
// loopback. It knows which link's resolvers to ask for a name, so that it is asked first;
// those resolvers, in a file of systemd-resolved that kubeadm gives to the kubelet, are
// asked if it does not answer, as it does not in another network namespace.
func isStub(servers []string) bool {
	return len(servers) > 0 && !slices.ContainsFunc(servers, func(server string) bool { return server != "127.0.0.53" })
}

// ask returns the answer that find returns.
func (f *forwarder) ask(ctx context.Context, client netip.Addr, query *dns.Msg) *dns.Msg {
	reply, _ := f.find(ctx, client, query)
	return reply
}

// find returns the answer of the cache or of the first resolver that has one, and
// who made it. It returns SERVFAIL if none has, or if the client has too many queries
// under way.
func (f *forwarder) find(ctx context.Context, client netip.Addr, query *dns.Msg) (reply *dns.Msg, by string) {
	q := query.Question[0]
	key := question{strings.ToLower(q.Name), q.Qtype, query.IsEdns0() != nil && query.IsEdns0().Do(), query.CheckingDisabled}
	known := f.cache.get(key)
	if f.counts.lookedUp(known); known != nil {
		return replyFrom(query, known), byCache
	}
	failed := new(dns.Msg).SetRcode(query, dns.RcodeServerFailure)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	release, ok := f.quota.acquire(client, cancel)
	if !ok {
		f.counts.tooMany()
		return failed, ""
	}
	defer release()
	for _, server := range f.resolvers(key.name) {
		began := time.Now()
		reply, err := exchange(ctx, query, server)
		if ctx.Err() != nil {
			return failed, ""
		}
		f.counts.asked(server, reply, time.Since(began))
		f.silent.set(server, err != nil)
		if err != nil || reply.Rcode == dns.RcodeServerFailure || reply.Rcode == dns.RcodeRefused {
			continue
		}
		f.cache.put(key, reply)
		return reply, byForward
	}
	return failed, byForward
}

// silent are the resolvers that did not answer lately. The zero value is empty.
type silent struct {
	mu    sync.Mutex // guards until
	until map[string]time.Time
}

// set records whether a resolver was silent.
func (s *silent) set(server string, is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !is {
		delete(s.until, server)
		return
	}
	if s.until == nil {
		s.until = map[string]time.Time{}
	}
	now := time.Now()
	for other, until := range s.until { // perhaps no resolver of ours any more
		if now.After(until) {
			delete(s.until, other)
		}
	}
	s.until[server] = now.Add(silentPeriod)
}

// last moves the silent resolvers behind the others, in place.
func (s *silent) last(servers []string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	rank := func(server string) int {
		if now.Before(s.until[server]) {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(servers, func(a, b string) int { return rank(a) - rank(b) })
	return servers
}
