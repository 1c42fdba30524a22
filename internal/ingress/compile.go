package ingress

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/ingress/gateway"
	"github.com/coracle-io/coracle/internal/ingress/table"
	"github.com/coracle-io/coracle/internal/order"
)

// Bounds on what one namespace can add to the table.
const (
	maxHostsOfNamespace        = 5000
	maxPathsOfNamespace        = 5000
	maxCertificatesOfNamespace = 1000
	// maxPathLength bounds the path of a rule, in bytes.
	maxPathLength = 1024
	// maxProblems bounds the problems of an Ingress that are told of, and maxMessage the
	// message of one, in bytes.
	maxProblems, maxMessage = 10, 800
)

// source is what a table is made of. Its objects are shared and must not be changed.
type source struct {
	// ingresses are those of this controller.
	ingresses   []*networkingv1.Ingress
	service     func(namespace, name string) *v1.Service // nil if there is none
	slices      func(namespace, service string) []*discoveryv1.EndpointSlice
	isPod       func(namespace string, a netip.Addr) bool // whether a pod of a namespace has an address
	certificate func(namespace, secret string) (*tls.Certificate, error)
	// gateways are the objects of the Gateway API. Its backends are those of the above.
	gateways gateway.Source
}

// problem is why a part of an Ingress has no effect, for an event.
type problem struct{ reason, message string }

// Reasons of problems.
const (
	hostConflict       = "HostConflict"
	pathConflict       = "PathConflict"
	invalidPath        = "InvalidPath"
	invalidAnnotation  = "InvalidAnnotation"
	unsupportedBackend = "UnsupportedBackend"
	backendNotFound    = "BackendNotFound"
	invalidCertificate = "InvalidCertificate"
	tooMany            = "TooMany"
)

// compile returns the table of a source with its backends, the problems of each Ingress, and
// what becomes of Gateways. Between Ingresses, the oldest wins: a host belongs to the namespace whose
// Ingress or Gateway has it first, and a path of it to the Ingress.
func compile(s source) (*table.Table, backends, map[types.UID][]problem, *gateway.Plan) {
	c := &compiler{
		source: s, owners: map[string]string{}, hosts: map[string]map[string]bool{}, backends: backends{},
		paths: map[string]int{}, certificates: map[string]int{}, problems: map[types.UID][]problem{},
	}
	oldest := slices.SortedFunc(slices.Values(s.ingresses), order.ByAge)
	c.gateways.Backend, c.gateways.Certificate = c.gatewayBackend, s.certificate
	plan := gateway.Compile(&c.gateways)
	c.own(oldest, plan.Claims)
	plan.Add(&c.table, func(host string) string { return c.owners[host] })
	for _, i := range oldest {
		c.add(i)
	}
	return c.table.Table(), c.backends, c.problems, plan
}

// own gives each host to the namespace that has it first. Those of an Ingress that are too
// many for its namespace are nobody's.
func (c *compiler) own(oldest []*networkingv1.Ingress, claims []gateway.Claim) {
	for _, i := range oldest {
		for _, host := range hostsOf(i) {
			if c.isNew(i.Namespace, host) {
				claims = append(claims, gateway.Claim{Host: host, Namespace: i.Namespace, Since: i.CreationTimestamp.Time})
			}
		}
	}
	slices.SortStableFunc(claims, func(a, b gateway.Claim) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Namespace, b.Namespace))
	})
	for _, claim := range claims {
		if _, known := c.owners[claim.Host]; !known {
			c.owners[claim.Host] = claim.Namespace
			c.table.Own(claim.Host, claim.Namespace)
		}
	}
}

// isNew reports whether a host is one more of the Ingresses of a namespace, and counts it.
func (c *compiler) isNew(namespace, host string) bool {
	hosts := c.hosts[namespace]
	if hosts[host] || len(hosts) == maxHostsOfNamespace {
		return false
	}
	if hosts == nil {
		hosts = map[string]bool{}
		c.hosts[namespace] = hosts
	}
	hosts[host] = true
	return true
}

type compiler struct {
	source
	table    table.Builder
	owners   map[string]string          // the namespace of each host
	hosts    map[string]map[string]bool // of the Ingresses of each namespace
	backends backends
	problems map[types.UID][]problem

	paths, certificates map[string]int // how many a namespace has
}

// allHosts is the host of rules that name none.
const allHosts = ""

// hostsOf returns the hosts that an Ingress wants, in lower case.
func hostsOf(i *networkingv1.Ingress) []string {
	var hosts []string
	for _, rule := range i.Spec.Rules {
		hosts = append(hosts, strings.ToLower(rule.Host))
	}
	for _, t := range i.Spec.TLS {
		for _, host := range t.Hosts {
			hosts = append(hosts, strings.ToLower(host))
		}
	}
	if i.Spec.DefaultBackend != nil && len(i.Spec.Rules) == 0 {
		hosts = append(hosts, allHosts)
	}
	return hosts
}

// shown returns a host for people.
func shown(host string) string {
	if host == allHosts {
		return "all hosts"
	}
	return "host " + host
}

func (c *compiler) report(i *networkingv1.Ingress, reason, format string, args ...any) {
	if len(c.problems[i.UID]) == maxProblems {
		return
	}
	p := problem{reason, fmt.Sprintf(format, args...)}
	if len(p.message) > maxMessage {
		p.message = strings.ToValidUTF8(p.message[:maxMessage], "") + "..."
	}
	if !slices.Contains(c.problems[i.UID], p) {
		c.problems[i.UID] = append(c.problems[i.UID], p)
	}
}

