package gateway

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/ingress/table"
)

const (
	// maxWeight is the largest weight of the specification.
	maxWeight = 1_000_000
	// maxPathLength bounds a path, in bytes, and maxConditions the headers and parameters
	// of a match.
	maxPathLength, maxConditions = 1024, 32
	// defaultTimeout bounds the time to the headers of a response, unless a rule says
	// otherwise. Streams of gRPC have no bound.
	defaultTimeout = time.Minute
)

// place is a rule of the table without its hosts: one match of a rule of a route.
type place struct {
	kind  table.PathType
	path  table.Path
	when  table.Conditions // TLS is that of the listener
	route *table.Route
}

// unsupported returns the error of something that routes cannot have here.
func unsupported(format string, args ...any) *verdict {
	return &verdict{reason: reasonUnsupportedValue, message: fmt.Sprintf(format, args...)}
}

// tooManyPlaces is why a route is refused whose namespace has maxPlaces without it.
func tooManyPlaces() *verdict {
	return &verdict{false, reasonTooMany, fmt.Sprintf("The routes of the namespace have more than %d matches at hosts of listeners", maxPlaces)}
}

// compileRules sets what the rules of a route mean: its places, or why there are none.
func (c *compiler) compileRules(r *route) {
	r.resolved = verdict{true, reasonResolvedRefs, "All references are resolved"}
	for i := range r.Spec.Rules {
		if wrong := c.compileRule(r, &r.Spec.Rules[i]); wrong != nil {
			wrong.message = fmt.Sprintf("Rule %d: %s", i+1, wrong.message)
			r.wrong = wrong
			return
		}
	}
}

func (c *compiler) compileRule(r *route, rule *Rule) *verdict {
	filters, wrong := parseFilters(r.Kind, rule.Filters)
	if wrong != nil {
		return wrong
	}
	common := table.Route{Namespace: r.Namespace, Name: r.Kind + "/" + r.Name, Filters: filters}
	if wrong := setTimeouts(&common, r.Kind, rule); wrong != nil {
		return wrong
	}
	if c.backends[r.Namespace] += len(rule.BackendRefs); c.backends[r.Namespace] > maxBackends {
		return &verdict{false, reasonTooMany, fmt.Sprintf("the routes of the namespace have more than %d backends", maxBackends)}
	}
	if common.Targets, wrong = c.targets(r, rule); wrong != nil {
		return wrong
	}
	matches := rule.Matches
	if len(matches) == 0 {
		matches = make([]Match, 1)
	}
	for i := range matches {
		p, wrong := parseMatch(r.Kind, &matches[i])
		if wrong != nil {
			return wrong
		}
		if p.kind != table.Prefix && replacesPrefix(filters) {
			return unsupported("ReplacePrefixMatch needs matches of the type PathPrefix")
		}
		own := common
		if p.kind == table.Prefix {
			own.Prefix = p.path.Elements()
		}
		p.route = &own
		r.places = append(r.places, p)
	}
	return nil
}

