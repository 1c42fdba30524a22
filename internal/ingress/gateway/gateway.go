// Package gateway decides what the objects of the Gateway API mean: the rules that they
// add to a route table, and their conditions. It reads no API and writes none:
//
//	Gateways, HTTPRoutes, ... ─► Compile ─► Plan ─┬─► Claims: hosts, compared with those of Ingresses
//	                                              ├─► Add: rules and certificates of a table.Builder
//	                                              └─► Statuses: what differs in the API
//
// All Gateways share the addresses and the two ports of the node. Those of one namespace
// merge; a host belongs to the namespace whose Gateway or Ingress had it first. Routes of
// other namespaces use the hosts of a Gateway that admits them.
package gateway

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/ingress/table"
	"github.com/coracle-io/coracle/internal/order"
)

const (
	// ControllerName is the name by which GatewayClasses ask for this controller.
	ControllerName = "coracle.io/gateway"
	// DefaultClass is the name of the GatewayClass that the controller creates.
	DefaultClass = "coracle"

	// These bound what one namespace can ask for: listeners, rules at the hosts of
	// listeners, backends of rules, each with its endpoints, and certificates of listeners,
	// each of which is read.
	maxListeners, maxPlaces, maxBackends, maxCertificates = 5000, 5000, 5000, 1000
	// maxOfGrant is how many entries either list of a ReferenceGrant may have, by its
	// definition.
	maxOfGrant = 16
)

// Reasons of conditions. But for the last two, they are the specification's, which has
// none for listeners and routes that are too many.
const (
	reasonAccepted            = "Accepted"
	reasonProgrammed          = "Programmed"
	reasonResolvedRefs        = "ResolvedRefs"
	reasonNoConflicts         = "NoConflicts"
	reasonInvalid             = "Invalid"
	reasonNoAddress           = "AddressNotAssigned"
	reasonNoResources         = "NoResources"
	reasonListenersNotValid   = "ListenersNotValid"
	reasonUnsupportedAddress  = "UnsupportedAddress"
	reasonAddressNotUsable    = "AddressNotUsable"
	reasonUnsupportedProtocol = "UnsupportedProtocol"
	reasonPortUnavailable     = "PortUnavailable"
	reasonHostnameConflict    = "HostnameConflict"
	reasonProtocolConflict    = "ProtocolConflict"
	reasonInvalidCertificate  = "InvalidCertificateRef"
	reasonInvalidRouteKinds   = "InvalidRouteKinds"
	reasonRefNotPermitted     = "RefNotPermitted"
	reasonNoMatchingParent    = "NoMatchingParent"
	reasonNotAllowed          = "NotAllowedByListeners"
	reasonNoMatchingHostname  = "NoMatchingListenerHostname"
	reasonUnsupportedValue    = "UnsupportedValue"
	reasonIncompatibleFilters = "IncompatibleFilters"
	reasonInvalidKind         = "InvalidKind"
	reasonRouteConflict       = "RouteConflict"
	reasonTooMany             = "TooMany"
)

// Source is what is compiled. Its objects are shared and must not be changed.
type Source struct {
	Classes  []*Class
	Gateways []*Gateway
	Routes   []*Route
	Grants   []*Grant
	// NamespaceLabels returns the labels of a namespace.
	NamespaceLabels func(name string) labels.Set
	// Backend returns the backend of a port of a Service, nil if there is none, with the
	// reason and the message of what is wrong with it, if anything is. It may do so for a
	// backend, too. grpc is whether its clients speak gRPC.
	Backend     func(namespace, service string, port int32, grpc bool) (b *table.Backend, reason, message string)
	Certificate func(namespace, secret string) (*tls.Certificate, error)
	// HTTPPort and HTTPSPort are the ports of the node. Listeners have no others: a port
	// is open at all addresses of the machine.
	HTTPPort, HTTPSPort int
	// Addresses returns the addresses of a Gateway that has some.
	Addresses func(has []string) []string
}

// Serves reports whether there is a Gateway of this controller.
func (s *Source) Serves() bool {
	own := s.ownClasses()
	return slices.ContainsFunc(s.Gateways, func(g *Gateway) bool { return own[g.Spec.GatewayClassName] })
}

// ownClasses returns the names of the classes of this controller.
func (s *Source) ownClasses() map[string]bool {
	own := map[string]bool{}
	for _, class := range s.Classes {
		if class.Spec.ControllerName == ControllerName {
			own[class.Name] = true
		}
	}
	return own
}

