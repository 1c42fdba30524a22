package networkpolicy

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// packet is the first packet of a connection, after translation of addresses.
// Its protocol is "" for one without ports.
type packet struct {
	from, to netip.Addr
	protocol v1.Protocol
	port     uint16
}

// permits says what a backend does with a packet.
func (r Rules) permits(p packet) bool {
	if p.from == p.to {
		return true
	}
	passes := func(policies []types.NamespacedName, rules func(*Policy) []Rule, peer netip.Addr) bool {
		if policies == nil {
			return true
		}
		for _, name := range policies {
			if slices.ContainsFunc(rules(r.Policies[name]), func(rule Rule) bool { return r.matches(rule, peer, p) }) {
				return true
			}
		}
		return false
	}
	return passes(r.Pods[p.from].Egress, func(p *Policy) []Rule { return p.Egress }, p.to) &&
		passes(r.Pods[p.to].Ingress, func(p *Policy) []Rule { return p.Ingress }, p.from)
}

func (r Rules) matches(rule Rule, peer netip.Addr, p packet) bool {
	peers := rule.AnyPeer ||
		slices.ContainsFunc(rule.Groups, func(g Group) bool { return r.Groups[g].Has(peer) }) ||
		slices.ContainsFunc(rule.Blocks, func(b Block) bool { return b.From.Compare(peer) <= 0 && peer.Compare(b.To) <= 0 })
	ports := rule.AnyPort ||
		slices.ContainsFunc(rule.Ports, func(q Ports) bool {
			return q.Protocol == p.protocol && q.From <= p.port && p.port <= q.To
		}) ||
		slices.ContainsFunc(rule.Named, func(n NamedPort) bool {
			return r.Ports[n].Has(netip.AddrPortFrom(p.to, p.port)) && n.Protocol == p.protocol
		})
	return peers && ports
}

// world are objects of the API, and an oracle that reads the specification of
// NetworkPolicy word by word.
type world struct {
	node       string
	pods       map[string]*v1.Pod
	namespaces map[string]*v1.Namespace
	policies   map[string]*networkingv1.NetworkPolicy
	// closed are the addresses of isolated pods of the node that are gone.
	closed map[string]bool
}

// leave closes the address of a pod that is about to change into another one, nil
// for none, if it was isolated and has no address any more: its processes may
// still run.
func (w *world) leave(old, next *v1.Pod) {
	if old == nil || w.podAt(netip.MustParseAddr(cmp.Or(old.Status.PodIP, "0.0.0.0"))) != old || old.Spec.NodeName != w.node {
		return
	}
	if next != nil && !next.Spec.HostNetwork && next.Status.Phase != v1.PodFailed {
		return
	}
	for _, policy := range w.policies {
		if policy.Namespace == old.Namespace && labelled(&policy.Spec.PodSelector, old.Labels) {
			w.closed[old.Status.PodIP] = true
		}
	}
}

func (w *world) podAt(a netip.Addr) *v1.Pod {
	for _, p := range w.pods {
		if !p.Spec.HostNetwork && p.Status.Phase != v1.PodFailed && p.Status.Phase != v1.PodSucceeded && p.Status.PodIP == a.String() {
			return p
		}
	}
	return nil
}

func (w *world) permits(p packet) bool {
	return p.from == p.to || w.passes(p, networkingv1.PolicyTypeEgress) && w.passes(p, networkingv1.PolicyTypeIngress)
}

func (w *world) passes(p packet, direction networkingv1.PolicyType) bool {
	subject, peer := p.to, p.from
	if direction == networkingv1.PolicyTypeEgress {
		subject, peer = p.from, p.to
	}
	pod := w.podAt(subject)
	if pod == nil && w.closed[subject.String()] {
		return false
	}
	if pod == nil || pod.Spec.NodeName != w.node {
		return true
	}
	isolated := false
	for _, policy := range w.policies {
		if policy.Namespace != pod.Namespace || !labelled(&policy.Spec.PodSelector, pod.Labels) || !slices.Contains(policy.Spec.PolicyTypes, direction) {
			continue
		}
		isolated = true
		if direction == networkingv1.PolicyTypeIngress {
			for _, r := range policy.Spec.Ingress {
				if w.isPeer(policy, r.From, peer) && w.isPort(r.Ports, p) {
					return true
				}
			}
			continue
		}
		for _, r := range policy.Spec.Egress {
			if w.isPeer(policy, r.To, peer) && w.isPort(r.Ports, p) {
				return true
			}
		}
	}
	return !isolated
}

