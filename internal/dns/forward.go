package dns

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

const (
	forwardTimeout = 2 * time.Second
	cacheEntries   = 4096
	cacheTTL       = 30 * time.Second
)

// forwarder asks the host's resolvers, one after the other, and remembers
// their answers for a short while.
type forwarder struct {
	resolvConf string
	own        []string // addresses of this server, never asked

	mu    sync.Mutex // guards cache
	cache map[question]remembered
}

type question struct {
	name  string
	qtype uint16
	dnssc bool
}

type remembered struct {
	reply *dns.Msg
	until time.Time
}

func newForwarder(resolvConf string, own []string) *forwarder {
	return &forwarder{resolvConf: resolvConf, own: own, cache: map[question]remembered{}}
}

// resolvers are read anew for each question that is not remembered: a laptop
// changes networks. A resolver that is this server would make a loop.
func (f *forwarder) resolvers() []string {
	c, err := dns.ClientConfigFromFile(f.resolvConf)
	if err != nil {
		return nil
	}
	var out []string
	for _, server := range c.Servers {
		if !slices.Contains(f.own, server) {
			out = append(out, net.JoinHostPort(server, c.Port))
		}
	}
	return out
}

// ask returns the answer of the first resolver that has one, and SERVFAIL
// where none has.
func (f *forwarder) ask(ctx context.Context, query *dns.Msg) *dns.Msg {
	q := query.Question[0]
	key := question{strings.ToLower(q.Name), q.Qtype, query.IsEdns0() != nil && query.IsEdns0().Do()}
	f.mu.Lock()
	known, ok := f.cache[key]
	f.mu.Unlock()
	if ok && time.Now().Before(known.until) {
		reply := known.reply.Copy()
		reply.Id = query.Id
		reply.Question = query.Question
		return reply
	}
	for _, server := range f.resolvers() {
		reply, err := exchange(ctx, query, server)
		if err != nil || reply.Rcode == dns.RcodeServerFailure || reply.Rcode == dns.RcodeRefused {
			continue
		}
		f.remember(key, reply)
		return reply
	}
	return new(dns.Msg).SetRcode(query, dns.RcodeServerFailure)
}

// exchange asks by UDP, and by TCP if the answer did not fit.
func exchange(ctx context.Context, query *dns.Msg, server string) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, forwardTimeout)
	defer cancel()
	c := &dns.Client{Timeout: forwardTimeout}
	reply, _, err := c.ExchangeContext(ctx, query, server)
	if err == nil && reply.Truncated {
		c.Net = "tcp"
		reply, _, err = c.ExchangeContext(ctx, query, server)
	}
	return reply, err
}

func (f *forwarder) remember(key question, reply *dns.Msg) {
	life := cacheTTL
	for _, rr := range slices.Concat(reply.Answer, reply.Ns) {
		life = min(life, time.Duration(rr.Header().Ttl)*time.Second)
	}
	if life <= 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.cache) >= cacheEntries {
		clear(f.cache)
	}
	f.cache[key] = remembered{reply.Copy(), time.Now().Add(life)}
}
