package host

import (
	"testing"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/coracle-io/coracle/cluster"
)

// Clusters side by side share no port of this machine: not their NodePorts,
// and none of what they listen on.
func TestSlotsShareNoPort(t *testing.T) {
	taken, ranges := map[int]int{}, map[string]bool{}
	for slot := range MaxSlots {
		d := DefaultsOf("a", slot)
		p := d.Ports
		for _, r := range []string{d.ServiceCIDR, d.ClusterCIDR, d.NodeCIDR, d.NodeCIDRIPv6} {
			if ranges[r] {
				t.Errorf("slot %d has %s, which another one has", slot, r)
			}
			ranges[r] = true
		}
		for _, port := range []int{p.Secure, p.Manager, p.Scheduler, p.Kubelet, p.KubeletHealthz, p.ProxyHealthz, p.ProxyMetrics, p.DNS, p.DNSMetrics} {
			if other, ok := taken[port]; ok {
				t.Errorf("slots %d and %d both have port %d", other, slot, port)
			}
			taken[port] = slot
		}
		r, err := utilnet.ParsePortRange(nodePortsOf(slot))
		if err != nil {
			t.Fatal(err)
		}
		for port := r.Base; port < r.Base+r.Size; port++ {
			if other, ok := taken[port]; ok {
				t.Fatalf("slots %d and %d both have port %d", other, slot, port)
			}
			taken[port] = slot
		}
	}
}

func TestCheckRanges(t *testing.T) {
	others := []Record{
		{Nodes: 1, Occupied: Occupied{Name: "b", ServiceCIDR: "10.96.0.0/16,fd00::/108", ClusterCIDR: "10.244.0.0/16", Node: cluster.NodeOptions{CIDR: "10.211.0.0/24"}}},
		{Nodes: 2, Occupied: occupied(cluster.Options{Name: "c", ServiceCIDR: "10.98.0.0/16", ClusterCIDR: "10.242.0.0/16", Node: &cluster.NodeOptions{CIDR: "10.212.0.0/24"}})},
	}
	ranges := func(nodeCIDR string, nodes int) Settings {
		return Settings{Nodes: nodes, Options: cluster.Options{Name: "a", ServiceCIDR: "10.97.0.0/16", ClusterCIDR: "10.243.0.0/16", Node: &cluster.NodeOptions{CIDR: nodeCIDR}}}
	}
	for _, tt := range []struct {
		settings Settings
		refused  bool
	}{
		{Settings{Nodes: 1, Options: cluster.Options{Name: "a", ServiceCIDR: "10.97.0.0/16", ClusterCIDR: "10.243.0.0/16"}}, false},
		{Settings{Nodes: 1, Options: cluster.Options{Name: "a", ServiceCIDR: "10.96.128.0/17", ClusterCIDR: "10.243.0.0/16"}}, true},
		{Settings{Nodes: 1, Options: cluster.Options{Name: "a", ServiceCIDR: "10.97.0.0/16", ClusterCIDR: "10.0.0.0/8"}}, true},
		{Settings{Nodes: 1, Options: cluster.Options{Name: "a", ServiceCIDR: "10.97.0.0/16,fd00::/112", ClusterCIDR: "10.243.0.0/16"}}, true},
		{Settings{Nodes: 0, Options: cluster.Options{Name: "a", ServiceCIDR: "10.96.0.0/16", ClusterCIDR: "10.244.0.0/16"}}, false},
		{Settings{Nodes: 1, Options: cluster.Options{Name: "b", ServiceCIDR: "10.96.0.0/16", ClusterCIDR: "10.244.0.0/16"}}, false},
		{ranges("10.211.0.0/24", 2), false},
		{ranges("10.212.0.128/25", 2), true},
		{ranges("10.212.0.128/25", 1), false},
		{ranges("10.96.0.0/24", 2), true},
		{Settings{Nodes: 1, Options: cluster.Options{Name: "a", ServiceCIDR: "10.97.0.0/16", ClusterCIDR: "10.212.0.0/16"}}, true},
		{Settings{Nodes: 1, Options: cluster.Options{Name: "a", ServiceCIDR: "10.97.0.0/16", ClusterCIDR: "10.243.0.0/16", Node: &cluster.NodeOptions{Behind: &cluster.NodesBehind{CIDR: "10.212.0.0/24"}}}}, true},
	} {
		if err := CheckRanges(tt.settings, others); (err != nil) != tt.refused {
			t.Errorf("%+v: %v", tt.settings, err)
		}
	}
}

func TestCheckNodePorts(t *testing.T) {
	others := []Record{
		{Nodes: 1, Occupied: Occupied{Name: "b", NodePorts: "30000-32767"}},
		{Nodes: 0, Occupied: Occupied{Name: "c", NodePorts: "29000-29499"}},
		{Nodes: 1, Occupied: occupied(cluster.Options{Name: "d", NodePorts: "30000-32767", APIServerArgs: []string{"service-node-port-range=20000-20009"}})},
	}
	for _, tt := range []struct {
		settings Settings
		refused  bool
	}{
		{Settings{Nodes: 1, Options: cluster.Options{Name: "a", NodePorts: "29500-29999"}}, false},
		{Settings{Nodes: 1, Options: cluster.Options{Name: "a", NodePorts: "29500-30000"}}, true},
		{Settings{Nodes: 1, Options: cluster.Options{Name: "a", NodePorts: "29500-29999", APIServerArgs: []string{"service-node-port-range=31000-31005"}}}, true},
		{Settings{Nodes: 0, Options: cluster.Options{Name: "a", NodePorts: "30000-32767"}}, false},
		{Settings{Nodes: 1, Options: cluster.Options{Name: "a", NodePorts: "20009-20020"}}, true},
		{Settings{Nodes: 1, Options: cluster.Options{Name: "a", NodePorts: "29000-29499"}}, false},
		{Settings{Nodes: 1, Options: cluster.Options{Name: "b", NodePorts: "30000-32767"}}, false},
	} {
		if err := CheckNodePorts(tt.settings, others); (err != nil) != tt.refused {
			t.Errorf("%+v: %v", tt.settings, err)
		}
	}
}
