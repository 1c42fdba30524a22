package cluster

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/clusternames"
	"github.com/coracle-io/coracle/internal/component"
	"github.com/coracle-io/coracle/internal/netnstest"
	"github.com/coracle-io/coracle/internal/nodeaddress"
	"github.com/coracle-io/coracle/internal/simnode"
)

// withNodes returns the options of a cluster with several nodes on this machine.
func withNodes(t *testing.T, count int) Options {
	return Options{
		Name: "t", DataDir: t.TempDir(), NodeName: "m.example", Ports: Ports{Secure: 6443}, Node: &NodeOptions{SeparateProcess: true, Count: count, BundleDir: "/bundle"},
	}
}

func TestNodeNames(t *testing.T) {
	for name, want := range map[string][]string{"m": {"m", "m-2", "m-3"}, "m.example.com": {"m.example.com", "m-2.example.com", "m-3.example.com"}} {
		o := Options{NodeName: name, Node: &NodeOptions{Count: 3}}
		if got := o.NodeNames(); !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
	if got := (Options{NodeName: "m", Node: &NodeOptions{}}).NodeNames(); !slices.Equal(got, []string{"m"}) {
		t.Errorf("one node is called %v", got)
	}
	if got := (Options{NodeName: "m"}).NodeNames(); got != nil {
		t.Errorf("without a node: %v", got)
	}
}

// TestSettingsOfNodes checks that nodes share nothing that they write to, and
// that the first of several has what one node has.
func TestSettingsOfNodes(t *testing.T) {
	alone, err := complete(withNodes(t, 1))
	if err != nil {
		t.Fatal(err)
	}
	o := withNodes(t, 3)
	o.DataDir = alone.DataDir
	s, err := complete(o)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for number := 1; number <= 3; number++ {
		of := s.node(number)
		runtime, network := runtimeConfig(of), networkConfig(of)
		for _, own := range []string{
			of.NodeName, of.DataDir, of.Node.RunDir, of.Node.CgroupRoot, of.Node.NFTable, runtime.DataDir, runtime.RunDir, runtime.CNIConfDir, network.Name, network.LeaseDir,
		} {
			if other, taken := seen[own]; taken && other != number {
				t.Errorf("nodes %d and %d share %s", other, number, own)
			}
			seen[own] = number
		}
		if of.further() != (number > 1) || (len(network.Nodes) > 0) != (number == 1) {
			t.Errorf("node %d: further %v, nodes' range %v", number, of.further(), network.Nodes)
		}
	}
	if runtime := runtimeConfig(s.node(2)); runtime.DropInDir != s.DataDir+"/containerd.d" || runtime.RegistryDir != s.DataDir+"/registries" {
		t.Errorf("the second node takes the files of users from %s and %s, not those of the cluster", runtime.DropInDir, runtime.RegistryDir)
	}
	first, only := s.node(1), alone.node(1)
	if first.DataDir != only.DataDir || first.Node.RunDir != only.Node.RunDir || first.NodeName != only.NodeName || first.own() != only.own() || first.own() != "t" {
		t.Errorf("the first node is %+v, want %+v", first.Options, only.Options)
	}
	third := s.node(3)
	if m := third.member(); m.HostName != "m-3" || m.Namespace != "/run/coracle/t/3/netns" || fmt.Sprint(third.nodeAddresses()) != "[10.212.0.3]" || third.Node.CgroupRoot != "/coracle-t.3" {
		t.Errorf("the third node is %+v with %s", m, third.nodeAddresses())
	}
}

func TestNodesThatCannotBe(t *testing.T) {
	for field, change := range map[string]func(o *Options){
		"Node.Count=51: want 1 to 50":                                                  func(o *Options) { o.Node.Count = 51 },
		"Node.Count=-1: want 1 to 50":                                                  func(o *Options) { o.Node.Count = -1 },
		"Node.Number=4: want 1 to 3":                                                   func(o *Options) { o.Node.Number = 4 },
		"Node.Count=3: several nodes need processes of their own":                      func(o *Options) { o.Node.SeparateProcess = false },
		"Node.ContainerRuntimeEndpoint=unix:///c.sock: a container runtime that is":    func(o *Options) { o.Node.ContainerRuntimeEndpoint = "unix:///c.sock" },
		"Node.CIDR=10.212.0.0/24: the nodes on the machine of node b have":             func(o *Options) { o.Node.Behind = &NodesBehind{CIDR: "10.212.0.0/16", Node: "b"} },
		"Node.Network=none: the nodes of this machine would share the configuration":   func(o *Options) { o.Node.Network = "none" },
		"Node.Network=flannel: want none":                                              func(o *Options) { o.Node.Network = "flannel" },
		"BindAddress=127.0.0.1: further nodes do not reach the API server there":       func(o *Options) { o.BindAddress = "127.0.0.1" },
		"Node.CIDR=fd00::/64: there is no range of the family of ClusterCIDR":          func(o *Options) { o.Node.CIDR = "fd00::/64" },
		"Node.CIDR=10.9.0.0: want a range such as 10.212.0.0/24, or one of each":       func(o *Options) { o.Node.CIDR = "10.9.0.0" },
		"Node.CIDR=10.9.0.0/24,10.8.0.0/24: want a range such as":                      func(o *Options) { o.Node.CIDR = "10.9.0.0/24,10.8.0.0/24" },
		"Node.CIDR=10.9.0.0/24,fd00::/126: the range has too few addresses for 3":      func(o *Options) { o.Node.CIDR = "10.9.0.0/24,fd00::/126" },
		"Node.CIDR=10.9.0.0/30: the range has too few addresses for 3 nodes":           func(o *Options) { o.Node.CIDR = "10.9.0.0/30" },
		"Node.CIDR=10.244.7.0/24: it overlaps with ClusterCIDR":                        func(o *Options) { o.Node.CIDR = "10.244.7.0/24" },
		"Node.CIDR=10.96.0.0/24: it overlaps with ServiceCIDR":                         func(o *Options) { o.Node.CIDR = "10.96.0.0/24" },
		"Node.CIDR=10.9.0.0/24: there is no range of the family of ClusterCIDR":        func(o *Options) { o.Node.CIDR, o.ClusterCIDR = "10.9.0.0/24", "10.244.0.0/16,fd00::/56" },
		"KubeletArgs=hostname-override=x: the nodes of this machine cannot share it":   func(o *Options) { o.KubeletArgs = []string{"v=2", "hostname-override=x"} },
		"KubeletArgs=--root-dir=/var/lib/kubelet: the nodes of this machine cannot":    func(o *Options) { o.KubeletArgs = []string{"--root-dir=/var/lib/kubelet"} },
		"ProxyArgs=hostname-override=x: the nodes of this machine cannot share it":     func(o *Options) { o.ProxyArgs = []string{"hostname-override=x"} },
		"NodeName=" + strings.Repeat("a", 62) + ": a further node would be called aaa": func(o *Options) { o.NodeName = strings.Repeat("a", 62) },
		"Name=" + strings.Repeat("a", 56) + ": the name is part of the paths":          func(o *Options) { o.Name = strings.Repeat("a", 56) },
		"Node.Each=4: want at most 3 nodes":                                            func(o *Options) { o.Node.Each = make([]EachNode, 4) },
		"Node.Each[0]=x: the first node is the machine":                                func(o *Options) { o.Node.Each = []EachNode{{Name: "x"}} },
		"Node.Each[0]=removed: the first node is the machine":                          func(o *Options) { o.Node.Each = []EachNode{{State: NodeRemoved}} },
		"Node.Each[1].Name=X: a lowercase RFC 1123 subdomain":                          func(o *Options) { o.Node.Each = []EachNode{{}, {Name: "X"}} },
		"Node.Each[1].State=gone: want one of adding, leaving and removed":             func(o *Options) { o.Node.Each = []EachNode{{}, {State: "gone"}} },
		"Node.Number=2: this node has been removed":                                    func(o *Options) { o.Node.Number, o.Node.Each = 2, []EachNode{{}, {State: NodeLeaving}} },
		"NodeName=m.example: nodes 2 and 3 of this machine would both be called b":     func(o *Options) { o.Node.Each = []EachNode{{}, {Name: "b"}, {Name: "b"}} },
		"NodeName=m.example: nodes 2 and 3 of this machine would both be called m-3":   func(o *Options) { o.Node.Each = []EachNode{{}, {Name: "m-3.example", State: NodeLeaving}} },
		"KubeletArgs=root-dir=/x: the nodes of this machine cannot share it":           func(o *Options) { o.Node.Each = []EachNode{{}, {KubeletArgs: []string{"root-dir=/x"}}} },
	} {
		o := withNodes(t, 3)
		change(&o)
		_, err := New(o)
		var wrong *FieldError
		if !errors.As(err, &wrong) || !strings.HasPrefix(err.Error(), field) {
			t.Errorf("%v, want %s…", err, field)
		}
	}
	if _, err := New(withNodes(t, 3)); err != nil {
		t.Error(err)
	}
}

// Each node has a name, labels, taints and arguments of its own, and one that was
// removed leaves the numbers of the others as they are.
func TestEachNode(t *testing.T) {
	o := withNodes(t, 4)
	o.KubeletArgs = []string{"pods-per-core=2"}
	o.Node.Each = []EachNode{
		{}, {Name: "beta.example", Labels: map[string]string{"c": "d", "a": "b"}, Taints: []string{"x:NoSchedule", "y=1:NoExecute"}, KubeletArgs: []string{"max-pods=3"}},
		{State: NodeRemoved},
	}
	s, err := complete(o)
	if err != nil {
		t.Fatal(err)
	}
	if numbers, names := s.NodeNumbers(), s.NodeNames(); !slices.Equal(numbers, []int{1, 2, 4}) || !slices.Equal(names, []string{"m.example", "beta.example", "m-4.example"}) {
		t.Errorf("nodes %v are called %v", numbers, names)
	}
	second := s.node(2)
	if second.NodeName != "beta.example" || second.member().HostName != "beta" || fmt.Sprint(s.node(4).nodeAddresses()) != "[10.212.0.4]" {
		t.Errorf("the second one is %s, and the fourth has %s", second.NodeName, s.node(4).nodeAddresses())
	}
	if got, want := second.KubeletArgsOf(2), []string{"pods-per-core=2", "node-labels=a=b,c=d", "register-with-taints=x:NoSchedule,y=1:NoExecute", "max-pods=3"}; !slices.Equal(got, want) {
		t.Errorf("arguments %q, want %q", got, want)
	}
	if got := s.KubeletArgsOf(4); !slices.Equal(got, o.KubeletArgs) {
		t.Errorf("arguments of another one: %q", got)
	}
	for _, of := range []*settings{s.node(1), second} {
		routes := (&Node{settings: of, kubelet: component.NewKubelet(), addresses: &nodeaddress.Follower{}}).routes()
		want := map[string][]netip.Addr{"m.example": s.segment().Addresses(1), "beta.example": s.segment().Addresses(2), "m-4.example": s.segment().Addresses(4)}
		if !maps.EqualFunc(routes.Addresses, want, slices.Equal[[]netip.Addr]) || (len(routes.Gateways) > 0) != of.further() {
			t.Errorf("node %d routes to %v, want %v, and to other machines by %v", of.Node.Number, routes.Addresses, want, routes.Gateways)
		}
	}
	kubelet := component.NewKubelet()
	if err := s.setKubelet(2, kubelet.AddFlags); err != nil || kubelet.Config.NodeLabels["a"] != "b" || kubelet.Config.NodeLabels["c"] != "d" || len(kubelet.Taints) != 2 {
		t.Errorf("the kubelet registers with %v and %v, %v", kubelet.Config.NodeLabels, kubelet.Taints, err)
	}
	o.Node.Each[1].KubeletArgs = []string{"max-pods=many"}
	if err := Check(o); err == nil || !strings.Contains(err.Error(), "node beta.example: KubeletArgs=max-pods=many: ") {
		t.Errorf("with a wrong argument: %v", err)
	}
}

// Nodes have an address of each family of the pods, and the first one what it lacks of
// them on the segment.
func TestFamiliesOfNodes(t *testing.T) {
	for clusterCIDR, want := range map[string]struct{ cidr, second, first, ofIPv6 string }{
		"10.244.0.0/16":           {"10.212.0.0/24", "[10.212.0.2]", "[192.0.2.1]", "[2001:db8::1 10.212.0.1]"},
		"10.244.0.0/16,fd00::/48": {"10.212.0.0/24,fd00:10:212::/64", "[10.212.0.2 fd00:10:212::2]", "[192.0.2.1 fd00:10:212::1]", "[2001:db8::1 10.212.0.1]"},
		"fd00::/48,10.244.0.0/16": {"fd00:10:212::/64,10.212.0.0/24", "[fd00:10:212::2 10.212.0.2]", "[192.0.2.1 fd00:10:212::1]", "[2001:db8::1 10.212.0.1]"},
		"fd00::/48":               {"fd00:10:212::/64", "[fd00:10:212::2]", "[192.0.2.1 fd00:10:212::1]", "[2001:db8::1]"},
	} {
		o := withNodes(t, 2)
		if o.ClusterCIDR = clusterCIDR; clusterCIDR == "fd00::/48" {
			o.ServiceCIDR = "fd01::/112"
		}
		s, err := complete(o)
		if err != nil {
			t.Errorf("%s: %v", clusterCIDR, err)
			continue
		}
		first, ofIPv6 := s.withSegment([]net.IP{net.ParseIP("192.0.2.1")}), s.withSegment([]net.IP{net.ParseIP("2001:db8::1")})
		if got := fmt.Sprint(s.node(2).nodeAddresses()); s.Node.CIDR != want.cidr || got != want.second || fmt.Sprint(first) != want.first || fmt.Sprint(ofIPv6) != want.ofIPv6 {
			t.Errorf("%s: nodes have %s, the second one %s, and the first one %s or %s; want %+v", clusterCIDR, s.Node.CIDR, got, first, ofIPv6, want)
		}
		if alone, err := complete(withNodes(t, 1)); err != nil || len(alone.withSegment(nil)) > 0 {
			t.Errorf("a node alone is on a segment, %v", err)
		}
	}
}

// The control plane keeps the files of nodes that are added, and makes none of nodes
// that are removed.
func TestFollowNodes(t *testing.T) {
	o := withNodes(t, 3)
	now, vanishing := map[int]string{1: "m.example", 2: "m-2.example", 3: "m-3.example"}, 0
	o.Node.Present = func() map[int]string {
		names := maps.Clone(now)
		delete(now, vanishing)
		return names
	}
	s, err := complete(o)
	if err != nil {
		t.Fatal(err)
	}
	configuration, err := configurePlane(s)
	if err != nil {
		t.Fatal(err)
	}
	p := newControlPlane(configuration)
	defer p.close()
	if err := p.open(); err != nil {
		t.Fatal(err)
	}
	known := map[int]string{}
	for _, step := range []map[int]string{{2: "m-2.example", 3: "m-3.example"}, {3: "m-3.example", 4: "extra"}} {
		now = maps.Clone(step)
		now[1] = "m.example"
		if err := p.followNodes(known); err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(known, step) {
			t.Errorf("known are %v, want %v", known, step)
		}
		for number, name := range step {
			kubeconfig, err := os.ReadFile(filepath.Join(s.DataDir, "nodes", strconv.Itoa(number), "node", "kubelet.kubeconfig"))
			if err != nil || !strings.Contains(string(kubeconfig), "system:node:"+name) || !strings.Contains(string(kubeconfig), "https://10.212.0.1:6443") {
				t.Errorf("node %d: %s, %v", number, kubeconfig, err)
			}
		}
		if err := os.RemoveAll(filepath.Join(s.DataDir, "nodes", "2")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Lstat(filepath.Join(s.DataDir, "nodes", "2")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory of a node that was removed is there: %v", err)
	}
	now[5], vanishing = "brief", 5 // it is removed while its files are written
	if err := p.followNodes(known); err != nil || known[5] != "" {
		t.Errorf("known are %v, %v", known, err)
	}
	if _, err := os.Lstat(filepath.Join(s.DataDir, "nodes", "5", "node")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("keys of a node that was removed are there: %v", err)
	}
	now = nil // unknown
	if names := s.present(); len(names) != 3 || names[1] != "m.example" {
		t.Errorf("while the nodes are unknown they are %v, want those of the options", names)
	}
}

// The removal of one node leaves the others.
func TestPurgeNode(t *testing.T) {
	o := withNodes(t, 3)
	for _, number := range []int{-1, 0, 1, 51} {
		if err := PurgeNode(t.Context(), o, number); err == nil {
			t.Errorf("node %d was removed", number)
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("removal needs root")
	}
	o.Name, o.Node.RunDir, o.Node.BundleDir = "test-purge-one", t.TempDir(), t.TempDir()
	for _, number := range []string{"2", "3"} {
		if err := errors.Join(os.MkdirAll(filepath.Join(o.Node.RunDir, number), 0o700), os.WriteFile(filepath.Join(o.Node.RunDir, number, "netns"), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := PurgeNode(t.Context(), o, 2); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Lstat(filepath.Join(o.Node.RunDir, "2", "netns")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its namespace is left: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(o.Node.RunDir, "3", "netns")); err != nil {
		t.Errorf("that of the other one: %v", err)
	}
}

// A configuration with which several nodes cannot start does not prevent their
// removal: a record leaves out most options.
func TestPurgeOfNodesThatCannotBe(t *testing.T) {
	o := withNodes(t, 3)
	o.Name, o.Node.SeparateProcess, o.Node.CIDR = "test-purge-nodes", false, "10.96.0.0/24"
	o.Node.RunDir, o.Node.BundleDir = t.TempDir(), t.TempDir()
	if os.Geteuid() != 0 {
		t.Skip("removal needs root")
	}
	if err := purgeAside(t, o); err != nil {
		t.Error(err)
	}
}

// purgeAside is Purge in a network namespace of its own, so that it does not concern what
// clusters of the machine have noted.
func purgeAside(t *testing.T, o Options) (err error) {
	t.Helper()
	netnstest.Do(t, netnstest.New(t), func() error {
		err = Purge(t.Context(), o)
		return nil
	})
	return err
}

// A node that cannot be removed does not keep the others from it, and a count that
// no cluster can have is no work without end.
func TestPurgeContinues(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("removal needs root")
	}
	o := withNodes(t, 1<<40)
	o.Name, o.Node.RunDir, o.Node.BundleDir = "test-purge-all", t.TempDir(), t.TempDir()
	blocked, removed := filepath.Join(o.Node.RunDir, "3", "netns"), filepath.Join(o.Node.RunDir, "2", "netns")
	for _, dir := range []string{filepath.Join(blocked, "a"), filepath.Dir(removed)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(removed, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err := purgeAside(t, o)
	if err == nil || !strings.HasPrefix(err.Error(), "node 3: ") || strings.Contains(err.Error(), "\n") {
		t.Errorf("with a directory at %s: %v", blocked, err)
	}
	if _, err := os.Lstat(removed); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left: %v", removed, err)
	}
}

// The network of a cluster is removed apart from the rest, and that of another
// cluster stays.
func TestPurgeNetwork(t *testing.T) {
	o := withNodes(t, 3)
	o.Node.RunDir = t.TempDir()
	kept := filepath.Join(o.DataDir, "containerd", "config.toml")
	if err := errors.Join(os.Mkdir(filepath.Dir(kept), 0o700), os.WriteFile(kept, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	links := []string{clusternames.Bridge("t"), clusternames.Bridge("u"), clusternames.Segment("t"), clusternames.SegmentPort("t", 2)}
	tables := map[string]nftables.TableFamily{
		clusternames.ProxyTable("t"): nftables.TableFamilyIPv4, clusternames.PolicyTable(clusternames.ProxyTable("t")): nftables.TableFamilyIPv6,
		clusternames.PodNetworkTable("t"): nftables.TableFamilyINet, clusternames.ProxyTable("u"): nftables.TableFamilyIPv4,
	}
	netnstest.Do(t, netnstest.New(t), func() error {
		conn, err := nftables.New()
		if err != nil {
			return err
		}
		for name, family := range tables {
			conn.AddTable(&nftables.Table{Family: family, Name: name})
		}
		if err := conn.Flush(); err != nil {
			return err
		}
		for _, name := range links {
			if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}); err != nil {
				return err
			}
		}
		for range 2 {
			if err := PurgeNetwork(o); err != nil {
				return err
			}
		}
		left, err := conn.ListTables()
		if err != nil {
			return err
		}
		if len(left) != 1 || left[0].Name != clusternames.ProxyTable("u") {
			t.Errorf("%d tables are left, want that of the other cluster", len(left))
		}
		for _, name := range links {
			if _, err := netlink.LinkByName(name); (err == nil) != (name == clusternames.Bridge("u")) {
				t.Errorf("interface %s: %v", name, err)
			}
		}
		return nil
	})
	if _, err := os.Stat(kept); err != nil {
		t.Error(err)
	}
}

// A further node works in its network namespace alone.
func TestNewNodeOutsideOfItsNamespace(t *testing.T) {
	o := withNodes(t, 2)
	o.Node.Number, o.Node.RunDir = 2, t.TempDir()
	if _, err := NewNode(o); err == nil || !strings.Contains(err.Error(), "call EnterNode first") {
		t.Error(err)
	}
}

// TestPeers checks which changes of nodes change routes, and that a node's own
// ranges stay when its object has gone.
func TestPeers(t *testing.T) {
	p := newPeers("m")
	changed := func() bool {
		select {
		case <-p.changed:
			return true
		default:
			return false
		}
	}
	node := func(name, address string, podCIDRs ...string) *v1.Node {
		return &v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.NodeSpec{PodCIDRs: podCIDRs},
			Status: v1.NodeStatus{Addresses: []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: address}}},
		}
	}
	for i, step := range []struct {
		do   func()
		want bool
	}{
		{func() { p.set(node("m-2", "10.9.0.2", "10.244.2.0/24", "what")) }, true},
		{func() { p.set(node("m-2", "10.9.0.2", "10.244.2.0/24")) }, false},
		{func() { p.set(node("m-2", "10.9.0.3", "10.244.2.0/24")) }, true},
		{func() { p.set(node("m-2", "10.9.0.3", "10.244.2.0/24")) }, false},
		{func() { p.set(node("m-2", "10.9.0.3", "10.244.3.0/24")) }, true},
		{func() { p.set(node("m", "192.0.2.1")) }, false},
		{func() { p.set(node("m", "192.0.2.1", "10.244.0.0/24")) }, true},
		{func() { p.set(node("m", "192.0.2.2", "10.244.0.0/24")) }, false},
		{func() { p.set(node("m", "192.0.2.2")) }, false},
	} {
		if step.do(); changed() != step.want {
			t.Errorf("step %d: changed is not %v", i, step.want)
		}
	}
	p.remove("m")
	own, others := p.now()
	if !slices.Equal(own, prefixes("10.244.0.0/24")) || len(others) != 1 || !slices.Equal(others[0].PodCIDRs, prefixes("10.244.3.0/24")) {
		t.Errorf("own %v, others %+v", own, others)
	}
	if a, b := netip.MustParseAddr("10.9.0.3"), netip.MustParseAddr("10.9.0.2"); !p.has(a) || p.has(b) {
		t.Errorf("the other nodes have %s: %v, and %s: %v", a, p.has(a), b, p.has(b))
	}
	simulated := node("s", "198.18.0.1", "10.244.9.0/24")
	simulated.Labels = map[string]string{simnode.Label: "true"}
	reduced, err := reduceNode(simulated)
	if err != nil {
		t.Fatal(err)
	}
	changed() // by the removal
	if p.set(reduced.(*v1.Node)); !changed() || p.has(netip.MustParseAddr("198.18.0.1")) {
		t.Error("a simulated node is reached at its address, or keeps no range")
	}
	p.remove("s")
	if !changed() {
		t.Error("the end of a simulated node changes nothing")
	}
	p.remove("m-2")
	if _, others := p.now(); !changed() || len(others) != 0 {
		t.Errorf("a node that is gone is left: %+v", others)
	}
}
