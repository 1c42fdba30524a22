package cluster

import (
	"net"
	"testing"
)

// A server without a node gives Services the addresses of the other servers' nodes while
// its controllers lead, and verifies their kubelets. A control plane alone does neither.
func TestAddressesOfNodesElsewhere(t *testing.T) {
	servers := []string{"name=a", "initial-advertise-peer-urls=https://127.0.0.1:1", "initial-cluster=a=https://127.0.0.1:1", "listen-client-urls=https://127.0.0.1:2"}
	for what, c := range map[string]struct {
		options Options
		want    bool
	}{
		"a node":                {withNodes(t, 1), true},
		"one of several":        {Options{DataDir: t.TempDir(), AdvertiseAddress: net.IPv4(127, 0, 0, 1), Etcd: &EtcdOptions{}, EtcdArgs: servers}, true},
		"a control plane alone": {Options{DataDir: t.TempDir(), AdvertiseAddress: net.IPv4(127, 0, 0, 1), Etcd: &EtcdOptions{}}, false},
	} {
		s, err := complete(c.options)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		p, err := configurePlane(s)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if got := p.manager.Options.ServiceLB.NodeAddresses; got != c.want {
			t.Errorf("%s: addresses of nodes are given: %v, want %v", what, got, c.want)
		}
		if got := p.api.KubeletClient.CAFile; (got != "") != c.want {
			t.Errorf("%s: kubelets are verified by the authority %q", what, got)
		}
	}
}
