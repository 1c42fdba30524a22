package dns

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/miekg/dns"
)

const (
	forwardTimeout = 2 * time.Second
	// tcpTimeout is the part of forwardTimeout that a second query, by TCP, may
	// take.
	tcpTimeout = time.Second
	// upstreamUDPSize is the largest answer by UDP that a resolver is asked
	// for. A larger one would be fragmented (RFC 9715).
	upstreamUDPSize = 1232
)

// exchange queries a resolver by UDP, and by TCP if the answer is truncated or
// does not repeat the question exactly. The resolver gets a query with a random
// ID, a random port and letters of random case, which an answer must repeat
// (RFC 5452, draft-vixie-dnsext-dns0x20). Other parts of the client's query,
// such as its EDNS options, are not passed on.
func exchange(ctx context.Context, query *dns.Msg, server string) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, forwardTimeout)
	defer cancel()
	sent := upstreamQuery(query)
	c := &dns.Client{Timeout: forwardTimeout, UDPSize: upstreamUDPSize}
	reply, err := send(ctx, c, sent, server)
	if err == nil && (reply.Rcode == dns.RcodeFormatError || reply.Rcode == dns.RcodeNotImplemented) {
		// It may not know EDNS (RFC 6891, section 7).
		sent.Extra, sent.Id = nil, dns.Id()
		reply, err = send(ctx, c, sent, server)
	}
	if err == nil && (reply.Truncated || !answersExactly(reply, sent)) {
		reply, err = exchangeTCP(ctx, sent, server, reply)
	}
	if err != nil {
		return nil, err
	}
	return replyFrom(query, reply), nil
}

// exchangeTCP queries a resolver again, by TCP. If the resolver does not answer
// there, exchangeTCP accepts a complete answer by UDP whose question differs in
// case only: some resolvers write all names in lower case.
func exchangeTCP(ctx context.Context, sent *dns.Msg, server string, datagram *dns.Msg) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, tcpTimeout)
	defer cancel()
	answers := func(m *dns.Msg) bool { return m.Response && strings.EqualFold(questionOf(m), questionOf(sent)) }
	sent.Id = dns.Id()
	c := &dns.Client{Net: "tcp", Timeout: tcpTimeout}
	reply, err := send(ctx, c, sent, server)
	switch {
	case err == nil && answers(reply):
		return reply, nil
	case err == nil:
		return nil, fmt.Errorf("%s answered another question than it was sent", server)
	case !datagram.Truncated && answers(datagram):
		return datagram, nil
	}
	return nil, err
}

// send sends a query and returns the reply. It gives up when ctx ends.
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

// upstreamQuery returns a new query with the question of another one.
func upstreamQuery(query *dns.Msg) *dns.Msg {
	q := query.Question[0]
	own := new(dns.Msg).SetQuestion(randomCase(q.Name), q.Qtype) // with a random ID, and recursion
	own.CheckingDisabled = query.CheckingDisabled
	opt := query.IsEdns0()
	return own.SetEdns0(upstreamUDPSize, opt != nil && opt.Do())
}

// randomCase returns a name with each letter in random case.
func randomCase(name string) string {
	out := []byte(name)
	for i, c := range out {
		if letter := c | 0x20; 'a' <= letter && letter <= 'z' && rand.N(2) == 0 {
			out[i] = c ^ 0x20
		}
	}
	return string(out)
}

// answersExactly reports whether a reply repeats the question, letter by
// letter.
func answersExactly(reply, sent *dns.Msg) bool {
	return reply.Response && len(reply.Question) == 1 && reply.Question[0] == sent.Question[0]
}

// questionOf returns the question of a message as text, or "" if it does not
// have exactly one.
func questionOf(m *dns.Msg) string {
	if len(m.Question) != 1 {
		return ""
	}
	return m.Question[0].String()
}

// replyFrom converts a resolver's reply into the reply to a client's query,
// with the client's ID and spelling of the name.
func replyFrom(query, reply *dns.Msg) *dns.Msg {
	answer := new(dns.Msg).SetReply(query)
	answer.RecursionAvailable, answer.AuthenticatedData, answer.Rcode = true, reply.AuthenticatedData, reply.Rcode
	withQuestionCase := func(records []dns.RR) []dns.RR {
		for _, rr := range records {
			if h := rr.Header(); strings.EqualFold(h.Name, query.Question[0].Name) {
				h.Name = query.Question[0].Name
			}
		}
		return records
	}
	answer.Answer, answer.Ns = withQuestionCase(reply.Answer), withQuestionCase(reply.Ns)
	for _, rr := range withQuestionCase(reply.Extra) {
		if rr.Header().Rrtype != dns.TypeOPT {
			answer.Extra = append(answer.Extra, rr)
		}
	}
	if answer.Rcode > 0xF { // an EDNS code, whose OPT record is not passed on
		answer.Rcode = dns.RcodeServerFailure
	}
	return answer
}