// Claim is a host, as in a table, that a Gateway of a namespace wants since a time.
type Claim struct {
	Host, Namespace string
	Since           time.Time
}

// verdict is the state of a condition.
type verdict struct {
	ok              bool
	reason, message string
}

// Plan is what the objects of a Source mean.
type Plan struct {
	// Claims are the hosts that the Gateways want.
	Claims []Claim

	source   *Source
	classes  []*Class // of this controller
	gateways []*gateway
	routes   []*route
}

// gateway is a Gateway of this controller.
type gateway struct {
	*Gateway
	accepted  verdict
	addresses verdict // whether the Gateway has those that it wants
	listeners []*listener
}

// listener is a listener of such a Gateway.
type listener struct {
	*Listener
	host        string // in lower case; "" is all
	secure      bool
	kinds       []string // of routes
	accepted    verdict
	conflict    verdict // ok without one
	resolved    verdict
	certificate *tls.Certificate
	hosts       map[string]*hostSet // of its routes, by their kind
	selected    map[string]bool     // whether its selector has a namespace, of those with routes
}

// route is a route with a Gateway of this controller among its parents, or with a status
// of this controller.
type route struct {
	*Route
	places   []place
	wrong    *verdict // why it is not served; nil if it is
	resolved verdict
	parents  []*parent
}

// parent is a parent of a route that is a Gateway of this controller.
type parent struct {
	ref      ParentRef
	gateway  *gateway
	accepted verdict
	attached []attachment
}

// attachment is a listener with the hosts for which a route uses it.
type attachment struct {
	listener *listener
	hosts    []string
}

type compiler struct {
	*Source
	plan     *Plan
	grants   map[grant]bool
	gateways map[[2]string]*gateway

	listeners, places, backends, certificates map[string]int // how many a namespace has
}

// Compile decides what the objects of a source mean.
func Compile(s *Source) *Plan {
	c := &compiler{
		Source: s, plan: &Plan{source: s}, grants: map[grant]bool{}, gateways: map[[2]string]*gateway{},
		listeners: map[string]int{}, places: map[string]int{}, backends: map[string]int{}, certificates: map[string]int{},
	}
	own := s.ownClasses()
	for _, class := range s.Classes {
		if own[class.Name] {
			c.plan.classes = append(c.plan.classes, class)
		}
	}
	for _, g := range s.Grants {
		c.addGrant(g)
	}
	// Where objects compete, the specification prefers older ones.
	for _, g := range slices.SortedFunc(slices.Values(s.Gateways), order.ByAge) {
		if own[g.Spec.GatewayClassName] {
			c.addGateway(g)
		}
	}
	for _, r := range slices.SortedFunc(slices.Values(s.Routes), func(a, b *Route) int {
		return cmp.Or(order.ByAge(a, b), cmp.Compare(a.Kind, b.Kind))
	}) {
		c.addRoute(r)
	}
	return c.plan
}

// claim records that a Gateway wants a host since a time.
func (c *compiler) claim(g *gateway, host string, since metav1.Time) {
	if since.Before(&g.CreationTimestamp) {
		since = g.CreationTimestamp
	}
	c.plan.Claims = append(c.plan.Claims, Claim{host, g.Namespace, since.Time})
}

func (c *compiler) addGateway(of *Gateway) {
	g := &gateway{Gateway: of, accepted: verdict{true, reasonAccepted, "The Gateway is accepted"}, addresses: verdict{ok: true}}
	c.plan.gateways = append(c.plan.gateways, g)
	c.gateways[[2]string{g.Namespace, g.Name}] = g
	c.checkGateway(g)
	for i := range g.Spec.Listeners {
		l := &listener{Listener: &g.Spec.Listeners[i], hosts: map[string]*hostSet{}, selected: map[string]bool{}}
		l.host, l.secure = strings.ToLower(ptr.Deref(l.Hostname, "")), l.Protocol == "HTTPS"
		g.listeners = append(g.listeners, l)
	}
	for _, l := range g.listeners {
		c.checkListener(g, l)
		if !l.accepted.ok {
			if g.accepted.ok {
				g.accepted.reason, g.accepted.message = reasonListenersNotValid, "Not all listeners are valid"
			}
			continue
		}
		if l.secure || l.host != "" {
			c.claim(g, l.host, g.CreationTimestamp)
		}
	}
}

