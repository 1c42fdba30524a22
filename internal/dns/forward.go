package dns

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

const (
	forwardTimeout = 2 * time.Second
	// streamTimeout is the part of it that asking again by TCP may take.
	streamTimeout = time.Second
	// forwardsAtOnce bounds the questions that wait for the host's resolvers,
	// forwardsOfOne those of one client among them.
	forwardsAtOnce = 1024
	forwardsOfOne  = 128
	cacheEntries   = 4096
	cacheTTL       = 30 * time.Second
	// cachedSize bounds what a remembered answer takes, in bytes on the wire:
	// whoever owns a name outside decides how large its answers are.
	cachedSize = 4096
	// resolverSize is the largest answer by UDP that a resolver is asked for;
	// more would come in fragments (RFC 9715).
	resolverSize = 1232
)

// forwarder asks the host's resolvers, one after the other, and remembers
// their answers for a short while.
type forwarder struct {
	asked func() []string // addresses and ports of the resolvers
	quota *quota          // of questions under way

	mu    sync.Mutex // guards cache
	cache map[question]remembered
}

// question is what answers depend on. Its class is always IN, and it is always
// asked with recursion: what a client chooses else must not decide what others
// get.
type question struct {
	name      string
	qtype     uint16
	dnssec    bool // the client wants signatures (DO)
	unchecked bool // and checks them itself (CD)
}

type remembered struct {
	reply *dns.Msg
	until time.Time
}

func newForwarder(resolvConf string, own []string) *forwarder {
	return &forwarder{asked: func() []string { return resolvers(resolvConf, own) }, quota: newQuota(forwardsAtOnce, forwardsOfOne), cache: map[question]remembered{}}
}

// resolvers are read anew for each question that is not remembered: a laptop
// changes networks. A resolver that is this server, at one of its own
// addresses, would make a loop.
func resolvers(resolvConf string, own []string) []string {
	c, err := dns.ClientConfigFromFile(resolvConf)
	if err != nil {
		return nil
	}
	var out []string
	for _, server := range c.Servers {
		if !slices.Contains(own, server) {
			out = append(out, net.JoinHostPort(server, c.Port))
		}
	}
	return out
}

// ask returns the answer of the first resolver that has one, and SERVFAIL
// where none has or the client has too many questions under way.
func (f *forwarder) ask(ctx context.Context, client netip.Addr, query *dns.Msg) *dns.Msg {
	q := query.Question[0]
	if q.Qclass != dns.ClassINET {
		return new(dns.Msg).SetRcode(query, dns.RcodeRefused)
	}
	key := question{strings.ToLower(q.Name), q.Qtype, query.IsEdns0() != nil && query.IsEdns0().Do(), query.CheckingDisabled}
	f.mu.Lock()
	known, ok := f.cache[key]
	f.mu.Unlock()
	if ok && time.Now().Before(known.until) {
		return answerTo(query, known.reply.Copy())
	}
	failed := new(dns.Msg).SetRcode(query, dns.RcodeServerFailure)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	give, ok := f.quota.take(client, cancel)
	if !ok {
		return failed
	}
	defer give()
	for _, server := range f.asked() {
		reply, err := exchange(ctx, query, server)
		if err != nil || reply.Rcode == dns.RcodeServerFailure || reply.Rcode == dns.RcodeRefused {
			continue
		}
		f.remember(key, reply)
		return reply
	}
	return failed
}

// exchange asks a resolver by UDP, and by TCP if the answer did not fit or
// was not to the very question. The resolver is sent a query of our own: with
// an ID and a port that nobody outside can guess, let alone the client, and
// letters of random case that an answer must repeat (RFC 5452,
// draft-vixie-dnsext-dns0x20). What else the client put in, its EDNS options
// among it, stays here.
func exchange(ctx context.Context, query *dns.Msg, server string) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, forwardTimeout)
	defer cancel()
	asked := ownQuery(query)
	c := &dns.Client{Timeout: forwardTimeout, UDPSize: resolverSize}
	reply, err := send(ctx, c, asked, server)
	if err == nil && (reply.Rcode == dns.RcodeFormatError || reply.Rcode == dns.RcodeNotImplemented) {
		// It may not know EDNS (RFC 6891, section 7).
		asked.Extra, asked.Id = nil, dns.Id()
		reply, err = send(ctx, c, asked, server)
	}
	if err == nil && (reply.Truncated || !answersTo(reply, asked)) {
		reply, err = byStream(ctx, asked, server, reply)
	}
	if err != nil {
		return nil, err
	}
	return answerTo(query, reply), nil
}