// owns reports whether an Ingress may have rules for a host. If not, that is a problem.
// The message does not name the other namespace, which is not the user's.
func (c *compiler) owns(i *networkingv1.Ingress, host string) bool {
	switch owner, known := c.owners[host]; {
	case owner == i.Namespace:
		return true
	case known:
		c.report(i, hostConflict, "%s: an older Ingress or Gateway of another namespace has it", shown(host))
	default:
		c.report(i, tooMany, "the Ingresses of the namespace have more than %d hosts: those of the newest have no effect", maxHostsOfNamespace)
	}
	return false
}

// add adds the rules and certificates of an Ingress.
func (c *compiler) add(i *networkingv1.Ingress) {
	settings, err := parseAnnotations(i.Annotations)
	if err != nil {
		c.report(i, invalidAnnotation, "%v", err)
	}
	for _, rule := range i.Spec.Rules {
		host := strings.ToLower(rule.Host)
		if rule.HTTP == nil || !c.owns(i, host) {
			continue
		}
		for k := range rule.HTTP.Paths {
			c.addPath(i, settings, host, &rule.HTTP.Paths[k])
		}
	}
	if i.Spec.DefaultBackend != nil {
		c.addDefault(i, settings)
	}
	for k := range i.Spec.TLS {
		c.addCertificate(i, &i.Spec.TLS[k])
	}
}

func (c *compiler) addPath(i *networkingv1.Ingress, settings table.Route, host string, rule *networkingv1.HTTPIngressPath) {
	text := cmp.Or(rule.Path, "/")
	if len(text) > maxPathLength {
		c.report(i, invalidPath, "path %.40s... of %s: it is longer than %d bytes", text, shown(host), maxPathLength)
		return
	}
	path, err := table.ParsePath(text)
	if err != nil {
		c.report(i, invalidPath, "%s: %v", shown(host), err)
		return
	}
	if c.paths[i.Namespace]++; c.paths[i.Namespace] > maxPathsOfNamespace {
		c.report(i, tooMany, "the Ingresses of the namespace have more than %d paths: those of the newest have no effect", maxPathsOfNamespace)
		return
	}
	kind := table.Prefix // also if it is up to the implementation
	if ptr.Deref(rule.PathType, "") == networkingv1.PathTypeExact {
		kind = table.Exact
	}
	c.addRoute(i, settings, host, kind, path, &rule.Backend, "path "+text+" of "+shown(host))
}

// addDefault adds the default backend of an Ingress: for the hosts of its rules, and for
// all hosts unless an Ingress of another namespace has these.
func (c *compiler) addDefault(i *networkingv1.Ingress, settings table.Route) {
	hosts := []string{}
	for _, rule := range i.Spec.Rules {
		hosts = append(hosts, strings.ToLower(rule.Host))
	}
	if len(i.Spec.Rules) == 0 {
		hosts = append(hosts, allHosts)
	}
	slices.Sort(hosts)
	for _, host := range slices.Compact(hosts) {
		if c.owns(i, host) {
			c.addRoute(i, settings, host, table.Fallback, table.Path{}, i.Spec.DefaultBackend, "the default backend of "+shown(host))
		}
	}
	if owner, known := c.owners[allHosts]; len(i.Spec.Rules) > 0 && (!known || owner == i.Namespace) {
		if !known {
			c.owners[allHosts] = i.Namespace
			c.table.Own(allHosts, i.Namespace)
		}
		c.addRoute(i, settings, allHosts, table.Fallback, table.Path{}, i.Spec.DefaultBackend, "")
	}
}

// addRoute adds a route to a backend. what names its place for people; "" is a place
// that may be taken without a problem.
func (c *compiler) addRoute(i *networkingv1.Ingress, settings table.Route, host string, kind table.PathType, path table.Path, to *networkingv1.IngressBackend, what string) {
	route := settings
	route.Namespace, route.Name = i.Namespace, i.Name
	b := c.backend(i.Namespace, to)
	if b.problem != nil {
		c.report(i, b.problem.reason, "%s", b.problem.message)
	}
	// A route without endpoints answers 503. Without the route, another one might
	// answer, with something else.
	route.Targets = []table.Target{{Backend: b.Backend, Weight: 1}}
	taken := c.table.Add(host, kind, path, &route)
	if taken != nil && what != "" {
		by := "a rule before it"
		if taken.Name != i.Name {
			by = "the older Ingress " + taken.Name
		}
		c.report(i, pathConflict, "%s: %s has it", what, by)
	}
}

// addCertificate adds the certificate of an entry of spec.tls. Without hosts, it is for
// those of the rules.
func (c *compiler) addCertificate(i *networkingv1.Ingress, entry *networkingv1.IngressTLS) {
	if entry.SecretName == "" { // then the hosts have the default certificate
		return
	}
	names := slices.Clone(entry.Hosts)
	if len(names) == 0 {
		for _, rule := range i.Spec.Rules {
			names = append(names, rule.Host)
		}
	}
	var owned []string
	for _, name := range names {
		if name = strings.ToLower(name); c.owns(i, name) {
			owned = append(owned, name)
		}
	}
	if room := maxCertificatesOfNamespace - c.certificates[i.Namespace]; len(owned) > room {
		c.report(i, tooMany, "the Ingresses of the namespace have certificates for more than %d hosts: those of the newest have no effect", maxCertificatesOfNamespace)
		owned = owned[:room]
	}
	if len(owned) == 0 { // then the certificate is not read, which takes time
		return
	}
	c.certificates[i.Namespace] += len(owned)
	certificate, err := c.certificate(i.Namespace, entry.SecretName)
	if err != nil {
		c.report(i, invalidCertificate, "Secret %s: %v", entry.SecretName, err)
		return
	}
	for _, name := range owned {
		c.table.AddCertificate(name, certificate)
	}
}