// parseMatch returns the place of a match, without its route.
func parseMatch(kind string, m *Match) (place, *verdict) {
	p := place{kind: table.Prefix}
	text := "/"
	if kind == KindGRPC {
		if m.Method != nil {
			if t := ptr.Deref(m.Method.Type, "Exact"); t != "Exact" {
				return place{}, unsupported("methods of the type %s are not supported", t)
			}
			switch service, method := m.Method.Service, m.Method.Name; {
			case service != "" && method != "":
				p.kind, text = table.Exact, "/"+url.PathEscape(service)+"/"+url.PathEscape(method)
			case service != "":
				text = "/" + url.PathEscape(service)
			default:
				p.when.GRPCMethod = method
			}
		}
	} else {
		if m.Path != nil {
			text = ptr.Deref(m.Path.Value, "/")
			switch t := ptr.Deref(m.Path.Type, "PathPrefix"); t {
			case "PathPrefix":
			case "Exact":
				p.kind = table.Exact
			default:
				return place{}, unsupported("paths of the type %s are not supported", t)
			}
		}
		if m.Method != nil {
			p.when.Method = m.Method.HTTP
		}
	}
	if len(text) > maxPathLength {
		return place{}, unsupported("a path is longer than %d bytes", maxPathLength)
	}
	var err error
	if p.path, err = table.ParsePath(text); err != nil {
		return place{}, unsupported("%v", err)
	}
	var wrong *verdict
	if p.when.Headers, wrong = parseValues("headers", m.Headers, http.CanonicalHeaderKey); wrong != nil {
		return place{}, wrong
	}
	if slices.ContainsFunc(p.when.Headers, func(h table.Pair) bool { return h.Name == "Host" }) {
		return place{}, unsupported("the header Host is compared by hostnames alone")
	}
	if p.when.Query, wrong = parseValues("query parameters", m.QueryParams, func(name string) string { return name }); wrong != nil {
		return place{}, wrong
	}
	if len(p.when.Headers)+len(p.when.Query) > maxConditions {
		return place{}, unsupported("a match has more than %d headers and query parameters", maxConditions)
	}
	return p, nil
}

// parseValues returns what matches of headers or parameters want. Of several for one name,
// the first counts.
func parseValues(what string, all []ValueMatch, canonical func(string) string) ([]table.Pair, *verdict) {
	var pairs []table.Pair
	for _, m := range all {
		if t := ptr.Deref(m.Type, "Exact"); t != "Exact" {
			return nil, unsupported("%s of the type %s are not supported", what, t)
		}
		name := canonical(m.Name)
		if !slices.ContainsFunc(pairs, func(p table.Pair) bool { return p.Name == name }) {
			pairs = append(pairs, table.Pair{Name: name, Value: m.Value})
		}
	}
	return pairs, nil
}

// setTimeouts sets the bounds of a rule.
func setTimeouts(to *table.Route, kind string, rule *Rule) *verdict {
	if kind == KindGRPC {
		return nil
	}
	to.AnswerTimeout = defaultTimeout
	if rule.Timeouts == nil {
		return nil
	}
	for _, bound := range []struct {
		text *string
		into *time.Duration
	}{{rule.Timeouts.Request, &to.Timeout}, {rule.Timeouts.BackendRequest, &to.AnswerTimeout}} {
		if bound.text == nil {
			continue
		}
		d, err := time.ParseDuration(*bound.text)
		if err != nil || d < 0 {
			return unsupported("timeout %q: want a duration such as 10s", *bound.text)
		}
		*bound.into = d
	}
	if rule.Timeouts.Request != nil && rule.Timeouts.BackendRequest == nil {
		to.AnswerTimeout = 0
	}
	return nil
}

// missing returns a backend in place of one that cannot be had. A share of requests of HTTP
// gets 500. Those of gRPC are to get UNAVAILABLE, to which its clients turn 503, the status
// of a backend without endpoints.
func (r *route) missing(name string) *table.Backend {
	return &table.Backend{Name: name, Invalid: r.Kind == KindHTTP}
}

// targets returns the backends of a rule. One that cannot be had keeps its share.
func (c *compiler) targets(r *route, rule *Rule) ([]table.Target, *verdict) {
	var all []table.Target
	sum := 0
	for i := range rule.BackendRefs {
		ref := &rule.BackendRefs[i]
		if len(ref.Filters) > 0 {
			return nil, unsupported("filters of a backendRef are not supported")
		}
		b, wrong := c.target(r, ref)
		if wrong != nil && r.resolved.ok {
			r.resolved = *wrong
		}
		weight := min(max(int(ptr.Deref(ref.Weight, 1)), 0), maxWeight)
		sum += weight
		all = append(all, table.Target{Backend: b, Weight: weight})
	}
	if sum == 0 {
		all = []table.Target{{Backend: r.missing("none"), Weight: 1}}
	}
	return all, nil
}