// byStream asks a resolver again by TCP. Where it does not answer there, a
// whole answer by UDP counts that differs from the question only by its
// letters: some resolvers write all names in small ones.
func byStream(ctx context.Context, asked *dns.Msg, server string, datagram *dns.Msg) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, streamTimeout)
	defer cancel()
	answers := func(m *dns.Msg) bool { return m.Response && strings.EqualFold(questionOf(m), questionOf(asked)) }
	asked.Id = dns.Id()
	c := &dns.Client{Net: "tcp", Timeout: streamTimeout}
	reply, err := send(ctx, c, asked, server)
	switch {
	case err == nil && answers(reply):
		return reply, nil
	case err == nil:
		return nil, fmt.Errorf("%s answered another question than it was asked", server)
	case !datagram.Truncated && answers(datagram):
		return datagram, nil
	}
	return nil, err
}

// send sends a query and returns the reply, until ctx ends.
func send(ctx context.Context, c *dns.Client, query *dns.Msg, server string) (*dns.Msg, error) {
	conn, err := c.DialContext(ctx, server)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	reply, _, err := c.ExchangeWithConnContext(ctx, query, conn)
	return reply, err
}

// ownQuery asks the question of another query anew.
func ownQuery(query *dns.Msg) *dns.Msg {
	q := query.Question[0]
	own := new(dns.Msg).SetQuestion(randomCase(q.Name), q.Qtype) // with a random ID, and recursion
	own.CheckingDisabled = query.CheckingDisabled
	opt := query.IsEdns0()
	return own.SetEdns0(resolverSize, opt != nil && opt.Do())
}

// randomCase writes each letter of a name as small or as capital by chance.
func randomCase(name string) string {
	out := []byte(name)
	for i, c := range out {
		if letter := c | 0x20; 'a' <= letter && letter <= 'z' && rand.N(2) == 0 {
			out[i] = c ^ 0x20
		}
	}
	return string(out)
}

// answersTo tells whether a reply is to the question as it was asked, letter
// by letter.
func answersTo(reply, asked *dns.Msg) bool {
	return reply.Response && len(reply.Question) == 1 && reply.Question[0] == asked.Question[0]
}

// questionOf is the question of a message as text; "" if it has not one.
func questionOf(m *dns.Msg) string {
	if len(m.Question) != 1 {
		return ""
	}
	return m.Question[0].String()
}

// answerTo makes the reply to a client's query out of a resolver's: with the
// client's ID and its writing of the name.
func answerTo(query, reply *dns.Msg) *dns.Msg {
	answer := new(dns.Msg).SetReply(query)
	answer.RecursionAvailable, answer.AuthenticatedData, answer.Rcode = true, reply.AuthenticatedData, reply.Rcode
	written := func(records []dns.RR) []dns.RR {
		for _, rr := range records {
			if h := rr.Header(); strings.EqualFold(h.Name, query.Question[0].Name) {
				h.Name = query.Question[0].Name
			}
		}
		return records
	}
	answer.Answer, answer.Ns = written(reply.Answer), written(reply.Ns)
	for _, rr := range written(reply.Extra) {
		if rr.Header().Rrtype != dns.TypeOPT {
			answer.Extra = append(answer.Extra, rr)
		}
	}
	if answer.Rcode > 0xF { // of EDNS, whose record is not handed on
		answer.Rcode = dns.RcodeServerFailure
	}
	return answer
}

func (f *forwarder) remember(key question, reply *dns.Msg) {
	life := cacheTTL
	for _, rr := range slices.Concat(reply.Answer, reply.Ns) {
		life = min(life, time.Duration(rr.Header().Ttl)*time.Second)
	}
	known := reply.Rcode == dns.RcodeSuccess || reply.Rcode == dns.RcodeNameError
	if life <= 0 || !known || reply.Len() > cachedSize {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.cache) >= cacheEntries {
		clear(f.cache)
	}
	f.cache[key] = remembered{reply.Copy(), time.Now().Add(life)}
}
