//nolint:staticcheck // Endpoints are deprecated, and are still to be mirrored.
package endpointslicemirroring

import (
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	endpointsliceutil "k8s.io/endpointslice/util"
	"k8s.io/utils/net"
	"k8s.io/utils/ptr"
)

// leaderAnnotation marks Endpoints that are only a lock.
const leaderAnnotation = "control-plane.alpha.kubernetes.io/leader"

// mirrored says whether Endpoints ask for slices: they do unless they are
// labelled otherwise or are only a lock.
func mirrored(e *v1.Endpoints) bool {
	_, lock := e.Annotations[leaderAnnotation]
	return !lock && e.Labels[discovery.LabelSkipMirror] != "true"
}

// skipped counts the addresses that cannot be mirrored.
type skipped struct{ invalid, surplus int }

// group is what one or more slices say: addresses of one family behind the
// same ports.
type group struct {
	family    discovery.AddressType
	ports     []discovery.EndpointPort
	endpoints []discovery.Endpoint
}

// groupsOf sorts the addresses of Endpoints by family and ports, at most most
// of each subset, ready ones first.
func groupsOf(e *v1.Endpoints, most int) (groups []*group, skip skipped) {
	type key struct {
		family discovery.AddressType
		ports  endpointsliceutil.PortMapKey
	}
	of := map[key]*group{}
	for _, subset := range e.Subsets {
		ports := portsOf(subset.Ports)
		hash := endpointsliceutil.NewPortMapKey(slices.Clone(ports))
		taken := 0
		take := func(addresses []v1.EndpointAddress, ready bool) {
			for _, a := range addresses {
				family := discovery.AddressTypeIPv4
				switch net.IPFamilyOfString(a.IP) {
				case net.IPv6:
					family = discovery.AddressTypeIPv6
				case net.IPFamilyUnknown:
					skip.invalid++
					continue
				}
				if taken == most {
					skip.surplus++
					continue
				}
				taken++
				k := key{family, hash}
				if of[k] == nil {
					of[k] = &group{family: family, ports: ports}
					groups = append(groups, of[k])
				}
				of[k].add(endpointOf(a, ready))
			}
		}
		take(subset.Addresses, true)
		take(subset.NotReadyAddresses, false)
	}
	return groups, skip
}

// add adds an endpoint unless its address is there already.
func (g *group) add(e discovery.Endpoint) {
	if !slices.ContainsFunc(g.endpoints, func(o discovery.Endpoint) bool { return o.Addresses[0] == e.Addresses[0] }) {
		g.endpoints = append(g.endpoints, e)
	}
}

func endpointOf(a v1.EndpointAddress, ready bool) discovery.Endpoint {
	e := discovery.Endpoint{
		Addresses:  []string{a.IP},
		Conditions: discovery.EndpointConditions{Ready: &ready},
		TargetRef:  a.TargetRef,
		NodeName:   a.NodeName,
	}
	if a.Hostname != "" {
		e.Hostname = ptr.To(a.Hostname)
	}
	return e
}

func portsOf(ports []v1.EndpointPort) []discovery.EndpointPort {
	out := make([]discovery.EndpointPort, 0, len(ports))
	for _, p := range ports {
		out = append(out, discovery.EndpointPort{
			Name: ptr.To(p.Name), Port: ptr.To(p.Port), Protocol: ptr.To(p.Protocol), AppProtocol: p.AppProtocol,
		})
	}
	return out
}

// plan says which slices to write so that they mirror the groups, changing as
// few as possible: a group keeps the slices that have its family and ports.
func plan(e *v1.Endpoints, groups []*group, existing []*discovery.EndpointSlice, most int) (create, update, remove []*discovery.EndpointSlice) {
	left := slices.Clone(existing)
	slices.SortFunc(left, func(a, b *discovery.EndpointSlice) int { return strings.Compare(a.Name, b.Name) })
	for _, g := range groups {
		for chunk := range slices.Chunk(g.endpoints, most) {
			want := sliceOf(e, g, chunk)
			i := slices.IndexFunc(left, func(s *discovery.EndpointSlice) bool {
				return s.AddressType == g.family && equality.Semantic.DeepEqual(s.Ports, g.ports)
			})
			if i < 0 {
				create = append(create, want)
				continue
			}
			have := left[i]
			left = slices.Delete(left, i, i+1)
			if same(have, want) {
				continue
			}
			next := have.DeepCopy()
			next.Labels, next.Annotations, next.OwnerReferences = want.Labels, want.Annotations, want.OwnerReferences
			next.Ports, next.Endpoints = want.Ports, want.Endpoints
			update = append(update, next)
		}
	}
	return create, update, left
}

func same(have, want *discovery.EndpointSlice) bool {
	return maps.Equal(have.Labels, want.Labels) && maps.Equal(have.Annotations, want.Annotations) &&
		equality.Semantic.DeepEqual(have.OwnerReferences, want.OwnerReferences) &&
		equality.Semantic.DeepEqual(have.Endpoints, want.Endpoints)
}

// sliceOf is a new slice of Endpoints: it bears their labels and annotations
// and goes with them.
func sliceOf(e *v1.Endpoints, g *group, endpoints []discovery.Endpoint) *discovery.EndpointSlice {
	s := &discovery.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       e.Namespace,
			GenerateName:    e.Name + "-",
			Labels:          map[string]string{},
			Annotations:     map[string]string{},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(e, v1.SchemeGroupVersion.WithKind("Endpoints"))},
		},
		AddressType: g.family, Ports: g.ports, Endpoints: endpoints,
	}
	maps.Copy(s.Labels, e.Labels)
	delete(s.Labels, v1.IsHeadlessService)
	s.Labels[discovery.LabelServiceName] = e.Name
	s.Labels[discovery.LabelManagedBy] = managedBy
	maps.Copy(s.Annotations, e.Annotations)
	delete(s.Annotations, v1.LastAppliedConfigAnnotation)
	return s
}