// target returns the backend of a reference, and why it is not as the user wants it.
func (c *compiler) target(r *route, ref *BackendRef) (*table.Backend, *verdict) {
	namespace := ptr.Deref(ref.Namespace, r.Namespace)
	name := namespace + "/" + ref.Name
	invalid := r.missing(name)
	group, kind := ptr.Deref(ref.Group, ""), ptr.Deref(ref.Kind, "Service")
	switch {
	case group != "" || kind != "Service":
		return invalid, &verdict{false, reasonInvalidKind, fmt.Sprintf("%s %s: only Services are backends", kind, ref.Name)}
	case namespace != r.Namespace && !c.granted(r.Kind, r.Namespace, kind, namespace, ref.Name):
		return invalid, &verdict{false, reasonRefNotPermitted, fmt.Sprintf("Service %s: no ReferenceGrant allows it", name)}
	case ref.Port == nil:
		return invalid, &verdict{false, reasonUnsupportedValue, fmt.Sprintf("Service %s: a port is missing", name)}
	}
	b, reason, message := c.Backend(namespace, ref.Name, *ref.Port, r.Kind == KindGRPC)
	if b == nil {
		b = invalid
	}
	if reason != "" {
		return b, &verdict{false, reason, message}
	}
	return b, nil
}

// granted reports whether a ReferenceGrant lets routes or Gateways of a namespace refer to
// an object of the core group in another one.
func (c *compiler) granted(fromKind, fromNamespace, toKind, toNamespace, toName string) bool {
	all := grant{fromKind: fromKind, fromNamespace: fromNamespace, toKind: toKind, toNamespace: toNamespace, all: true}
	one := all
	one.all, one.toName = false, toName
	return c.grants[all] || c.grants[one]
}

// grant is what a ReferenceGrant lets the objects of one kind in one namespace refer to: an
// object of the core group, or all of a kind.
type grant struct {
	fromKind, fromNamespace, toKind, toNamespace, toName string
	all                                                  bool
}

// addGrant adds what a ReferenceGrant allows. Each reference of a route then finds it
// however many there are.
func (c *compiler) addGrant(g *Grant) {
	for _, from := range g.Spec.From[:min(len(g.Spec.From), maxOfGrant)] {
		if from.Group != Group {
			continue
		}
		for _, to := range g.Spec.To[:min(len(g.Spec.To), maxOfGrant)] {
			if to.Group == "" {
				c.grants[grant{from.Kind, from.Namespace, to.Kind, g.Namespace, ptr.Deref(to.Name, ""), to.Name == nil}] = true
			}
		}
	}
}

// parseFilters returns the filters of a rule, nil if there are none.
func parseFilters(kind string, all []Filter) (*table.Filters, *verdict) {
	if len(all) == 0 {
		return nil, nil
	}
	out := &table.Filters{}
	seen := map[string]bool{}
	for i := range all {
		f := &all[i]
		if seen[f.Type] {
			return nil, unsupported("there is more than one filter of the type %s", f.Type)
		}
		seen[f.Type] = true
		var wrong *verdict
		switch {
		case f.Type == "RequestHeaderModifier" && f.RequestHeaderModifier != nil:
			out.Request, wrong = parseHeaders(f.RequestHeaderModifier)
		case f.Type == "ResponseHeaderModifier" && f.ResponseHeaderModifier != nil:
			out.Response, wrong = parseHeaders(f.ResponseHeaderModifier)
		case f.Type == "RequestRedirect" && f.RequestRedirect != nil && kind == KindHTTP:
			out.Redirect, wrong = parseRedirect(f)
		case f.Type == "URLRewrite" && f.URLRewrite != nil && kind == KindHTTP:
			out.Rewrite.Host = ptr.Deref(f.URLRewrite.Hostname, "")
			out.Rewrite.Path, wrong = parsePathModifier(f.URLRewrite.Path)
		default:
			wrong = unsupported("filters of the type %s are not supported", f.Type)
		}
		if wrong != nil {
			return nil, wrong
		}
	}
	if seen["RequestRedirect"] && seen["URLRewrite"] {
		return nil, &verdict{false, reasonIncompatibleFilters, "a rule has either RequestRedirect or URLRewrite"}
	}
	return out, nil
}

