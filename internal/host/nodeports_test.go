package host

import (
	"testing"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// Clusters side by side share no port of this machine: not their NodePorts,
// and none of what they listen on.
func TestSlotsShareNoPort(t *testing.T) {
	taken := map[int]int{}
	for slot := range MaxSlots {
		d := DefaultsOf("a", slot)
		p := d.Ports
		for _, port := range []int{p.Secure, p.Manager, p.Scheduler, p.Kubelet, p.KubeletHealthz, p.ProxyHealthz, p.ProxyMetrics, p.DNS} {
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
	others := []Record{{Name: "b", ServiceCIDR: "10.96.0.0/16,fd00::/108", ClusterCIDR: "10.244.0.0/16"}}
	for _, tt := range []struct {
		settings Settings
		refused  bool
	}{
		{Settings{Name: "a", Nodes: 1, ServiceCIDR: "10.97.0.0/16", ClusterCIDR: "10.243.0.0/16"}, false},
		{Settings{Name: "a", Nodes: 1, ServiceCIDR: "10.96.128.0/17", ClusterCIDR: "10.243.0.0/16"}, true},
		{Settings{Name: "a", Nodes: 1, ServiceCIDR: "10.97.0.0/16", ClusterCIDR: "10.0.0.0/8"}, true},
		{Settings{Name: "a", Nodes: 1, ServiceCIDR: "10.97.0.0/16,fd00::/112", ClusterCIDR: "10.243.0.0/16"}, true},
		{Settings{Name: "a", Nodes: 0, ServiceCIDR: "10.96.0.0/16", ClusterCIDR: "10.244.0.0/16"}, false},
		{Settings{Name: "b", Nodes: 1, ServiceCIDR: "10.96.0.0/16", ClusterCIDR: "10.244.0.0/16"}, false},
	} {
		if err := CheckRanges(tt.settings, others); (err != nil) != tt.refused {
			t.Errorf("%+v: %v", tt.settings, err)
		}
	}
}

func TestCheckNodePorts(t *testing.T) {
	others := []Record{{Name: "b", NodePorts: "30000-32767"}, {Name: "c", NodePorts: "29000-29499", ControlOnly: true}}
	for _, tt := range []struct {
		settings Settings
		refused  bool
	}{
		{Settings{Name: "a", Nodes: 1, NodePorts: "29500-29999"}, false},
		{Settings{Name: "a", Nodes: 1, NodePorts: "29500-30000"}, true},
		{Settings{Name: "a", Nodes: 1, NodePorts: "29500-29999", APIServerArgs: []string{"service-node-port-range=31000-31005"}}, true},
		{Settings{Name: "a", Nodes: 0, NodePorts: "30000-32767"}, false},
		{Settings{Name: "a", Nodes: 1, NodePorts: "29000-29499"}, false},
		{Settings{Name: "b", Nodes: 1, NodePorts: "30000-32767"}, false},
	} {
		if err := CheckNodePorts(tt.settings, others); (err != nil) != tt.refused {
			t.Errorf("%+v: %v", tt.settings, err)
		}
	}
}
