package servicelb

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/nodestatus"
	"github.com/coracle-io/coracle/internal/order"
	"github.com/coracle-io/coracle/internal/podquery"
)

// port is a port of a node's addresses.
type port struct {
	number   int32
	protocol v1.Protocol
}

func (p port) String() string { return fmt.Sprintf("%d/%s", p.number, p.protocol) }

// node is a node whose addresses Services may have.
type node struct {
	name      string
	addresses []netip.Addr
	// hostPorts are the ports that pods of the node have.
	hostPorts map[port]bool
}

// service is a Service that this controller gives addresses.
type service struct {
	*v1.Service
	// local are the nodes with a ready endpoint, if the Service's external traffic
	// policy admits only these.
	local map[string]bool
	// held are the addresses that a Service of pools has.
	held []netip.Addr
	// kept says that a Service keeps the addresses of nodes though a pool is for it.
	kept bool
}

// assignment holds the addresses that a Service gets, or the reason why it gets
// none.
type assignment struct {
	addresses []netip.Addr
	problem   string // why there are no addresses, or not all; "" if there are
	// pooled says that the addresses are from pools, and released why the Service
	// loses some of those that it had.
	pooled   bool
	released []string
	kept     bool // as of service
}

// plan decides which addresses each Service gets: those of all nodes on which none
// of its ports is taken. An older Service has precedence over a younger one.
// nodePorts are those of all Services, reserved ports those on which the cluster
// serves.
func plan(services []service, nodes []node, nodePorts map[port]*v1.Service, reserved []int) map[controller.Key]assignment {
	services = slices.Clone(services)
	slices.SortFunc(services, func(a, b service) int { return order.ByAge(a.Service, b.Service) })
	taken := map[string]map[port]*v1.Service{}
	for _, n := range nodes {
		taken[n.name] = map[port]*v1.Service{}
	}
	assignments := map[controller.Key]assignment{}
	for _, s := range services {
		a := assignment{kept: s.kept}
		for _, n := range nodes {
			addresses := n.in(s.Spec.IPFamilies)
			if len(addresses) == 0 || s.local != nil && !s.local[n.name] {
				continue
			}
			if obstacle := obstacleOn(n, s.Service, taken[n.name], nodePorts, reserved); obstacle != "" {
				a.problem = cmp.Or(a.problem, obstacle)
				continue
			}
			for _, p := range ports(s.Service) {
				taken[n.name][p] = s.Service
			}
			a.addresses = append(a.addresses, addresses...)
		}
		switch {
		case len(a.addresses) > 0:
			a.problem = ""
		case a.problem == "" && s.local != nil && len(s.local) == 0:
			a.problem = "externalTrafficPolicy is Local, and no node has a ready endpoint"
		case a.problem == "":
			a.problem = "no node has an address for it"
		}
		assignments[controller.Key{Namespace: s.Namespace, Name: s.Name}] = a
	}
	return assignments
}

// obstacleOn returns why a Service cannot have a node's addresses; "" if it can.
func obstacleOn(n node, s *v1.Service, taken, nodePorts map[port]*v1.Service, reserved []int) string {
	for _, p := range ports(s) {
		owner, byNodePort := taken[p], nodePorts[p]
		switch {
		case slices.Contains(reserved, int(p.number)):
			return fmt.Sprintf("the cluster itself uses port %d", p.number)
		case owner != nil && owner.Namespace == s.Namespace:
			return fmt.Sprintf("port %v is that of Service %s, which is older", p, owner.Name)
		case owner != nil:
			return fmt.Sprintf("port %v is that of an older Service in another namespace", p)
		// Their range is that of node ports, whatever is older.
		case byNodePort != nil && order.ByAge(byNodePort, s) != 0 && byNodePort.Namespace == s.Namespace:
			return fmt.Sprintf("port %v is a node port of Service %s", p, byNodePort.Name)
		case byNodePort != nil && order.ByAge(byNodePort, s) != 0:
			return fmt.Sprintf("port %v is a node port of a Service in another namespace", p)
		case n.hostPorts[p]:
			return fmt.Sprintf("port %v is a host port of a pod on node %s", p, n.name)
		}
	}
	return ""
}