// replacesPrefix reports whether filters replace the prefix by which a rule matches.
func replacesPrefix(f *table.Filters) bool {
	if f == nil {
		return false
	}
	change := f.Rewrite.Path
	if f.Redirect != nil {
		change = f.Redirect.Path
	}
	return change != nil && change.Prefix
}

// parseRedirect returns the redirection of a filter.
func parseRedirect(f *Filter) (*table.Redirect, *verdict) {
	of := f.RequestRedirect
	to := &table.Redirect{Scheme: ptr.Deref(of.Scheme, ""), Host: ptr.Deref(of.Hostname, ""), Port: ptr.Deref(of.Port, 0), Code: ptr.Deref(of.StatusCode, http.StatusFound)}
	if to.Scheme != "" && to.Scheme != "http" && to.Scheme != "https" {
		return nil, unsupported("scheme %q of a redirection: want http or https", to.Scheme)
	}
	if to.Port < 0 || to.Port > 65535 {
		return nil, unsupported("port %d of a redirection: want one from 1 to 65535", to.Port)
	}
	if !slices.Contains([]int{http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect}, to.Code) {
		return nil, unsupported("status %d of a redirection: want 301, 302, 303, 307 or 308", to.Code)
	}
	var wrong *verdict
	to.Path, wrong = parsePathModifier(of.Path)
	return to, wrong
}

// parsePathModifier returns the change of a path, nil for none.
func parsePathModifier(m *PathModifier) (*table.PathChange, *verdict) {
	if m == nil {
		return nil, nil
	}
	var text string
	change := &table.PathChange{}
	switch {
	case m.Type == "ReplaceFullPath" && m.ReplaceFullPath != nil:
		text = cmp.Or(*m.ReplaceFullPath, "/")
	case m.Type == "ReplacePrefixMatch" && m.ReplacePrefixMatch != nil:
		text, change.Prefix = *m.ReplacePrefixMatch, true
	default:
		return nil, unsupported("path modifiers of the type %s are not supported", m.Type)
	}
	if text == "" {
		return change, nil
	}
	if len(text) > maxPathLength {
		return nil, unsupported("a path is longer than %d bytes", maxPathLength)
	}
	p, err := table.ParsePath(text)
	if err != nil {
		return nil, unsupported("%v", err)
	}
	decoded, err := url.PathUnescape(p.Raw)
	if err != nil {
		return nil, unsupported("%v", err)
	}
	change.With = (&url.URL{Path: decoded, RawPath: p.Raw}).EscapedPath() // of spaces, for example
	return change, nil
}

// parseHeaders returns what a filter changes of headers. Those that frame a message, or are
// for one connection, are the proxy's.
func parseHeaders(m *HeaderModifier) (table.HeaderChanges, *verdict) {
	var out table.HeaderChanges
	var wrong *verdict
	name := func(of string) string {
		of = http.CanonicalHeaderKey(of)
		switch {
		case strings.HasPrefix(of, "Proxy-"), slices.Contains([]string{"Connection", "Content-Length", "Host", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}, of):
			wrong = unsupported("the header %s is the proxy's own", of)
		}
		return of
	}
	for _, h := range m.Set {
		out.Set = append(out.Set, table.Pair{Name: name(h.Name), Value: h.Value})
	}
	for _, h := range m.Add {
		out.Add = append(out.Add, table.Pair{Name: name(h.Name), Value: h.Value})
	}
	for _, h := range m.Remove {
		out.Remove = append(out.Remove, name(h))
	}
	return out, wrong
}
