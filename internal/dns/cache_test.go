package dns

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
)

// message returns an answer about www.example.com. Records after "--" are those
// of the authority.
func message(t *testing.T, rcode int, records ...string) *dns.Msg {
	t.Helper()
	m := new(dns.Msg).SetRcode(new(dns.Msg).SetQuestion("www.example.com.", dns.TypeA), rcode)
	to := &m.Answer
	for _, text := range records {
		if text == "--" {
			to = &m.Ns
			continue
		}
		*to = append(*to, record(t, text))
	}
	return m
}

const (
	address = "www.example.com. 20 IN A 192.0.2.1"
	alias   = "www.example.com. 10 IN CNAME other.example.com."
	soa     = "example.com. 60 IN SOA ns.example.com. mail.example.com. 1 7200 1800 86400 15"
)

func TestHowLongAnswersAreCached(t *testing.T) {
	for name, c := range map[string]struct {
		reply *dns.Msg
		want  time.Duration
	}{
		"an address":                     {message(t, dns.RcodeSuccess, address), 20 * time.Second},
		"one that lives long":            {message(t, dns.RcodeSuccess, "www.example.com. 3600 IN A 192.0.2.1"), cacheTTL},
		"one that must not be cached":    {message(t, dns.RcodeSuccess, "www.example.com. 0 IN A 192.0.2.1"), 0},
		"an alias with its address":      {message(t, dns.RcodeSuccess, alias, "other.example.com. 20 IN A 192.0.2.1"), 10 * time.Second},
		"an alias alone":                 {message(t, dns.RcodeSuccess, alias), 0},
		"an alias without addresses":     {message(t, dns.RcodeSuccess, alias, "--", soa), 10 * time.Second},
		"no such name":                   {message(t, dns.RcodeNameError, "--", soa), 15 * time.Second},
		"no such record":                 {message(t, dns.RcodeSuccess, "--", soa), 15 * time.Second},
		"no such name, and no authority": {message(t, dns.RcodeNameError), 0},
		"no such record, nor authority":  {message(t, dns.RcodeSuccess), 0},
		"no name behind the alias":       {message(t, dns.RcodeNameError, address), 0},
		"not implemented":                {message(t, dns.RcodeNotImplemented, address), 0},
		"a failure":                      {message(t, dns.RcodeServerFailure, "--", soa), 0},
	} {
		if got := lifetime(c.reply, dns.TypeA); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestCachedRecordsAge checks that what is cached is not cached anew by clients.
func TestCachedRecordsAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, key := newAnswerCache(), question{name: "www.example.com.", qtype: dns.TypeA}
		c.put(key, message(t, dns.RcodeSuccess, address, "--", "example.com. 3600 IN NS ns.example.com."))
		time.Sleep(12*time.Second + time.Second/2)
		for range 2 {
			reply := c.get(key)
			if reply == nil {
				t.Fatal("the answer is gone")
			}
			if got := reply.Answer[0].Header().Ttl; got != 8 {
				t.Errorf("the address has %d s to live, want 8", got)
			}
			if got := reply.Ns[0].Header().Ttl; got != 3588 {
				t.Errorf("the authority has %d s to live, want 3588", got)
			}
		}
		time.Sleep(7*time.Second + time.Second/2)
		if c.get(key) != nil {
			t.Error("the answer is cached for longer than its record lives")
		}
	})
}

func TestLargeAnswersAreNotCached(t *testing.T) {
	c, key := newAnswerCache(), question{name: "example.com.", qtype: dns.TypeTXT}
	reply := new(dns.Msg).SetQuestion("example.com.", dns.TypeTXT)
	for range 30 {
		reply.Answer = append(reply.Answer, record(t, `example.com. 60 IN TXT "`+strings.Repeat("x", 200)+`"`))
	}
	c.put(key, reply)
	if c.get(key) != nil {
		t.Errorf("an answer of %d bytes is cached", reply.Len())
	}
	reply.Answer = reply.Answer[:1]
	c.put(key, reply)
	if c.get(key) == nil {
		t.Error("a small answer is not cached")
	}
}