func ports(s *v1.Service) []port {
	var list []port
	for _, p := range s.Spec.Ports {
		list = append(list, port{p.Port, cmp.Or(p.Protocol, v1.ProtocolTCP)})
	}
	return list
}

// nodePortsOf returns the node ports of a Service, which may be nil, and the port
// of its health check.
func nodePortsOf(s *v1.Service) []port {
	if s == nil {
		return nil
	}
	var list []port
	for _, p := range s.Spec.Ports {
		if p.NodePort > 0 {
			list = append(list, port{p.NodePort, cmp.Or(p.Protocol, v1.ProtocolTCP)})
		}
	}
	if s.Spec.HealthCheckNodePort > 0 {
		list = append(list, port{s.Spec.HealthCheckNodePort, v1.ProtocolTCP})
	}
	return list
}

// in returns the node's addresses of the families.
func (n node) in(families []v1.IPFamily) []netip.Addr {
	var list []netip.Addr
	for _, a := range n.addresses {
		family := v1.IPv6Protocol
		if a.Is4() {
			family = v1.IPv4Protocol
		}
		if slices.Contains(families, family) {
			list = append(list, a)
		}
	}
	return list
}

// usable returns the nodes whose addresses Services may have, by name. Nodes with
// the label node.kubernetes.io/exclude-from-external-load-balancers are none of
// them. Nodes that are not ready are left out if any other is ready: with a single
// node, Services keep its address while its kubelet restarts.
func usable(nodes []*v1.Node, hostPorts func(node string) map[port]bool) []node {
	candidates := slices.DeleteFunc(slices.Clone(nodes), func(n *v1.Node) bool {
		_, excluded := n.Labels[v1.LabelNodeExcludeBalancers]
		return excluded || n.DeletionTimestamp != nil || len(external(n)) == 0
	})
	ready := func(n *v1.Node) bool { return nodestatus.Ready(n) == v1.ConditionTrue }
	if slices.ContainsFunc(candidates, ready) {
		candidates = slices.DeleteFunc(candidates, func(n *v1.Node) bool { return !ready(n) })
	}
	slices.SortFunc(candidates, func(a, b *v1.Node) int { return cmp.Compare(a.Name, b.Name) })
	var list []node
	for _, n := range candidates {
		list = append(list, node{name: n.Name, addresses: external(n), hostPorts: hostPorts(n.Name)})
	}
	return list
}

// external returns the addresses at which clients outside of the cluster reach a
// node: the addresses of type ExternalIP or, if there are none, of type
// InternalIP.
func external(n *v1.Node) []netip.Addr {
	for _, kind := range []v1.NodeAddressType{v1.NodeExternalIP, v1.NodeInternalIP} {
		var list []netip.Addr
		for _, a := range n.Status.Addresses {
			if ip, err := netip.ParseAddr(a.Address); a.Type == kind && err == nil && !slices.Contains(list, ip.Unmap()) {
				list = append(list, ip.Unmap())
			}
		}
		if len(list) > 0 {
			return list
		}
	}
	return nil
}

// hostPortsOf returns the ports of its node that a pod has.
func hostPortsOf(pod *v1.Pod) []port {
	var list []port
	for p := range podquery.HostPorts(&pod.Spec) {
		if !p.Address.IsLoopback() { // which cannot meet traffic for the node's addresses
			list = append(list, port{p.Port, p.Protocol})
		}
	}
	return list
}

// ingress returns the addresses as they are in the status of a Service.
func (a assignment) ingress() []v1.LoadBalancerIngress {
	list := []v1.LoadBalancerIngress{}
	for _, ip := range a.addresses {
		list = append(list, v1.LoadBalancerIngress{IP: ip.String(), IPMode: new(v1.LoadBalancerIPModeVIP)})
	}
	return list
}

// separator is between the addresses in events and in Annotation.
const separator = ", "

func (a assignment) String() string {
	var texts []string
	for _, ip := range a.addresses {
		texts = append(texts, ip.String())
	}
	return strings.Join(texts, separator)
}
