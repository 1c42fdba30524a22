package clusternames

import "testing"

func TestClusterOfTable(t *testing.T) {
	clusters := []string{"a", "podnet-b"}
	policies := func(cluster string) string { return PolicyTable(ProxyTable(cluster)) }
	for table, want := range map[string]string{
		ProxyTable("a"): "a", policies("a"): "a", PodNetworkTable("a"): "a", ProxyTable("podnet-b"): "podnet-b", policies("podnet-b"): "podnet-b",
		PodNetworkTable("podnet-b"): "podnet-b", ProxyTable("old"): "old", policies("old"): "old", PodNetworkTable("old"): "old",
	} {
		if got, ok := ClusterOfTable(table, clusters); !ok || got != want {
			t.Errorf("table %s is that of %q, want %q", table, got, want)
		}
	}
	if cluster, ok := ClusterOfTable("filter", clusters); ok {
		t.Errorf("table filter is that of %q", cluster)
	}
}

func TestBridgeNames(t *testing.T) {
	for name, want := range map[string]string{"coracle": "cor-coracle", "a-very-long-cluster-name": ""} {
		got := Bridge(name)
		if want != "" && got != want || len(got) > 15 {
			t.Errorf("Bridge(%q) = %q", name, got)
		}
	}
	if Bridge("a-very-long-cluster-name") == Bridge("a-very-long-cluster-name-2") {
		t.Error("two clusters have one bridge")
	}
}

// TestNodes checks that what the nodes of all clusters make has names of its own.
func TestNodes(t *testing.T) {
	seen := map[string]string{}
	for _, cluster := range []string{"a", "a-2", "a-very-long-cluster-name", "a-very-long-cluster-name-2"} {
		for node := 1; node <= 12; node++ {
			name := OfNode(cluster, node)
			if got := ClusterOf(name); got != cluster {
				t.Errorf("%s is a node of %s, want %s", name, got, cluster)
			}
			for _, made := range []string{NodeRunDir(cluster, node), CgroupRoot(name), Bridge(name), SegmentPort(cluster, node), Tunnel(name), ProxyTable(name), PodNetworkTable(name)} {
				if other, taken := seen[made]; taken {
					t.Errorf("%s is that of %s and of %s", made, other, name)
				}
				seen[made] = name
			}
			if port := SegmentPort(cluster, node); len(port) > 15 || port == Segment(cluster) || !IsClusters(port) {
				t.Errorf("the port of %s is %s", name, port)
			}
			if tunnel := Tunnel(name); len(tunnel) > 15 || !IsClusters(tunnel) {
				t.Errorf("the tunnel of %s is %s", name, tunnel)
			}
		}
	}
	for _, name := range []string{"a", "a-2", ".2", "a.1", "a.x"} {
		if got := ClusterOf(name); got != name {
			t.Errorf("%s is a node of %s", name, got)
		}
	}
}
