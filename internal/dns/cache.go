package dns

import (
	"slices"
	"time"

	"github.com/miekg/dns"
	"k8s.io/utils/lru"
)

const (
	cacheEntries = 4096
	// cacheTTL bounds how long an answer is cached, whatever its records say.
	cacheTTL = 30 * time.Second
	// maxCachedSize bounds a cached answer, in bytes on the wire. The owner of
	// an external name decides how large its answers are.
	maxCachedSize = 4096
)

// answerCache keeps the answers of resolvers until the first of their records
// expires. It forgets the answers that were not asked for the longest.
type answerCache struct{ entries *lru.Cache }

func newAnswerCache() answerCache { return answerCache{lru.New(cacheEntries)} }

// question is the key of the cache. The class is always IN and recursion is
// always desired. Nothing else in a client's query may influence the answers
// that other clients get.
type question struct {
	name      string // in lower case
	qtype     uint16
	dnssec    bool // the client wants signatures (DO)
	unchecked bool // and checks them itself (CD)
}

type cacheEntry struct {
	reply         *dns.Msg // never changed
	stored, until time.Time
}

// get returns a copy of the answer to a question, whose records live shorter by
// the time that they were cached, or nil.
func (c answerCache) get(key question) *dns.Msg {
	known, ok := c.entries.Get(key)
	if !ok {
		return nil
	}
	entry, now := known.(cacheEntry), time.Now()
	if !now.Before(entry.until) {
		return nil
	}
	age := uint32(now.Sub(entry.stored) / time.Second)
	reply := entry.reply.Copy()
	for _, rr := range slices.Concat(reply.Answer, reply.Ns, reply.Extra) {
		if h := rr.Header(); h.Rrtype != dns.TypeOPT {
			h.Ttl -= min(h.Ttl, age)
		}
	}
	return reply
}

// put stores an answer if it may be cached.
func (c answerCache) put(key question, reply *dns.Msg) {
	if life := lifetime(reply, key.qtype); life > 0 && reply.Len() <= maxCachedSize {
		now := time.Now()
		c.entries.Add(key, cacheEntry{reply.Copy(), now, now.Add(life)})
	}
}

// clear forgets everything.
func (c answerCache) clear() { c.entries.Clear() }

// lifetime returns how long an answer may be cached. An answer without records
// of the type may as long as its SOA record says, and not at all without one
// (RFC 2308).
func lifetime(reply *dns.Msg, qtype uint16) time.Duration {
	if reply.Rcode != dns.RcodeSuccess && reply.Rcode != dns.RcodeNameError {
		return 0
	}
	positive := reply.Rcode == dns.RcodeSuccess && slices.ContainsFunc(reply.Answer, func(rr dns.RR) bool {
		return rr.Header().Rrtype == qtype || qtype == dns.TypeANY
	})
	known, life := positive, cacheTTL
	for _, rr := range slices.Concat(reply.Answer, reply.Ns) {
		ttl := rr.Header().Ttl
		if soa, ok := rr.(*dns.SOA); ok && !positive {
			known, ttl = true, min(ttl, soa.Minttl)
		}
		life = min(life, time.Duration(ttl)*time.Second)
	}
	if !known {
		return 0
	}
	return life
}
