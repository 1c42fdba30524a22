package gateway

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// features returns the names of the supported features of the specification, sorted.
func features() []string {
	return []string{
		"GRPCRoute", "Gateway", "GatewayHTTPListenerIsolation", "HTTPRoute", "HTTPRoute303RedirectStatusCode", "HTTPRoute307RedirectStatusCode", "HTTPRoute308RedirectStatusCode",
		"HTTPRouteBackendProtocolH2C", "HTTPRouteBackendProtocolWebSocket", "HTTPRouteBackendTimeout", "HTTPRouteHostRewrite", "HTTPRouteMethodMatching",
		"HTTPRoutePathRedirect", "HTTPRoutePathRewrite", "HTTPRoutePortRedirect", "HTTPRouteQueryParamMatching", "HTTPRouteRequestTimeout",
		"HTTPRouteResponseHeaderModification", "HTTPRouteSchemeRedirect", "ReferenceGrant",
	}
}

// Status is the status that an object is to have.
type Status struct {
	Resource string // such as httproutes
	Object   metav1.ObjectMeta
	Value    any // its fields that are this controller's, for JSON
}

// Statuses returns the statuses that differ from those of the objects.
func (p *Plan) Statuses() []Status {
	var all []Status
	for _, c := range p.classes {
		want := ClassStatus{Conditions: conditions(c.Status.Conditions, c.Generation, "Accepted", verdict{true, reasonAccepted, "The class is served by the nodes of the cluster"})}
		for _, name := range features() {
			want.SupportedFeatures = append(want.SupportedFeatures, Feature{name})
		}
		if !equality.Semantic.DeepEqual(c.Status, want) {
			all = append(all, Status{"gatewayclasses", c.ObjectMeta, want})
		}
	}
	attached := p.attachedRoutes()
	for _, g := range p.gateways {
		if want := p.gatewayStatus(g, attached); !equality.Semantic.DeepEqual(g.Status, want) {
			all = append(all, Status{"gateways", g.ObjectMeta, want})
		}
	}
	for _, r := range p.routes {
		if want := r.status(); !equality.Semantic.DeepEqual(r.Status, want) {
			all = append(all, Status{strings.ToLower(r.Kind) + "s", r.ObjectMeta, want})
		}
	}
	return all
}

// conditions returns conditions with one that has another state, or is new.
func conditions(has []metav1.Condition, generation int64, kind string, v verdict) []metav1.Condition {
	status := metav1.ConditionFalse
	if v.ok {
		status = metav1.ConditionTrue
	}
	all := slices.Clone(has)
	meta.SetStatusCondition(&all, metav1.Condition{Type: kind, Status: status, ObservedGeneration: generation, Reason: v.reason, Message: v.message})
	return all
}

// attachedRoutes returns how many routes each listener has.
func (p *Plan) attachedRoutes() map[*listener]int32 {
	count := map[*listener]int32{}
	for _, r := range p.routes {
		of := map[*listener]bool{}
		for _, at := range r.parents {
			for _, a := range at.attached {
				of[a.listener] = of[a.listener] || at.accepted.ok
			}
		}
		for l, accepted := range of {
			if accepted {
				count[l]++
			}
		}
	}
	return count
}

// has returns the IP addresses in the status of a Gateway.
func (g *gateway) has() []string {
	var all []string
	for _, a := range g.Status.Addresses {
		if ptr.Deref(a.Type, "IPAddress") == "IPAddress" {
			all = append(all, a.Value)
		}
	}
	return all
}

// newAddresses returns the addresses that a Gateway is to have: those that it asks for, or
// all.
func (p *Plan) newAddresses(g *gateway) []Address {
	var wanted []string
	for _, a := range g.Spec.Addresses {
		if a.Value != "" {
			wanted = append(wanted, a.Value)
		}
	}
	all := []Address{}
	if !g.accepted.ok || !g.addresses.ok {
		return all
	}
	for _, a := range p.source.Addresses(g.has()) {
		if len(wanted) == 0 || slices.Contains(wanted, a) {
			all = append(all, Address{Type: new("IPAddress"), Value: a})
		}
	}
	return all
}

