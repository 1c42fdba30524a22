package table

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Pair is a name with a value, of a header or a parameter of a query.
type Pair struct{ Name, Value string }

// Conditions are what a rule asks of a request beside its host and path.
type Conditions struct {
	// TLS is whether the request comes by TLS. A rule is for one of both.
	TLS bool
	// Method is the method of the request; "" is any.
	Method string
	// GRPCMethod is the method of gRPC, in the path /SERVICE/METHOD; "" is any.
	GRPCMethod string
	// Headers and Query must be there. Of several values of a parameter, the first counts;
	// those of a header are joined with commas (RFC 9110, 5.3). Names of headers are in the
	// canonical form of net/http.
	Headers, Query []Pair
}

// compare orders conditions as the specification of the Gateway API does: those that
// come first are asked first.
func (c *Conditions) compare(with *Conditions) int {
	method := func(c *Conditions) int { return min(1, len(c.Method)+len(c.GRPCMethod)) }
	return cmp.Or(
		cmp.Compare(method(with), method(c)),
		cmp.Compare(len(with.Headers), len(c.Headers)),
		cmp.Compare(len(with.Query), len(c.Query)),
	)
}

// asked is a request that is compared with conditions.
type asked struct {
	request *http.Request
	path    Path
	query   url.Values // nil until it is needed
}

// meets reports whether a request meets conditions.
func (a *asked) meets(c *Conditions) bool {
	r := a.request
	if c.TLS != (r.TLS != nil) || c.Method != "" && c.Method != r.Method {
		return false
	}
	if c.GRPCMethod != "" && (len(a.path.elements) != 2 || a.path.slash || a.path.elements[1] != c.GRPCMethod) {
		return false
	}
	for _, want := range c.Headers {
		if !areJoined(r.Header[want.Name], want.Value) {
			return false
		}
	}
	if len(c.Query) > 0 && a.query == nil {
		a.query = r.URL.Query()
	}
	for _, want := range c.Query {
		if values := a.query[want.Name]; len(values) == 0 || values[0] != want.Value {
			return false
		}
	}
	return true
}

// areJoined reports whether values with commas between them are a text. It joins nothing:
// a client can send 64 KiB of them, and a host can have thousands of rules.
func areJoined(values []string, text string) bool {
	for i, v := range values {
		ok := true
		if i > 0 {
			text, ok = strings.CutPrefix(text, ",")
		}
		if ok {
			text, ok = strings.CutPrefix(text, v)
		}
		if !ok {
			return false
		}
	}
	return len(values) > 0 && text == ""
}

// conditional has the rules with conditions of a node, the first to ask first.
type conditional struct{ prefix, exact, withSlash []conditionalRule }

// conditionalRule is a rule with conditions.
type conditionalRule struct {
	when  Conditions
	route *Route
}

// first returns the route of the first rule that a request meets, or nil.
func first(rules []conditionalRule, a *asked) *Route {
	for i := range rules {
		if a.meets(&rules[i].when) {
			return rules[i].route
		}
	}
	return nil
}

// find returns the route of the rules with conditions below a node, or nil. rest are the
// elements of the path below the node.
func (n *node) find(rest []string, a *asked) *Route {
	if len(rest) > 0 {
		if child := n.children[rest[0]]; child != nil {
			if r := child.find(rest[1:], a); r != nil {
				return r
			}
		}
	}
	if n.conditional == nil {
		return nil
	}
	if len(rest) == 0 {
		exact := n.conditional.exact
		if a.path.slash {
			exact = n.conditional.withSlash
		}
		if r := first(exact, a); r != nil {
			return r
		}
	}
	return first(n.conditional.prefix, a)
}

// AddConditional adds a rule with conditions for the requests to a host, as Add has it,
// and a path of the type Exact or Prefix. Of the rules for one host and path that a request
// meets, the one with a method wins, then the one with most headers, the one with most
// parameters, and the one that was added first. All of them come before rules without
// conditions for the same host.
func (b *Builder) AddConditional(name string, t PathType, p Path, when Conditions, r *Route) {
	h := b.host(name)
	h.conditional = true
	at := h.root.below(p)
	if at.conditional == nil {
		at.conditional = &conditional{}
	}
	rules := &at.conditional.prefix
	switch {
	case t == Prefix:
	case p.slash:
		rules = &at.conditional.withSlash
	default:
		rules = &at.conditional.exact
	}
	i, _ := slices.BinarySearchFunc(*rules, &when, func(has conditionalRule, added *Conditions) int {
		if has.when.compare(added) <= 0 { // equal ones stay before it
			return -1
		}
		return 1
	})
	*rules = slices.Insert(*rules, i, conditionalRule{when, r})
	b.remember(r)
}

// End makes a host, as Add has it, the widest one whose rules with conditions are asked of
// requests for its names, with TLS or without. It is one of a listener, which has its names
// for itself.
func (b *Builder) End(name string, secure bool) {
	if h := b.host(name); secure {
		h.endsSecure = true
	} else {
		h.endsPlain = true
	}
}

// Deepen makes a name with "*." stand for names with more labels, too, in its rules with
// conditions and its certificate. It does nothing for another name.
func (b *Builder) Deepen(name string) {
	if strings.HasPrefix(name, "*.") {
		b.host(name).deep, b.table.deep = true, true
	}
}
