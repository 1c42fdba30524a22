//nolint:staticcheck // Endpoints are deprecated but must be mirrored.
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

// leaderAnnotation marks Endpoints that are only a leader election lock.
const leaderAnnotation = "control-plane.alpha.kubernetes.io/leader"

// mirrored reports whether Endpoints must be mirrored, which is the case unless they have the
// label skip-mirror or are only a lock.
func mirrored(e *v1.Endpoints) bool {
	_, lock := e.Annotations[leaderAnnotation]
	return !lock && e.Labels[discovery.LabelSkipMirror] != "true"
}

// skipped counts the addresses that cannot be mirrored.
type skipped struct{ invalid, excess int }

// group is the content of one or more slices: endpoints of one IP family with the same ports.
type group struct {
	family    discovery.AddressType
	ports     []discovery.EndpointPort
	endpoints []discovery.Endpoint
}

// groupsOf groups the addresses of Endpoints by family and ports. It uses at most limit addresses
// of each subset, ready ones first.
func groupsOf(e *v1.Endpoints, limit int) (groups []*group, skip skipped) {
	type key struct {
		family discovery.AddressType
		ports  endpointsliceutil.PortMapKey
	}
	of := map[key]*group{}
	for _, subset := range e.Subsets {
		ports := portsOf(subset.Ports)
		hash := endpointsliceutil.NewPortMapKey(slices.Clone(ports))
		used := 0
		add := func(addresses []v1.EndpointAddress, ready bool) {
			for _, a := range addresses {
				family := discovery.AddressTypeIPv4
				switch net.IPFamilyOfString(a.IP) {
				case net.IPv6:
					family = discovery.AddressTypeIPv6
				case net.IPFamilyUnknown:
					skip.invalid++
					continue
				}
				if used == limit {
					skip.excess++
					continue
				}
				used++
				k := key{family, hash}
				if of[k] == nil {
					of[k] = &group{family: family, ports: ports}
					groups = append(groups, of[k])
				}
				of[k].add(endpointOf(a, ready))
			}
		}
		add(subset.Addresses, true)
		add(subset.NotReadyAddresses, false)
	}
	return groups, skip
}

// add adds an endpoint unless the group already has its address.
func (g *group) add(e discovery.Endpoint) {
	if !slices.ContainsFunc(g.endpoints, func(o discovery.Endpoint) bool { return o.Addresses[0] == e.Addresses[0] }) {
		g.endpoints = append(g.endpoints, e)
	}
}

// endpointOf returns the endpoint of a valid address. Slices have addresses in the canonical
// notation, Endpoints may have others.
func endpointOf(a v1.EndpointAddress, ready bool) discovery.Endpoint {
	e := discovery.Endpoint{
		Addresses:  []string{net.ParseIPSloppy(a.IP).String()},
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

// plan decides which slices to create, update and remove so that they mirror the groups. A group
// reuses the slices with its family and ports, so that few slices change, except slices that are
// being deleted. limit is the maximum number of endpoints in a slice.
func plan(e *v1.Endpoints, groups []*group, existing []*discovery.EndpointSlice, limit int) (create, update, remove []*discovery.EndpointSlice) {
	left := slices.DeleteFunc(slices.Clone(existing), func(s *discovery.EndpointSlice) bool { return s.DeletionTimestamp != nil })
	slices.SortFunc(left, func(a, b *discovery.EndpointSlice) int { return strings.Compare(a.Name, b.Name) })
	for _, g := range groups {
		for chunk := range slices.Chunk(g.endpoints, limit) {
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

// sliceOf returns a new slice for Endpoints. It has their labels and annotations, and they are its
// owner.
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
