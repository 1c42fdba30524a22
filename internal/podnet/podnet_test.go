package podnet

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

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

// TestConfigureAndRemove works in a network namespace of its own, on a thread
// that ends with the test.
func TestConfigureAndRemove(t *testing.T) {
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
		configureAndRemove(t)
	}()
	<-done
}

func configureAndRemove(t *testing.T) {
	dir := t.TempDir()
	n := New(Config{Name: "t", CNIConfDir: filepath.Join(dir, "net.d"), LeaseDir: filepath.Join(dir, "leases")})
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
	bridge, err := netlink.LinkByName(Bridge("t"))
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
	for range 2 {
		if err := n.Remove(); err != nil {
			t.Error(err)
		}
	}
	links, err := netlink.LinkList()
	if err != nil || len(links) != 1 {
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
}
