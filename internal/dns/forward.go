package dns

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// resolvers are the machine's, without those that are this server: asking
// them would go round in a circle.
func resolvers(file string, own ...netip.Addr) ([]string, error) {
	config, err := dns.ClientConfigFromFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the resolvers in %s: %w", file, err)
	}
	var list []string
	for _, server := range config.Servers {
		a, err := netip.ParseAddr(server)
		if err != nil {
			continue
		}
		circle := false
		for _, o := range own {
			circle = circle || o == a
		}
		if !circle {
			list = append(list, net.JoinHostPort(server, config.Port))
		}
	}
	return list, nil
}

// forwarder asks other resolvers, in their order, and remembers what they say.
type forwarder struct {
	upstreams []string
	mu        sync.Mutex // guards cache
	cache     map[dns.Question]cached
}

type cached struct {
	answer  *dns.Msg
	stored  time.Time
	expires time.Time
}

const (
	cacheSize   = 10000
	longestTTL  = time.Hour
	negativeTTL = 30 * time.Second
	// tryTime is how long one resolver is waited for.
	tryTime = 2 * time.Second
)

func newForwarder(upstreams []string) *forwarder {
	return &forwarder{upstreams: upstreams, cache: map[dns.Question]cached{}}
}

// exchange answers a query, SERVFAIL when no resolver does.
func (f *forwarder) exchange(ctx context.Context, query *dns.Msg) *dns.Msg {
	question := query.Question[0]
	question.Name = strings.ToLower(question.Name)
	if answer := f.remembered(question, time.Now()); answer != nil {
		return fit(answer, query)
	}
	request := new(dns.Msg).SetQuestion(query.Question[0].Name, question.Qtype)
	request.SetEdns0(maxUDP, false)
	for _, upstream := range f.upstreams {
		answer, err := ask(ctx, request, upstream)
		if err != nil || answer.Rcode == dns.RcodeServerFailure || answer.Rcode == dns.RcodeRefused {
			continue
		}
		f.remember(question, answer, time.Now())
		return fit(answer.Copy(), query)
	}
	reply := new(dns.Msg).SetRcode(query, dns.RcodeServerFailure)
	reply.RecursionAvailable = true
	return reply
}

// ask goes over to TCP when the answer does not fit UDP.
func ask(ctx context.Context, request *dns.Msg, upstream string) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	answer, _, err := new(dns.Client).ExchangeContext(ctx, request, upstream)
	if err == nil && answer.Truncated {
		answer, _, err = (&dns.Client{Net: "tcp"}).ExchangeContext(ctx, request, upstream)
	}
	return answer, err
}

// fit makes an answer of ours that of one query.
func fit(answer, query *dns.Msg) *dns.Msg {
	answer.Id = query.Id
	answer.Question = query.Question
	answer.RecursionDesired, answer.RecursionAvailable = query.RecursionDesired, true
	answer.Authoritative = false
	var extra []dns.RR
	for _, rr := range answer.Extra {
		if rr.Header().Rrtype != dns.TypeOPT {
			extra = append(extra, rr)
		}
	}
	answer.Extra = extra
	return answer
}

// remembered is a copy of the cached answer with the time that is left.
func (f *forwarder) remembered(question dns.Question, now time.Time) *dns.Msg {
	f.mu.Lock()
	entry, ok := f.cache[question]
	f.mu.Unlock()
	if !ok || !now.Before(entry.expires) {
		return nil
	}
	answer := entry.answer.Copy()
	age := uint32(now.Sub(entry.stored) / time.Second)
	for _, section := range [][]dns.RR{answer.Answer, answer.Ns, answer.Extra} {
		for _, rr := range section {
			if rr.Header().Rrtype != dns.TypeOPT {
				rr.Header().Ttl -= min(age, rr.Header().Ttl)
			}
		}
	}
	return answer
}

func (f *forwarder) remember(question dns.Question, answer *dns.Msg, now time.Time) {
	life := lifetime(answer)
	if life <= 0 || answer.Truncated {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.cache) >= cacheSize {
		for q, entry := range f.cache {
			if !now.Before(entry.expires) {
				delete(f.cache, q)
			}
		}
	}
	if len(f.cache) >= cacheSize {
		clear(f.cache)
	}
	f.cache[question] = cached{answer.Copy(), now, now.Add(life)}
}

// lifetime is the shortest TTL of the answer; of a negative one, what its SOA
// says (RFC 2308), at most negativeTTL.
func lifetime(answer *dns.Msg) time.Duration {
	if answer.Rcode != dns.RcodeSuccess && answer.Rcode != dns.RcodeNameError {
		return 0
	}
	life := longestTTL
	if len(answer.Answer) == 0 {
		life = 0
		for _, rr := range answer.Ns {
			if soa, ok := rr.(*dns.SOA); ok {
				life = min(negativeTTL, time.Duration(min(soa.Minttl, soa.Hdr.Ttl))*time.Second)
			}
		}
	}
	for _, rr := range answer.Answer {
		life = min(life, time.Duration(rr.Header().Ttl)*time.Second)
	}
	return life
}