// checkGateway looks for what a Gateway cannot have as a whole.
func (c *compiler) checkGateway(g *gateway) {
	if wanted := string(g.Spec.TLS); wanted != "" && wanted != "null" && wanted != "{}" { // clients that it must refuse would pass
		g.accepted = verdict{false, reasonInvalid, "spec.tls is not supported"}
	}
	usable := c.Addresses(g.has())
	for _, a := range g.Spec.Addresses {
		switch {
		case ptr.Deref(a.Type, "IPAddress") != "IPAddress":
			g.accepted = verdict{false, reasonUnsupportedAddress, "Addresses of the type IPAddress alone are supported"}
		case a.Value != "" && !slices.Contains(usable, a.Value):
			g.addresses = verdict{false, reasonAddressNotUsable, fmt.Sprintf("Address %s is not one of the node that serves", a.Value)}
		}
	}
}

// checkListener sets the conditions of a listener that need no route.
func (c *compiler) checkListener(g *gateway, l *listener) {
	l.accepted = verdict{true, reasonAccepted, "The listener is accepted"}
	l.conflict = verdict{true, reasonNoConflicts, "The listener has no conflicts"}
	l.resolved = verdict{true, reasonResolvedRefs, "All references are resolved"}
	l.setKinds()
	if c.listeners[g.Namespace]++; c.listeners[g.Namespace] > maxListeners { // then it is not looked at
		l.accepted = verdict{false, reasonTooMany, fmt.Sprintf("The Gateways of the namespace have more than %d listeners: the newest are not served", maxListeners)}
		return
	}
	want := c.HTTPPort
	if l.secure {
		want = c.HTTPSPort
	}
	switch {
	case !g.accepted.ok:
		l.accepted = verdict{false, reasonInvalid, g.accepted.message}
	case l.Protocol != "HTTP" && !l.secure:
		l.accepted = verdict{false, reasonUnsupportedProtocol, "Want the protocol HTTP or HTTPS"}
		l.kinds = nil
	case l.Port != want:
		l.accepted = verdict{false, reasonPortUnavailable, fmt.Sprintf("%s is served at port %d alone", l.Protocol, want)}
	}
	if l.secure {
		c.setCertificate(g, l)
	}
	for _, other := range g.listeners {
		switch {
		case other == l || other.Port != l.Port || (other.Protocol == "UDP") != (l.Protocol == "UDP"):
		case !sharePort(other.Protocol, l.Protocol):
			l.conflict = verdict{false, reasonProtocolConflict, fmt.Sprintf("Listener %s has the port with another protocol", other.Name)}
		case other.host == l.host:
			l.conflict = verdict{false, reasonHostnameConflict, fmt.Sprintf("Listener %s has the port with the same hostname", other.Name)}
		}
	}
	if !l.conflict.ok && l.accepted.ok {
		l.accepted = l.conflict
	}
}

// sharePort reports whether listeners of two protocols can have one port. Those with TLS
// are told apart by the name for which a client asks.
func sharePort(a, b string) bool {
	withTLS := func(protocol string) bool { return protocol == "HTTPS" || protocol == "TLS" }
	return a == b || withTLS(a) && withTLS(b)
}

// setKinds sets the kinds of routes of a listener.
func (l *listener) setKinds() {
	if l.AllowedRoutes == nil || len(l.AllowedRoutes.Kinds) == 0 {
		l.kinds = []string{KindHTTP, KindGRPC}
		return
	}
	for _, k := range l.AllowedRoutes.Kinds {
		switch {
		case ptr.Deref(k.Group, Group) != Group || k.Kind != KindHTTP && k.Kind != KindGRPC:
			l.resolved = verdict{false, reasonInvalidRouteKinds, fmt.Sprintf("Routes of the kind %s are not supported", k.Kind)}
		case !slices.Contains(l.kinds, k.Kind):
			l.kinds = append(l.kinds, k.Kind)
		}
	}
}

