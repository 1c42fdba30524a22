package podnet

import (
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/coracle-io/coracle/internal/clusternames"
)

func TestConflist(t *testing.T) {
	n := New(Config{Name: "demo", LeaseDir: "/leases"})
	content, err := n.conflist([]netip.Prefix{netip.MustParsePrefix("10.244.3.0/24"), netip.MustParsePrefix("fd00:3::/64")})
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Name    string
		Plugins []struct {
			Type, Bridge string
			Ipam         struct {
				Type, DataDir string
				Ranges        [][]struct{ Subnet string }
				Routes        []struct{ Dst string }
			}
		}
	}
	if err := json.Unmarshal(content, &list); err != nil {
		t.Fatal(err)
	}
	p := list.Plugins[0]
	if list.Name != "demo" || p.Type != "bridge" || p.Bridge != "cor-demo" || p.Ipam.DataDir != "/leases" ||
		p.Ipam.Ranges[0][0].Subnet != "10.244.3.0/24" || p.Ipam.Ranges[1][0].Subnet != "fd00:3::/64" ||
		p.Ipam.Routes[0].Dst != "0.0.0.0/0" || p.Ipam.Routes[1].Dst != "::/0" {
		t.Errorf("configuration:\n%s", content)
	}
}

func TestConfigureRefusesWhatIsNoCIDR(t *testing.T) {
	n := New(Config{Name: "demo", CNIConfDir: t.TempDir()})
	for _, cidrs := range [][]string{nil, {"10.244.3.0"}} {
		if err := n.Configure(cidrs); err == nil {
			t.Errorf("%v: no error", cidrs)
		}
	}
}

func TestConfigureAndRemove(t *testing.T) {
	inNamespace(t, func() { configureAndRemove(t) })
}

// inNamespace calls f in a new network namespace, on a thread that ends with
// it.
func inNamespace(t *testing.T, f func()) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root for a network namespace")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		ns, err := netns.New()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = ns.Close() }()
		f()
	}()
	<-done
}

// repairs removes the parts of the network one by one and checks that Configure
// restores each.
func repairs(t *testing.T, n *Network) {
	conn, err := nftables.New()
	if err != nil {
		t.Error(err)
		return
	}
	podCIDRs := []string{"10.244.3.0/24"}
	if err := n.Configure(podCIDRs); err != nil {
		t.Error(err)
		return
	}
	for _, c := range []struct {
		part   string
		remove func() error
	}{
		{"", func() error { return nil }},
		{"nftables table coracle-podnet-t", func() error { conn.DelTable(table("t")); return conn.Flush() }},
		{"nftables table coracle-podnet-t", func() error { conn.FlushTable(table("t")); return conn.Flush() }},
		{"bridge cor-t", func() error { return removeBridge("cor-t") }},
		{"/proc/sys/net/ipv4/conf/cor-t/route_localnet = 1", func() error { return remakeBridge("cor-t") }},
		{n.confFile(), func() error { return os.Remove(n.confFile()) }},
		{"/proc/sys/net/ipv4/ip_forward = 1", func() error {
			return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("0"), 0o644)
		}},
	} {
		part, remove := c.part, c.remove
		if err := remove(); err != nil {
			t.Errorf("%s: %v", part, err)
		}
		if missing, err := n.Missing(podCIDRs); missing != part || err != nil {
			t.Errorf("missing is %q, %v; want %q", missing, err, part)
		}
		if err := n.Configure(podCIDRs); err != nil {
			t.Errorf("%s: %v", part, err)
		}
		if missing, err := n.Missing(podCIDRs); missing != "" || err != nil {
			t.Errorf("%s: missing is %q after it was set up again, %v", part, missing, err)
		}
	}
}

// remakeBridge replaces a bridge with a new one, as the CNI plugin does for the
// first pod after the bridge was removed.
func remakeBridge(name string) error {
	if err := removeBridge(name); err != nil {
		return err
	}
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}
	return errors.Join(netlink.LinkAdd(bridge), netlink.LinkSetUp(bridge))
}

