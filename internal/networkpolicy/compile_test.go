package networkpolicy

import (
	"fmt"
	"maps"
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

	"github.com/coracle-io/coracle/internal/costtest"
)

func TestBlocks(t *testing.T) {
	for _, c := range []struct {
		cidr   string
		except []string
		want   string
	}{
		{"10.0.0.0/8", nil, "10.0.0.0-10.255.255.255"},
		{"0.0.0.0/0", nil, "0.0.0.0-255.255.255.255"},
		{"0.0.0.0/0", []string{"0.0.0.0/1"}, "128.0.0.0-255.255.255.255"},
		{"0.0.0.0/0", []string{"255.255.255.255/32"}, "0.0.0.0-255.255.255.254"},
		{"10.0.0.0/30", []string{"10.0.0.1/32", "10.0.0.2/32"}, "10.0.0.0-10.0.0.0 10.0.0.3-10.0.0.3"},
		{"10.0.0.0/24", []string{"10.0.0.128/25", "10.0.0.192/26"}, "10.0.0.0-10.0.0.127"},
		{"10.0.0.0/24", []string{"10.0.0.0/25", "10.0.0.128/25"}, ""},
		{"10.0.0.7/24", nil, "10.0.0.0-10.0.0.255"},
		{"010.0.0.0/8", nil, "10.0.0.0-10.255.255.255"},
		{"fd00::/126", []string{"fd00::1/128"}, "fd00::-fd00:: fd00::2-fd00::3"},
		{"::/0", nil, "::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},
		{"10.0.0.0/8", []string{"fd00::/8"}, "10.0.0.0-10.255.255.255"},
		// A CIDR that cannot be parsed allows nothing.
		{"10.0.0.0/33", nil, ""},
		{"10.0.0.0/8", []string{"nonsense"}, ""},
	} {
		var got []string
		for _, b := range blocks(&networkingv1.IPBlock{CIDR: c.cidr, Except: c.except}) {
			got = append(got, b.From.String()+"-"+b.To.String())
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s except %v: %v, want %s", c.cidr, c.except, got, c.want)
		}
	}
}

func TestCompile(t *testing.T) {
	ports := func(list ...networkingv1.NetworkPolicyPort) networkingv1.NetworkPolicySpec {
		return networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{Ports: list}}}
	}
	port := func(number, end int32) networkingv1.NetworkPolicyPort {
		p := networkingv1.NetworkPolicyPort{Port: new(intstr.FromInt32(number))}
		if end != 0 {
			p.EndPort = new(end)
		}
		return p
	}
	peers := func(list ...networkingv1.NetworkPolicyPeer) networkingv1.NetworkPolicySpec {
		return networkingv1.NetworkPolicySpec{Egress: []networkingv1.NetworkPolicyEgressRule{{To: list}}, PolicyTypes: []networkingv1.PolicyType{"Egress"}}
	}
	everything := &metav1.LabelSelector{}
	broken := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Odd"}}}
	for name, c := range map[string]struct {
		spec networkingv1.NetworkPolicySpec
		want string
	}{
		"nothing":                 {networkingv1.NetworkPolicySpec{}, "ingress"},
		"egress rules":            {networkingv1.NetworkPolicySpec{Egress: []networkingv1.NetworkPolicyEgressRule{{}}}, "ingress egress: any peer at any port"},
		"ingress alone":           {networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{"Ingress"}, Egress: []networkingv1.NetworkPolicyEgressRule{{}}}, "ingress"},
		"egress alone":            {networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{"Egress"}, Ingress: []networkingv1.NetworkPolicyIngressRule{{}}}, "egress"},
		"ports that touch":        {ports(port(80, 0), port(81, 90), port(85, 100), port(1, 0)), "ingress: any peer at TCP/1-1 TCP/80-100"},
		"all ports of a protocol": {ports(networkingv1.NetworkPolicyPort{Protocol: new(v1.ProtocolSCTP)}), "ingress: any peer at SCTP/0-65535"},
		"ports that are none":     {ports(port(80, 79), port(70000, 0), port(-1, 0)), "ingress: any peer at"},
		"a named port twice":      {ports(networkingv1.NetworkPolicyPort{Port: new(intstr.FromString("web"))}, networkingv1.NetworkPolicyPort{Port: new(intstr.FromString("web"))}), "ingress: any peer at TCP/web"},
		"pods of the namespace":   {peers(networkingv1.NetworkPolicyPeer{PodSelector: everything}), "egress: {x  ()} at any port"},
		"all pods":                {peers(networkingv1.NetworkPolicyPeer{NamespaceSelector: everything}), "egress: { () ()} at any port"},
		"a broken selector":       {peers(networkingv1.NetworkPolicyPeer{PodSelector: broken}), "egress: {x  none} at any port"},
		"an empty peer":           {peers(networkingv1.NetworkPolicyPeer{}), "egress: at any port"},
		"blocks that touch": {peers(networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.0/25"}},
			networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.128/25"}}), "egress: 10.0.0.0-10.0.0.255 at any port"},
	} {
		compiled := compile(&networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "x"}, Spec: c.spec})
		var got []string
		for _, direction := range []struct {
			name    string
			applies bool
			rules   []Rule
		}{{"ingress", compiled.ingress, compiled.policy.Ingress}, {"egress", compiled.egress, compiled.policy.Egress}} {
			if direction.applies {
				got = append(got, direction.name+describe(direction.rules))
			}
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%s: %q, want %q", name, s, c.want)
		}
	}
}

