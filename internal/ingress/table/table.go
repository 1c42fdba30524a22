// Package table is the route table of an HTTP proxy: which backend gets a request,
// and which certificate a TLS connection. A Table is a value that never changes, but for
// the endpoints of its backends, which come and go with pods. Its makers are controllers;
// it knows nothing of their objects:
//
//	Ingress ─► internal/ingress ─┐
//	                             ├─► Builder ─► Table ─► internal/ingress/proxy
//	other APIs of routes ────────┘
//
// A Table serves one listener or several. The first of these that has a route wins:
//
//	host of the request      exact name, then *.name, then all hosts
//	path, within the host    exact, then the longest prefix by elements
//	fallback                 of the exact name, of *.name, of all hosts
//
// Rules may have conditions, as those of the Gateway API do (Builder.AddConditional). A
// request that does not meet them goes on to the next rule, up to the host of a listener
// (Builder.End). Hosts without such rules, as those of Ingresses, cost nothing for them.
//
// A host may belong to a namespace (Builder.Own). Then what the rules of the most exact
// name leave over goes on to rules of the same namespace alone, so that no other one
// answers in its name.
package table

import (
	"crypto/tls"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// Protocol is what the endpoints of a backend speak.
type Protocol string

// The protocols of backends. H2C is HTTP/2 without TLS, as gRPC uses it.
const (
	HTTP1 Protocol = "http/1.1"
	H2C   Protocol = "h2c"
)

// Backend is a set of endpoints that serve the same. It must not be copied.
type Backend struct {
	Name     string // for people, such as NAMESPACE/SERVICE:PORT
	Protocol Protocol
	// Invalid is whether there is no such backend. Its requests get the status 500.
	Invalid bool

	endpoints atomic.Pointer[[]netip.AddrPort] // nil is none
}

// Endpoints returns the endpoints that the backend has now. The list never changes.
func (b *Backend) Endpoints() []netip.AddrPort {
	if list := b.endpoints.Load(); list != nil {
		return *list
	}
	return nil
}

// SetEndpoints replaces the endpoints. The caller must not change the list any more.
func (b *Backend) SetEndpoints(list []netip.AddrPort) { b.endpoints.Store(&list) }

// Target is a backend with its share of a route's requests.
type Target struct {
	Backend *Backend
	Weight  int // relative to those of the route's other targets; 0 gets none
}

// Route says what becomes of the requests that match a rule.
type Route struct {
	// Namespace and Name are those of the object that defines the route; Name begins with
	// KIND/ unless that is an Ingress. All routes of a namespace share what the proxy gives
	// to one tenant.
	Namespace, Name string
	Targets         []Target

	// RedirectToHTTPS answers requests that come without TLS by a redirection.
	RedirectToHTTPS bool
	// MaxBody bounds the body of a request, in bytes. 0 is no bound.
	MaxBody int64
	// AnswerTimeout bounds the time from the end of a request to the headers of its
	// response. 0 is no bound.
	AnswerTimeout time.Duration
	// Timeout bounds the time from a request to the end of its response. 0 is no bound.
	Timeout time.Duration
	// Filters change requests and responses. They are nil if nothing is changed.
	Filters *Filters
	// Prefix is how many elements the prefix has by which the route matches.
	Prefix int
}

// Pick returns the backend for one request, by chance in proportion to the weights.
// It returns nil if there is none.
func (r *Route) Pick() *Backend {
	if len(r.Targets) == 1 && r.Targets[0].Weight > 0 {
		return r.Targets[0].Backend
	}
	sum := 0
	for _, t := range r.Targets {
		sum += max(t.Weight, 0)
	}
	if sum == 0 {
		return nil
	}
	at := rand.IntN(sum)
	for _, t := range r.Targets {
		if at -= max(t.Weight, 0); at < 0 {
			return t.Backend
		}
	}
	return nil
}

// PathType says which paths a rule matches.
type PathType int

// The path types. Prefix compares whole elements: /a matches /a, /a/ and /a/b, and not
// /ab. A slash at its end does not count. Exact distinguishes /a and /a/. Fallback
// matches what no other rule matches, whatever its path.
const (
	Exact PathType = iota
	Prefix
	Fallback
)

// Table is a route table. It never changes, but for the endpoints of backends, and any
// number of goroutines use it.
type Table struct {
	exact     map[string]*host   // by name
	wildcards map[string]*host   // by what follows "*."
	all       *host              // of rules for all hosts; nil if there are none
	deep      bool               // whether a wildcard stands for more than one label
	routes    map[[2]string]bool // namespaces and names
}

// host has the rules and the certificate of one host.
type host struct {
	namespace   string // to which it belongs; "" is none
	root        node
	fallback    *Route
	certificate *tls.Certificate
	conditional bool // whether there are rules with conditions
	deep        bool // whether it is a wildcard that stands for more than one label

	endsPlain, endsSecure bool // what Builder.End says of requests without and with TLS
}

// ends reports whether rules with conditions of wider hosts are not asked.
func (h *host) ends(secure bool) bool {
	if secure {
		return h.endsSecure
	}
	return h.endsPlain
}

// node is an element of paths. That of the root is empty.
type node struct {
	children         map[string]*node
	prefix           *Route
	exact, withSlash *Route // without and with a slash at the end
	conditional      *conditional
}

// Host returns the host of a request in the form in which rules have it: in lower
// case, without port and without a dot at its end.
func Host(text string) string {
	if strings.IndexByte(text, ':') >= 0 {
		if name, _, err := net.SplitHostPort(text); err == nil {
			text = name
		}
	}
	return strings.ToLower(strings.TrimSuffix(text, "."))
}

// parent returns what follows the first label of a name, "" if nothing does.
func parent(name string) string {
	_, rest, _ := strings.Cut(name, ".")
	return rest
}

// maxName bounds the names that are looked up below the first label, in bytes: DNS has no
// longer ones.
const maxName = 253

// candidate is a host whose rules may be for a name.
type candidate struct {
	*host
	below bool // whether a wildcard stands for several labels, as it does with conditions
}

// hosts appends what the table has for a name to found, which is empty, the most exact
// first. What belongs to another namespace than the first is left out.
func (t *Table) hosts(name string, found []candidate) []candidate {
	if h := t.exact[name]; h != nil {
		found = append(found, candidate{h, false})
	}
	if above := parent(name); above != "" && above != name[1:] { // the label has at least a letter
		if h := t.wildcards[above]; h != nil {
			found = append(found, candidate{h, false})
		}
		if t.deep && len(name) <= maxName {
			for above = parent(above); above != ""; above = parent(above) {
				if h := t.wildcards[above]; h != nil && h.deep {
					found = append(found, candidate{h, true})
				}
			}
		}
	}
	if t.all != nil {
		found = append(found, candidate{t.all, false})
	}
	owner := ""
	return slices.DeleteFunc(found, func(c candidate) bool {
		if owner == "" {
			owner = c.namespace
			return false
		}
		return c.namespace != owner
	})
}

// Match returns the route of a request to a host in the form of Host, or nil. The request
// may be nil: then it meets no conditions.
func (t *Table) Match(name string, p Path, r *http.Request) *Route {
	var room [6]candidate
	candidates := t.hosts(name, room[:0])
	question := asked{request: r, path: p}
	ended := r == nil
	for _, h := range candidates {
		if h.conditional && !ended {
			if found := h.root.find(p.elements, &question); found != nil {
				return found
			}
		}
		ended = ended || h.ends(r.TLS != nil)
		if h.below {
			continue
		}
		if found := h.match(p); found != nil {
			return found
		}
	}
	for _, h := range candidates {
		if h.fallback != nil && !h.below {
			return h.fallback
		}
	}
	return nil
}

func (h *host) match(p Path) *Route {
	at := &h.root
	longest := at.prefix
	for _, element := range p.elements {
		if at = at.children[element]; at == nil {
			return longest
		}
		if at.prefix != nil {
			longest = at.prefix
		}
	}
	exact := at.exact
	if p.slash {
		exact = at.withSlash
	}
	if exact != nil {
		return exact
	}
	return longest
}

// Certificate returns the certificate for a server name of TLS (RFC 6066) in the form
// of Host, or nil.
func (t *Table) Certificate(name string) *tls.Certificate {
	var room [6]candidate
	for _, h := range t.hosts(name, room[:0]) {
		if h.certificate != nil {
			return h.certificate
		}
	}
	return nil
}

// Has reports whether a route is defined by the object of that namespace and name.
func (t *Table) Has(namespace, name string) bool { return t.routes[[2]string{namespace, name}] }

// Owners calls visit for the namespace and name of each object that defines routes.
func (t *Table) Owners(visit func(namespace, name string)) {
	for owner := range t.routes {
		visit(owner[0], owner[1])
	}
}
