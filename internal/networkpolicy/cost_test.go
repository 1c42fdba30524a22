package networkpolicy

import (
	"fmt"
	"net/netip"
	"testing"

	v1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/coracle-io/coracle/internal/costtest"
	"github.com/coracle-io/coracle/internal/persistent"
)

// crowd returns a state with n pods on other nodes, all of which may connect to a named
// port of each other, and one pod of this node.
func crowd(n int) *state {
	s := newState("here")
	s.setNamespace(&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x"}})
	s.setPolicy(&networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "policy"},
		Spec: networkingv1.NetworkPolicySpec{
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
			Ingress:     []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{}}}}},
			Egress: []networkingv1.NetworkPolicyEgressRule{{
				To:    []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{}}},
				Ports: []networkingv1.NetworkPolicyPort{{Port: new(intstr.FromString("http"))}},
			}},
		},
	})
	s.setPod(crowdPod(-1, "here", "10.1.0.1"))
	for i := range n {
		s.setPod(crowdPod(i, "there", fmt.Sprintf("10.2.%d.%d", i/250, i%250)))
	}
	return s
}

// crowdPod returns a pod with the named port http.
func crowdPod(i int, node, address string) *v1.Pod {
	name := fmt.Sprint("pod", i)
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: name, UID: types.UID(name)},
		Spec:       v1.PodSpec{NodeName: node, Containers: []v1.Container{{Ports: []v1.ContainerPort{{Name: "http", ContainerPort: 80}}}}},
		Status:     v1.PodStatus{PodIPs: []v1.PodIP{{IP: address}}},
	}
}

// TestCostOfAChange checks that the change of one pod costs among 10,000 pods of other
// nodes what it costs among 100, and changes the groups and ports that it is in.
func TestCostOfAChange(t *testing.T) {
	cost := func(pods int) uint64 {
		s := crowd(pods)
		before, _ := s.rules()
		if len(before.Groups) != 2 || len(before.Ports) != 1 {
			t.Fatalf("%d groups and %d named ports", len(before.Groups), len(before.Ports))
		}
		visited := 0
		for _, g := range s.groups {
			g.found = g.found.Counted(&visited)
		}
		for name, found := range s.ports {
			s.ports[name] = found.Counted(&visited)
		}
		const changes = 20 // of which one may make a map grow
		var next Rules
		c := costtest.Of(t, func() {
			for i := range changes {
				s.setPod(crowdPod(7, "there", fmt.Sprint("10.3.0.", 1+(i+1)%changes)))
				next, _ = s.rules()
				for of, found := range next.Groups {
					persistent.Diff(before.Groups[of], found, func(netip.Addr) {})
				}
				for name, found := range next.Ports {
					persistent.Diff(before.Ports[name], found, func(netip.AddrPort) {})
				}
				before = next
			}
		})
		if most := changes * 3 * 40; visited > most {
			t.Errorf("%d changes among %d pods visit %d addresses, want at most %d", changes, pods, visited, most)
		}
		for of, found := range next.Groups {
			if found.Len() != pods+1 || !found.Has(netip.MustParseAddr("10.3.0.1")) || found.Has(netip.MustParseAddr("10.2.0.7")) {
				t.Errorf("the group %v has %d addresses", of, found.Len())
			}
		}
		for name, found := range next.Ports {
			if found.Len() != pods+1 || !found.Has(netip.MustParseAddrPort("10.3.0.1:80")) || found.Has(netip.MustParseAddrPort("10.2.0.7:80")) {
				t.Errorf("the port %v has %d addresses", name, found.Len())
			}
		}
		return c.Bytes / changes
	}
	few, many := cost(100), cost(10_000)
	if many > 4*few {
		t.Errorf("a change allocates %d bytes among 100 pods and %d among 10,000", few, many)
	}
}

// BenchmarkChange measures the change of one pod.
func BenchmarkChange(b *testing.B) {
	for _, pods := range []int{100, 1_000, 10_000} {
		b.Run(fmt.Sprint(pods, "Pods"), func(b *testing.B) {
			s := crowd(pods)
			s.rules()
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				s.setPod(crowdPod(7, "there", fmt.Sprintf("10.3.0.%d", 1+i%200)))
				s.rules()
			}
		})
	}
}
