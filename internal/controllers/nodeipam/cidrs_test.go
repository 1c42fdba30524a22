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
	c.Run(Descriptor(&Options{}), "--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/16,fd00:10:244::/56")
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

func TestMaskSizes(t *testing.T) {
	four, six := []string{"10.244.0.0/16"}, []string{"fd00:10:244::/56"}
	both := append(four[:1:1], six...)
	for _, test := range []struct {
		options Options
		want    string // the first block of each range, or the error
	}{
		{Options{}, "--allocate-node-cidrs needs --cluster-cidr"},
		{Options{ClusterCIDR: four}, "[10.244.0.0/24]"},
		{Options{ClusterCIDR: both}, "[10.244.0.0/24 fd00:10:244::/64]"},
		{Options{ClusterCIDR: four, ServiceClusterIPRange: []string{"10.244.0.0/23"}}, "[10.244.2.0/24]"},
		{Options{ClusterCIDR: six, NodeCIDRMaskSize: 60}, "[fd00:10:244::/60]"},
		{Options{ClusterCIDR: six, NodeCIDRMaskSizeIPv6: 61}, "[fd00:10:244::/61]"},
		{Options{ClusterCIDR: both, NodeCIDRMaskSizeIPv4: 20, NodeCIDRMaskSizeIPv6: 61}, "[10.244.0.0/20 fd00:10:244::/61]"},
		{Options{ClusterCIDR: both, NodeCIDRMaskSize: 20}, "usage of --node-cidr-mask-size is not allowed with dual-stack clusters"},
		{Options{ClusterCIDR: four, NodeCIDRMaskSize: 20, NodeCIDRMaskSizeIPv4: 20}, "usage of --node-cidr-mask-size-ipv4 and --node-cidr-mask-size-ipv6 is not allowed if --node-cidr-mask-size is set"},
		{Options{ClusterCIDR: four, NodeCIDRMaskSizeIPv6: 64}, "usage of --node-cidr-mask-size-ipv6 is not allowed for a single-stack IPv4 cluster"},
		{Options{ClusterCIDR: six, NodeCIDRMaskSizeIPv4: 24}, "usage of --node-cidr-mask-size-ipv4 is not allowed for a single-stack IPv6 cluster"},
		{Options{ClusterCIDR: four, NodeCIDRMaskSize: 12}, "a node's mask size of /12 does not fit into --cluster-cidr=10.244.0.0/16"},
	} {
		sets, err := parse(&test.options)
		var blocks []netip.Prefix
		for _, set := range sets {
			block, err := set.allocate()
			if err != nil {
				t.Fatal(err)
			}
			blocks = append(blocks, block)
		}
		got := fmt.Sprint(blocks)
		if err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%+v: got %s, want %s", test.options, got, test.want)
		}
		test.options.AllocateNodeCIDRs = true
		if refused := test.options.validate(); fmt.Sprint(refused) != fmt.Sprint(err) {
			t.Errorf("%+v: %v, validated: %v", test.options, err, refused)
		}
	}
}