func (w *world) isPeer(policy *networkingv1.NetworkPolicy, peers []networkingv1.NetworkPolicyPeer, a netip.Addr) bool {
	if len(peers) == 0 {
		return true
	}
	pod := w.podAt(a)
	for _, peer := range peers {
		if peer.IPBlock != nil {
			within := func(cidr string) bool {
				_, n, _ := net.ParseCIDR(cidr)
				return n.Contains(a.AsSlice())
			}
			if within(peer.IPBlock.CIDR) && !slices.ContainsFunc(peer.IPBlock.Except, within) {
				return true
			}
			continue
		}
		if pod == nil {
			continue
		}
		if peer.NamespaceSelector == nil {
			if pod.Namespace != policy.Namespace {
				continue
			}
		} else if n := w.namespaces[pod.Namespace]; n == nil || !labelled(peer.NamespaceSelector, n.Labels) {
			continue
		}
		if peer.PodSelector == nil || labelled(peer.PodSelector, pod.Labels) {
			return true
		}
	}
	return false
}

func (w *world) isPort(ports []networkingv1.NetworkPolicyPort, p packet) bool {
	if len(ports) == 0 {
		return true
	}
	for _, port := range ports {
		if *port.Protocol != p.protocol {
			continue
		}
		switch {
		case port.Port == nil:
			return true
		case port.Port.Type == intstr.String:
			if pod := w.podAt(p.to); pod != nil {
				for _, c := range pod.Spec.Containers {
					for _, named := range c.Ports {
						if named.Name == port.Port.StrVal && named.Protocol == p.protocol && named.ContainerPort == int32(p.port) {
							return true
						}
					}
				}
			}
		case port.EndPort != nil:
			if port.Port.IntVal <= int32(p.port) && int32(p.port) <= *port.EndPort {
				return true
			}
		case port.Port.IntVal == int32(p.port):
			return true
		}
	}
	return false
}

func labelled(s *metav1.LabelSelector, labels map[string]string) bool {
	for k, v := range s.MatchLabels {
		if found, ok := labels[k]; !ok || found != v {
			return false
		}
	}
	for _, e := range s.MatchExpressions {
		found, ok := labels[e.Key]
		switch e.Operator {
		case metav1.LabelSelectorOpIn:
			if !ok || !slices.Contains(e.Values, found) {
				return false
			}
		case metav1.LabelSelectorOpNotIn:
			if ok && slices.Contains(e.Values, found) {
				return false
			}
		case metav1.LabelSelectorOpExists:
			if !ok {
				return false
			}
		case metav1.LabelSelectorOpDoesNotExist:
			if ok {
				return false
			}
		}
	}
	return true
}

// chooser makes random objects.
type chooser struct{ *rand.Rand }

func pick[T any](c chooser, of ...T) T { return of[c.IntN(len(of))] }

func (c chooser) labels() map[string]string {
	out := map[string]string{}
	for _, k := range []string{"a", "b"} {
		if v := pick(c, "", "1", "2"); v != "" {
			out[k] = v
		}
	}
	return out
}

func (c chooser) selector() *metav1.LabelSelector {
	switch c.IntN(4) {
	case 0:
		return nil
	case 1:
		return &metav1.LabelSelector{}
	case 2:
		return &metav1.LabelSelector{MatchLabels: c.labels()}
	}
	op := pick(c, metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist)
	e := metav1.LabelSelectorRequirement{Key: pick(c, "a", "b"), Operator: op}
	if op == metav1.LabelSelectorOpIn || op == metav1.LabelSelectorOpNotIn {
		e.Values = pick(c, []string{"1"}, []string{"1", "2"})
	}
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{e}}
}

func (c chooser) peers() []networkingv1.NetworkPolicyPeer {
	var out []networkingv1.NetworkPolicyPeer
	for range c.IntN(3) {
		peer := networkingv1.NetworkPolicyPeer{PodSelector: c.selector(), NamespaceSelector: c.selector()}
		if peer.PodSelector == nil && peer.NamespaceSelector == nil {
			peer.IPBlock = pick(c,
				&networkingv1.IPBlock{CIDR: "0.0.0.0/0", Except: []string{"10.1.0.0/29", "192.0.2.0/24"}},
				&networkingv1.IPBlock{CIDR: "10.1.0.0/24", Except: []string{"10.1.0.2/32", "10.1.0.4/31"}},
				&networkingv1.IPBlock{CIDR: "192.0.2.7/32"},
				&networkingv1.IPBlock{CIDR: "128.0.0.0/1", Except: []string{"192.0.2.0/25", "255.255.255.255/32"}},
			)
		}
		out = append(out, peer)
	}
	return out
}

func (c chooser) ports() []networkingv1.NetworkPolicyPort {
	var out []networkingv1.NetworkPolicyPort
	for range c.IntN(3) {
		p := networkingv1.NetworkPolicyPort{Protocol: new(pick(c, v1.ProtocolTCP, v1.ProtocolUDP))}
		switch c.IntN(4) {
		case 0:
		case 1:
			p.Port = new(intstr.FromString(pick(c, "http", "other")))
		case 2:
			p.Port = new(intstr.FromInt32(int32(pick(c, 80, 81, 8080))))
		default:
			p.Port, p.EndPort = new(intstr.FromInt32(int32(pick(c, 1, 80)))), new(int32(pick(c, 80, 81, 65535)))
		}
		out = append(out, p)
	}
	return out
}