// TestPodsJoinTheBridgeOfThePlugin checks that running pods are attached to a
// bridge that the CNI plugin has made again for another pod.
func TestPodsJoinTheBridgeOfThePlugin(t *testing.T) {
	inNamespace(t, func() {
		n := New(Config{Name: "t"})
		n.records = t.TempDir()
		record := filepath.Join(n.records, "t-"+strings.Repeat("0a", 32)+"-eth0")
		if err := os.WriteFile(record, []byte(`{"result": {"interfaces": [{"name": "cor-t"}, {"name": "veth1"}], "ips": [{"address": "10.244.3.7/24", "gateway": "10.244.3.1"}]}}`), 0o600); err != nil {
			t.Error(err)
			return
		}
		if err := errors.Join(remakeBridge("cor-t"), netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "veth1"}, PeerName: "eth0"}), n.routeLoopback()); err != nil {
			t.Error(err)
			return
		}
		bridge, err := netlink.LinkByName("cor-t")
		if err != nil {
			t.Error(err)
			return
		}
		if port, err := netlink.LinkByName("veth1"); err != nil || port.Attrs().MasterIndex != bridge.Attrs().Index {
			t.Errorf("the pod's interface is not on the bridge: %+v, %v", port, err)
		}
	})
}

// TestPodsGetTheirBridgeBack checks that a running pod is attached to its
// bridge again after the bridge was removed.
func TestPodsGetTheirBridgeBack(t *testing.T) {
	inNamespace(t, func() {
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "cor-t"}}
		port := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "veth1"}, PeerName: "eth0"}
		for _, link := range []netlink.Link{bridge, port} {
			if err := netlink.LinkAdd(link); err != nil {
				t.Error(err)
				return
			}
		}
		noted := `{"kind": "cniCacheV1", "result": {"cniVersion": "1.0.0",
			"interfaces": [{"name": "cor-t", "mac": "5e:e9"}, {"name": "veth1"}, {"name": "eth0", "sandbox": "/run/netns/x"}, {"name": "gone"}],
			"ips": [{"address": "10.244.3.7/24", "gateway": "10.244.3.1", "interface": 2}]}}`
		if err := reattachPod(bridge, []byte(noted)); err != nil {
			t.Error(err)
		}
		found, err := netlink.LinkByName("veth1")
		if err != nil || found.Attrs().MasterIndex != bridge.Attrs().Index {
			t.Errorf("the pod's interface is not on the bridge: %+v, %v", found, err)
		}
		addresses, err := netlink.AddrList(bridge, netlink.FAMILY_V4)
		if err != nil || len(addresses) != 1 || addresses[0].IPNet.String() != "10.244.3.1/24" {
			t.Errorf("addresses of the bridge %v, %v; want 10.244.3.1/24", addresses, err)
		}
	})
}

func configureAndRemove(t *testing.T) {
	dir := t.TempDir()
	n := New(Config{Name: "t", CNIConfDir: filepath.Join(dir, "net.d"), LeaseDir: filepath.Join(dir, "leases")})
	before, err := netlink.LinkList() // loopback, and those of kernel modules that add one to each namespace
	if err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := n.masquerade([]netip.Prefix{netip.MustParsePrefix("10.244.3.0/24")}); err != nil {
			t.Error(err)
		}
	}
	for range 2 {
		if err := n.routeLoopback(); err != nil {
			t.Error(err)
			return
		}
	}
	repairs(t, n)
	bridge, err := netlink.LinkByName(clusternames.Bridge("t"))
	if err != nil {
		t.Error(err)
		return
	}
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "v0", MasterIndex: bridge.Attrs().Index}, PeerName: "v1"}); err != nil {
		t.Error(err)
	}
	if err := os.MkdirAll(n.config.LeaseDir, 0o755); err != nil {
		t.Error(err)
	}
	if err := writeFile(n.confFile(), []byte("{}")); err != nil {
		t.Error(err)
	}
	killed := filepath.Join(n.config.CNIConfDir, "."+filepath.Base(n.confFile())+".coracle-1") // while it wrote
	if err := os.WriteFile(killed, nil, 0o600); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := n.Remove(); err != nil {
			t.Error(err)
		}
	}
	links, err := netlink.LinkList()
	if err != nil || len(links) != len(before) {
		t.Errorf("interfaces left: %v %v", links, err)
	}
	conn, err := nftables.New()
	if err != nil {
		t.Error(err)
		return
	}
	if tables, err := conn.ListTables(); err != nil || len(tables) != 0 {
		t.Errorf("tables left: %v %v", tables, err)
	}
	if _, err := os.Stat(n.config.LeaseDir); err == nil {
		t.Error("leases left")
	}
	if left, err := os.ReadDir(n.config.CNIConfDir); err != nil || len(left) > 0 {
		t.Errorf("configuration left: %v, %v", left, err)
	}
}