// gatewayStatus returns the status of a Gateway.
func (p *Plan) gatewayStatus(g *gateway, attached map[*listener]int32) GatewayStatus {
	s := GatewayStatus{Addresses: p.newAddresses(g), Listeners: []ListenerStatus{}}
	accepted := g.accepted
	if !slices.ContainsFunc(g.listeners, func(l *listener) bool { return l.accepted.ok }) {
		accepted.ok = false
		if g.accepted.ok {
			accepted.reason, accepted.message = reasonListenersNotValid, "No listener is valid"
		}
	}
	programmed := verdict{true, reasonProgrammed, "The Gateway is served at the addresses of its status"}
	excess := slices.IndexFunc(g.listeners, func(l *listener) bool { return l.accepted.reason == reasonTooMany })
	switch {
	case !accepted.ok && excess >= 0:
		programmed = verdict{false, reasonNoResources, g.listeners[excess].accepted.message}
	case !accepted.ok:
		programmed = verdict{false, reasonInvalid, accepted.message}
	case !g.addresses.ok:
		programmed = g.addresses
	case len(s.Addresses) == 0:
		programmed = verdict{false, reasonNoAddress, "No port of a node is open for Gateways; coracle status says why"}
	}
	s.Conditions = conditions(g.Status.Conditions, g.Generation, "Accepted", accepted)
	s.Conditions = conditions(s.Conditions, g.Generation, "Programmed", programmed)
	for _, l := range g.listeners {
		s.Listeners = append(s.Listeners, l.status(g, programmed, attached[l]))
	}
	return s
}

// status returns the status of a listener.
func (l *listener) status(g *gateway, programmed verdict, attached int32) ListenerStatus {
	s := ListenerStatus{Name: l.Name, SupportedKinds: []GroupKind{}, AttachedRoutes: attached}
	for _, k := range l.kinds {
		s.SupportedKinds = append(s.SupportedKinds, GroupKind{Group: new(Group), Kind: k})
	}
	switch {
	case !programmed.ok:
	case !l.accepted.ok:
		programmed = verdict{false, reasonInvalid, l.accepted.message}
	case l.secure && l.certificate == nil || len(l.kinds) == 0:
		programmed = verdict{false, reasonInvalid, l.resolved.message}
	default:
		programmed.message = "The listener is served"
	}
	var has []metav1.Condition
	for _, former := range g.Status.Listeners {
		if former.Name == l.Name {
			has = former.Conditions
		}
	}
	conflicted := l.conflict
	conflicted.ok = !l.conflict.ok
	s.Conditions = conditions(has, g.Generation, "Accepted", l.accepted)
	s.Conditions = conditions(s.Conditions, g.Generation, "Conflicted", conflicted)
	s.Conditions = conditions(s.Conditions, g.Generation, "ResolvedRefs", l.resolved)
	s.Conditions = conditions(s.Conditions, g.Generation, "Programmed", programmed)
	return s
}

// status returns the status of a route. Entries of other controllers stay.
func (r *route) status() RouteStatus {
	s := RouteStatus{Parents: []ParentStatus{}}
	written := map[*parent]bool{}
	entry := func(p *parent, has []metav1.Condition) {
		written[p] = true
		all := conditions(has, r.Generation, "Accepted", p.accepted)
		all = conditions(all, r.Generation, "ResolvedRefs", r.resolved)
		s.Parents = append(s.Parents, ParentStatus{p.ref, ControllerName, all})
	}
	for _, former := range r.Status.Parents {
		if former.ControllerName != ControllerName {
			s.Parents = append(s.Parents, former)
			continue
		}
		for _, p := range r.parents {
			if !written[p] && equality.Semantic.DeepEqual(p.ref, former.ParentRef) {
				entry(p, former.Conditions)
				break
			}
		}
	}
	for _, p := range r.parents {
		if !written[p] {
			entry(p, nil)
		}
	}
	return s
}
