package nodeipam

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
)

func TestAllocation(t *testing.T) {
	c, err := newCIDRSet(netip.MustParsePrefix("10.244.0.0/22"), 24)
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
	six, err := newCIDRSet(netip.MustParsePrefix("fd00:10:244::/56"), 64)
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
		if _, err := newCIDRSet(p, bits); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
}

func TestNodesGetDistinctCIDRs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		taken := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "old"}, Spec: v1.NodeSpec{PodCIDR: "10.244.0.0/24", PodCIDRs: []string{"10.244.0.0/24"}}}
		c := controllertest.New(t, taken)
		for i := range 5 {
			if err := c.Fake.Tracker().Add(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i)}}); err != nil {
				t.Fatal(err)
			}
		}
		c.Run(Descriptor(&Options{}), "--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/16,fd00:10:244::/56")
		synctest.Wait()
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
	})
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

// Each block that is freed is offered to one of the nodes that wait, not to all:
// deleting n nodes would otherwise sync n*n times.
func TestFreedBlocksGoToWaitingNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const nodes = 200
		c := controllertest.New(t)
		name := func(i int) string { return fmt.Sprintf("n%03d", i) }
		for i := range nodes {
			if err := c.Fake.Tracker().Add(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name(i)}}); err != nil {
				t.Fatal(err)
			}
		}
		c.Run(Descriptor(&Options{}), "--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/23")
		synctest.Wait()
		served := func() (n int) {
			list, _ := c.Fake.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
			for i := range list.Items {
				n += len(list.Items[i].Spec.PodCIDRs)
			}
			return n
		}
		for i := range nodes {
			controllertest.Eventually(t, served, min(2, nodes-i))
			if err := c.Fake.CoreV1().Nodes().Delete(t.Context(), name(i), metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		// A node fails when it is added, and rarely again.
		if failed := len(c.Events.Events); failed > 2*nodes {
			t.Errorf("%d attempts failed for %d nodes", failed, nodes)
		}
	})
}

// An earlier leader may have written other CIDRs than those that were allocated
// before its write was seen.
func TestCIDRsOfAnEarlierLeader(t *testing.T) {
	sets, err := parse(&Options{ClusterCIDR: []string{"10.244.0.0/22"}})
	if err != nil {
		t.Fatal(err)
	}
	c := &allocator{sets: sets, allocated: map[string][]netip.Prefix{}, waiting: map[string]bool{}}
	allocate := func(name, want string) {
		t.Helper()
		cidrs, err := c.allocate(name)
		if got := fmt.Sprint(cidrs, err); got != "["+want+"] <nil>" {
			t.Errorf("%s gets %s, want %s", name, got, want)
		}
	}
	seen := func(name, cidr string) {
		c.nodeChanged(nil, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.NodeSpec{PodCIDRs: []string{cidr}}})
	}
	allocate("n", "10.244.0.0/24")
	seen("n", "10.244.1.0/24")
	allocate("n", "10.244.1.0/24")
	allocate("m", "10.244.2.0/24")
	seen("other", "10.244.2.0/24") // as m, until m's own write is seen
	seen("m", "10.244.3.0/24")
	allocate("last", "10.244.0.0/24")
	if cidrs, err := c.allocate("late"); !errors.Is(err, errFull) {
		t.Errorf("there is another block: %v", cidrs)
	}
}

// TestServiceRangeStaysReserved deletes a node whose CIDR was set by hand within
// the range of Services.
func TestServiceRangeStaysReserved(t *testing.T) {
	sets, err := parse(&Options{ClusterCIDR: []string{"10.244.0.0/22"}, ServiceClusterIPRange: []string{"10.244.0.0/23"}})
	if err != nil {
		t.Fatal(err)
	}
	c := &allocator{sets: sets, allocated: map[string][]netip.Prefix{}, waiting: map[string]bool{}}
	for _, cidr := range []string{"10.244.1.0/24", "10.244.0.0/22", "10.244.0.0/25"} {
		node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "by-hand"}, Spec: v1.NodeSpec{PodCIDRs: []string{cidr}}}
		c.nodeChanged(nil, node)
		c.nodeChanged(node, nil)
	}
	for _, name := range []string{"a", "b", "c"} {
		cidrs, err := c.allocate(name)
		if name == "c" {
			if !errors.Is(err, errFull) {
				t.Errorf("a node gets %v of the Services (%v)", cidrs, err)
			}
		} else if err != nil || netip.MustParsePrefix("10.244.0.0/23").Overlaps(cidrs[0]) {
			t.Errorf("node %s gets %v (%v)", name, cidrs, err)
		}
	}
}