// describe returns rules as text.
func describe(rules []Rule) string {
	var out []string
	for _, r := range rules {
		var parts []string
		if r.AnyPeer {
			parts = append(parts, "any peer")
		}
		for _, g := range r.Groups {
			parts = append(parts, fmt.Sprint(g))
		}
		for _, b := range r.Blocks {
			parts = append(parts, b.From.String()+"-"+b.To.String())
		}
		parts = append(parts, "at")
		if r.AnyPort {
			parts = append(parts, "any port")
		}
		for _, p := range r.Ports {
			parts = append(parts, fmt.Sprintf("%s/%d-%d", p.Protocol, p.From, p.To))
		}
		for _, n := range r.Named {
			parts = append(parts, string(n.Protocol)+"/"+n.Name)
		}
		out = append(out, strings.Join(parts, " "))
	}
	return strings.Join(slices.Concat([]string{""}, out), ": ")
}

// A policy of a tenant may have tens of thousands of peers and ports.
func TestManyPeersAndPorts(t *testing.T) {
	const many = 60_000
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "x"}, Spec: networkingv1.NetworkPolicySpec{Ingress: make([]networkingv1.NetworkPolicyIngressRule, 1)}}
	rule := &p.Spec.Ingress[0]
	for i := range many {
		name := fmt.Sprint("n", i)
		rule.From = append(rule.From, networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{name: ""}}})
		rule.Ports = append(rule.Ports, networkingv1.NetworkPolicyPort{Port: new(intstr.FromString(name))})
	}
	var got *compiled
	cost := costtest.Of(t, func() { got = compile(p) })
	if r := got.policy.Ingress[0]; len(r.Groups) != many || len(r.Named) != many || got.size != 10*(2+2*many) {
		t.Errorf("%d groups and %d named ports of size %d", len(r.Groups), len(r.Named), got.size)
	}
	if cost.Processor > 5*time.Second {
		t.Errorf("a policy takes %v of processor time", cost.Processor)
	}
	s := newState("n1")
	s.setPolicy(p) // too large for every node
	for _, c := range s.policies["x"] {
		if len(c.policy.Ingress)+len(c.groups) > 0 {
			t.Errorf("the node keeps %d rules and %d groups that it cannot enforce", len(c.policy.Ingress), len(c.groups))
		}
	}
}