// setCertificate sets the certificate of a listener with TLS.
func (c *compiler) setCertificate(g *gateway, l *listener) {
	refuse := func(reason, format string, args ...any) {
		l.resolved = verdict{false, reason, fmt.Sprintf(format, args...)}
	}
	if l.TLS == nil || len(l.TLS.CertificateRefs) == 0 {
		refuse(reasonInvalidCertificate, "A certificate is missing")
		return
	}
	if mode := ptr.Deref(l.TLS.Mode, "Terminate"); mode != "Terminate" {
		l.accepted = verdict{false, reasonUnsupportedProtocol, "TLS of the mode " + mode + " is not supported"}
		return
	}
	if wanted := string(l.TLS.FrontendValidation); wanted != "" && wanted != "null" {
		l.accepted = verdict{false, reasonUnsupportedValue, "The certificates of clients are not validated"}
		return
	}
	if c.certificates[g.Namespace] += len(l.TLS.CertificateRefs); c.certificates[g.Namespace] > maxCertificates {
		l.accepted = verdict{false, reasonTooMany, fmt.Sprintf("The listeners of the namespace have more than %d certificates", maxCertificates)}
		return
	}
	for i := range l.TLS.CertificateRefs {
		ref := &l.TLS.CertificateRefs[i]
		namespace := ptr.Deref(ref.Namespace, g.Namespace)
		if ptr.Deref(ref.Group, "") != "" || ptr.Deref(ref.Kind, "Secret") != "Secret" {
			refuse(reasonInvalidCertificate, "%s %s: only Secrets have certificates", ptr.Deref(ref.Kind, "Secret"), ref.Name)
			return
		}
		if namespace != g.Namespace && !c.granted(KindGateway, g.Namespace, "Secret", namespace, ref.Name) {
			refuse(reasonRefNotPermitted, "Secret %s/%s: no ReferenceGrant allows it", namespace, ref.Name)
			return
		}
		found, err := c.Certificate(namespace, ref.Name)
		if err != nil {
			refuse(reasonInvalidCertificate, "Secret %s/%s: %v", namespace, ref.Name, err)
			return
		}
		if l.certificate == nil { // the first one is served
			l.certificate = found
		}
	}
}

// addRoute attaches a route to the listeners of its parents.
func (c *compiler) addRoute(of *Route) {
	r := &route{Route: of}
	for _, ref := range of.Spec.ParentRefs {
		if ptr.Deref(ref.Group, Group) != Group || ptr.Deref(ref.Kind, KindGateway) != KindGateway {
			continue
		}
		if g := c.gateways[[2]string{ptr.Deref(ref.Namespace, of.Namespace), ref.Name}]; g != nil {
			r.parents = append(r.parents, &parent{ref: ref, gateway: g})
		}
	}
	reported := slices.ContainsFunc(of.Status.Parents, func(p ParentStatus) bool { return p.ControllerName == ControllerName })
	if len(r.parents) == 0 && !reported {
		return
	}
	c.plan.routes = append(c.plan.routes, r)
	switch {
	case c.places[r.Namespace] > maxPlaces: // then it is not looked at, however large it is
		r.wrong, r.resolved = tooManyPlaces(), verdict{true, reasonResolvedRefs, "The references are not looked at"}
	case len(r.parents) > 0:
		c.compileRules(r)
	}
	for _, p := range r.parents {
		c.attach(r, p)
	}
	for _, p := range r.parents {
		for _, a := range p.attached {
			a.listener.hostsOf(r.Kind).add(a.hosts)
			if !a.listener.accepted.ok {
				continue
			}
			for _, host := range a.hosts {
				c.claim(p.gateway, host, r.CreationTimestamp)
			}
		}
	}
}

// attach decides whether a parent takes a route, and by which listeners.
func (c *compiler) attach(r *route, p *parent) {
	p.accepted = verdict{false, reasonNoMatchingParent, "The Gateway has no listener of that name and port"}
	if r.wrong != nil {
		p.accepted = *r.wrong
		return
	}
	named, allowed := false, false
	for _, l := range p.gateway.listeners {
		if ptr.Deref(p.ref.SectionName, l.Name) != l.Name || ptr.Deref(p.ref.Port, l.Port) != l.Port {
			continue
		}
		named = true
		if !c.allows(p.gateway, l, r) {
			continue
		}
		allowed = true
		hosts := intersection(l.host, r.Spec.Hostnames)
		if len(hosts) == 0 {
			continue
		}
		if c.places[r.Namespace] += max(1, len(r.places)) * len(hosts); c.places[r.Namespace] > maxPlaces {
			p.attached = nil
			p.accepted = *tooManyPlaces()
			return
		}
		other := KindGRPC
		if r.Kind == KindGRPC {
			other = KindHTTP
		}
		if slices.ContainsFunc(hosts, l.hostsOf(other).overlaps) {
			p.attached = nil
			p.accepted = verdict{false, reasonRouteConflict, fmt.Sprintf("An older %s has a hostname of the route", other)}
			return
		}
		p.attached = append(p.attached, attachment{l, hosts})
	}
	switch {
	case len(p.attached) > 0:
		p.accepted = verdict{true, reasonAccepted, "The route is accepted"}
	case allowed:
		p.accepted = verdict{false, reasonNoMatchingHostname, "No listener has a hostname of the route"}
	case named:
		p.accepted = verdict{false, reasonNotAllowed, "No listener allows the kind and the namespace of the route"}
	}
}

