package nodeipam

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
)

func TestAllocation(t *testing.T) {
	c, err := newCIDRs(netip.MustParsePrefix("10.244.0.0/22"), 24)
	if err != nil {
		t.Fatal(err)
	}
	c.mark(netip.MustParsePrefix("10.244.1.128/25"), true)
	c.mark(netip.MustParsePrefix("192.168.0.0/16"), true)
	take := func() string {
		p, err := c.allocate()
		if errors.Is(err, errFull) {
			return "full"
		}
		return p.String()
	}
	for _, want := range []string{"10.244.0.0/24", "10.244.2.0/24", "10.244.3.0/24", "full"} {
		if got := take(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	c.mark(netip.MustParsePrefix("10.244.2.0/24"), false)
	if got := take(); got != "10.244.2.0/24" {
		t.Errorf("freed block: got %s", got)
	}
	six, err := newCIDRs(netip.MustParsePrefix("fd00:10:244::/56"), 64)
	if err != nil {
		t.Fatal(err)
	}
	six.mark(netip.MustParsePrefix("fd00:10:244::/64"), true)
	if p, _ := six.allocate(); p.String() != "fd00:10:244:1::/64" {
		t.Errorf("got %s", p)
	}
	for _, bad := range []string{"10.0.0.0/25", "fd00::/40"} {
		p := netip.MustParsePrefix(bad)
		bits := 24
		if p.Addr().Is6() {
			bits = 64
		}
		if _, err := newCIDRs(p, bits); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
}

func TestNodesGetDistinctCIDRs(t *testing.T) {
	taken := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "old"}, Spec: v1.NodeSpec{PodCIDR: "10.244.0.0/24", PodCIDRs: []string{"10.244.0.0/24"}}}
	c := controllertest.New(t, taken)
	for i := range 5 {
		if err := c.Fake.Tracker().Add(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i)}}); err != nil {
			t.Fatal(err)
		}
	}
	c.Env.Options.AllocateNodeCIDRs = true
	c.Env.Options.ClusterCIDR = []string{"10.244.0.0/16", "fd00:10:244::/56"}
	c.Run(New)
	controllertest.Eventually(t, func() int {
		seen := map[string]bool{}
		nodes, _ := c.Fake.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		for _, n := range nodes.Items {
			for _, p := range n.Spec.PodCIDRs {
				seen[p] = true
			}
		}
		return len(seen)
	}, 11)
}