func (c chooser) policy(name string) *networkingv1.NetworkPolicy {
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: pick(c, "x", "y"), Name: name}}
	if s := c.selector(); s != nil {
		p.Spec.PodSelector = *s
	}
	for range c.IntN(3) {
		p.Spec.Ingress = append(p.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: c.peers(), Ports: c.ports()})
	}
	for range c.IntN(3) {
		p.Spec.Egress = append(p.Spec.Egress, networkingv1.NetworkPolicyEgressRule{To: c.peers(), Ports: c.ports()})
	}
	p.Spec.PolicyTypes = pick(c,
		[]networkingv1.PolicyType{networkingv1.PolicyTypeIngress}, []networkingv1.PolicyType{networkingv1.PolicyTypeEgress},
		[]networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress})
	return p
}

func (c chooser) pod(i int) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: []string{"x", "y", "z"}[i%3], Name: fmt.Sprint("p", i), UID: types.UID(fmt.Sprint(i)), Labels: c.labels(),
		CreationTimestamp: metav1.NewTime(time.Unix(int64(i), 0)),
	}}
	p.Spec.NodeName, p.Spec.HostNetwork = pick(c, "here", "here", "elsewhere"), c.IntN(8) == 0
	p.Status.Phase = pick(c, v1.PodRunning, v1.PodRunning, v1.PodRunning, v1.PodFailed)
	if c.IntN(6) > 0 {
		p.Status.PodIP = fmt.Sprintf("10.1.0.%d", i)
		p.Status.PodIPs = []v1.PodIP{{IP: p.Status.PodIP}}
	}
	if c.IntN(2) == 0 {
		p.Spec.Containers = []v1.Container{{Ports: []v1.ContainerPort{{Name: "http", Protocol: v1.ProtocolTCP, ContainerPort: int32(pick(c, 80, 8080))}}}}
	}
	return p
}

// change makes a random change of the world and tells the state.
func (w *world) change(c chooser, s *state) string {
	name := fmt.Sprint("n", c.IntN(5))
	switch c.IntN(6) {
	case 0, 1:
		if old := w.policies[name]; old != nil {
			delete(w.policies, name)
			s.deletePolicy(old)
			return "delete policy " + name
		}
		w.policies[name] = c.policy(name)
		s.setPolicy(w.policies[name])
		return "policy " + w.policies[name].String()
	case 2:
		n := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: pick(c, "x", "y", "z"), Labels: c.labels()}}
		if old := w.namespaces[n.Name]; old != nil && c.IntN(4) == 0 {
			delete(w.namespaces, n.Name)
			s.deleteNamespace(old)
			return "delete namespace " + n.Name
		}
		w.namespaces[n.Name] = n
		s.setNamespace(n)
		return fmt.Sprintf("namespace %s %v", n.Name, n.Labels)
	}
	p := c.pod(1 + c.IntN(7))
	if old := w.pods[p.Name]; old != nil && c.IntN(4) == 0 {
		w.leave(old, nil)
		delete(w.pods, p.Name)
		s.deletePod(old)
		return "delete pod " + p.Name
	}
	w.leave(w.pods[p.Name], p)
	w.pods[p.Name] = p
	s.setPod(p)
	return fmt.Sprintf("pod %s/%s %v host=%v node=%s ip=%s %s", p.Namespace, p.Name, p.Labels, p.Spec.HostNetwork, p.Spec.NodeName, p.Status.PodIP, p.Status.Phase)
}

// TestRandomPolicies compares the Rules after random changes with what the
// specification says of each packet.
func TestRandomPolicies(t *testing.T) {
	for range 100 {
		seed := rand.Uint64()
		c := chooser{rand.New(rand.NewPCG(seed, 0))}
		w := &world{"here", map[string]*v1.Pod{}, map[string]*v1.Namespace{}, map[string]*networkingv1.NetworkPolicy{}, map[string]bool{}}
		s := newState("here")
		var history []string
		for range 40 {
			history = append(history, w.change(c, s))
			if c.IntN(3) == 0 { // several changes are computed together
				continue
			}
			rules, _ := s.rules()
			var addresses []netip.Addr
			for i := range 8 {
				addresses = append(addresses, netip.AddrFrom4([4]byte{10, 1, 0, byte(i)}))
			}
			addresses = append(addresses, netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("192.0.2.200"), netip.MustParseAddr("255.255.255.255"))
			for _, from := range addresses {
				for _, to := range addresses {
					for _, protocol := range []v1.Protocol{v1.ProtocolTCP, v1.ProtocolUDP, ""} {
						for _, port := range []uint16{79, 80, 81, 8080} {
							p := packet{from, to, protocol, port}
							if got, want := rules.permits(p), w.permits(p); got != want {
								t.Fatalf("seed %d: %v: permitted %v, want %v, after\n%s", seed, p, got, want, strings.Join(history, "\n"))
							}
						}
					}
				}
			}
		}
	}
}