// The policies of a namespace are bounded, the oldest first. Those beyond that isolate
// their pods and allow nothing, and no policy of another namespace is affected.
func TestPoliciesOfANamespaceAreBounded(t *testing.T) {
	s := newState("n1")
	policy := func(namespace, name string, created int64, groups int) {
		p := &networkingv1.NetworkPolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: metav1.Unix(created, 0)},
			Spec:       networkingv1.NetworkPolicySpec{Ingress: make([]networkingv1.NetworkPolicyIngressRule, 1)},
		}
		for i := range groups {
			all := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: fmt.Sprint("k", i), Operator: metav1.LabelSelectorOpDoesNotExist}}}
			p.Spec.Ingress[0].From = append(p.Spec.Ingress[0].From, networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{}, PodSelector: all})
		}
		s.setPolicy(p)
	}
	policy("x", "a-young", 2, mostOfNamespace/20)
	policy("x", "old", 1, mostOfNamespace/20)
	policy("y", "other", 3, 2)
	for i, namespace := range []string{"x", "y"} {
		s.setNamespace(&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
		s.setPod(&v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pod", UID: types.UID(namespace)}, Spec: v1.PodSpec{NodeName: "n1"},
			Status: v1.PodStatus{PodIPs: []v1.PodIP{{IP: fmt.Sprint("10.244.0.", i+1)}}},
		})
	}
	r, _ := s.rules()
	if len(r.Pods) != 2 || len(r.Pods[netip.MustParseAddr("10.244.0.1")].Ingress) != 1 {
		t.Errorf("isolated pods: %v", r.Pods)
	}
	allowed := map[string]int{}
	for name, p := range r.Policies {
		for _, rule := range p.Ingress {
			allowed[name.Name] += len(rule.Groups)
		}
	}
	if want := map[string]int{"old": mostOfNamespace / 20, "other": 2}; !maps.Equal(allowed, want) || len(r.Policies) != 2 {
		t.Errorf("groups of policies: %v, want %v", allowed, want)
	}
	if len(r.TooLarge) != 1 || r.TooLarge[0].Name != "a-young" || len(r.Groups) != mostOfNamespace/20 {
		t.Errorf("too large: %v, groups: %d", r.TooLarge, len(r.Groups))
	}
}

// Very many policies without rules, and pods of which each has a chain of its own, do not
// fill the kernel either. The pods stay isolated.
func TestManyPolicies(t *testing.T) {
	s := newState("n1")
	for i := range maxPolicies + 1 {
		s.setPolicy(&networkingv1.NetworkPolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: fmt.Sprint("p", i), CreationTimestamp: metav1.Unix(int64(i), 0)},
			Spec:       networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{"Ingress", "Egress"}},
		})
	}
	const pods = 10
	for i := range pods {
		name := fmt.Sprint("pod-", i)
		s.setPod(&v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: name, UID: types.UID(name), Labels: map[string]string{"name": name}}, Spec: v1.PodSpec{NodeName: "n1"},
			Status: v1.PodStatus{PodIPs: []v1.PodIP{{IP: fmt.Sprint("10.244.0.", i+1)}}},
		})
	}
	r, _ := s.rules()
	chains, jumps := len(r.Policies), 0
	for a, i := range r.Pods {
		if i.Ingress == nil || i.Egress == nil {
			t.Errorf("%s is not isolated", a)
		}
		jumps += len(i.Ingress)
	}
	if len(r.Pods) != pods || chains == 0 || jumps == 0 || 10*chains+jumps > mostOfNamespace {
		t.Errorf("%d pods, %d policies and %d jumps to them", len(r.Pods), chains, jumps)
	}
	if left := len(r.TooLarge); left+chains != maxPolicies+1 {
		t.Errorf("%d policies are enforced and %d are too many", chains, left)
	}
}