// allows reports whether a listener takes routes of a kind and a namespace.
func (c *compiler) allows(g *gateway, l *listener, r *route) bool {
	if !slices.Contains(l.kinds, r.Kind) {
		return false
	}
	from, selector := "Same", (*metav1.LabelSelector)(nil)
	if l.AllowedRoutes != nil && l.AllowedRoutes.Namespaces != nil {
		from, selector = ptr.Deref(l.AllowedRoutes.Namespaces.From, from), l.AllowedRoutes.Namespaces.Selector
	}
	switch from {
	case "All":
		return true
	case "Same":
		return r.Namespace == g.Namespace
	case "Selector":
		selected, known := l.selected[r.Namespace]
		if !known { // once for all routes of it: a selector may be large
			parsed, err := metav1.LabelSelectorAsSelector(selector) // of nil, it matches nothing
			selected = err == nil && parsed.Matches(c.NamespaceLabels(r.Namespace))
			l.selected[r.Namespace] = selected
		}
		return selected
	}
	return false
}

// Add adds the rules and certificates of the Gateways to a table. owner returns the
// namespace to which a host belongs. It is called once, before Statuses.
func (p *Plan) Add(b *table.Builder, owner func(host string) string) {
	a := &adder{table: b, owner: owner, listeners: map[listenersAt]*hostSet{}}
	for _, g := range p.gateways {
		for _, l := range g.listeners {
			a.addListener(g, l)
		}
	}
	for _, r := range p.routes {
		added := map[attachedHost]bool{}
		for _, of := range r.parents {
			if of.accepted.ok {
				a.addParent(r, of, added)
			}
		}
	}
}

// adder adds what a Plan means to a table.
type adder struct {
	table     *table.Builder
	owner     func(host string) string
	listeners map[listenersAt]*hostSet // the hosts of those that are accepted
}

// listenersAt are the listeners of a namespace, whose Gateways merge, at one of the ports.
type listenersAt struct {
	namespace string
	secure    bool
}

// addListener adds the host and the certificate of a listener.
func (a *adder) addListener(g *gateway, l *listener) {
	l.claimed(g, a.owner)
	if !l.accepted.ok {
		return
	}
	at := listenersAt{g.Namespace, l.secure}
	if a.listeners[at] == nil {
		a.listeners[at] = newHostSet()
	}
	a.listeners[at].add([]string{l.host})
	if l.host != "" { // of all hosts, several namespaces can have one
		a.table.Deepen(l.host)
		a.table.End(l.host, l.secure)
	}
	if l.secure && l.certificate != nil {
		a.table.AddCertificate(l.host, l.certificate)
	}
}

// attachedHost is a host at one of the ports.
type attachedHost struct {
	host   string
	secure bool
}

// claimed refuses a listener whose hostname belongs to another namespace. The message does
// not name that one, which is not the user's.
func (l *listener) claimed(g *gateway, owner func(string) string) {
	if l.accepted.ok && (l.secure || l.host != "") && owner(l.host) != g.Namespace {
		l.conflict = verdict{false, reasonHostnameConflict, "A Gateway or an Ingress of another namespace had the hostname first"}
		l.accepted = l.conflict
		if g.accepted.ok {
			g.accepted.reason, g.accepted.message = reasonListenersNotValid, "Not all listeners are valid"
		}
	}
}

// addParent adds the rules of a route for the hosts of a parent that belong to the
// namespace of either. A host for which there is a more exact listener is that one's.
func (a *adder) addParent(r *route, of *parent, added map[attachedHost]bool) {
	refused, kept := 0, 0
	for _, to := range of.attached {
		l := to.listener
		for _, host := range to.hosts {
			if by := a.owner(host); by != of.gateway.Namespace && by != r.Namespace {
				refused++
				continue
			}
			kept++
			at := attachedHost{host, l.secure}
			if added[at] || !l.accepted.ok || l.secure && l.certificate == nil || !a.listeners[listenersAt{of.gateway.Namespace, l.secure}].has(l.host, host) {
				continue
			}
			added[at] = true
			a.table.Deepen(host)
			for i := range r.places {
				rule := &r.places[i]
				when := rule.when
				when.TLS = at.secure
				a.table.AddConditional(host, rule.kind, rule.path, when, rule.route)
			}
		}
	}
	if kept == 0 && refused > 0 {
		of.accepted = verdict{false, reasonHostnameConflict, "Gateways or Ingresses of other namespaces had the hostnames first"}
	}
}
