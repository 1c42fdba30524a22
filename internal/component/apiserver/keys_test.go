package apiserver_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"k8s.io/client-go/tools/clientcmd"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/component/apiserver"
	"github.com/coracle-io/coracle/internal/pki"
)

// inOwnNetwork runs the test again in a process with a network namespace of its
// own, where it returns true.
func inOwnNetwork(t *testing.T) bool {
	t.Helper()
	const mark = "CORACLE_TEST_NETWORK"
	if os.Getenv(mark) != "" {
		return true
	}
	if os.Getuid() != 0 {
		t.Skip("needs root for a network namespace")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), mark+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

// connect adds an interface with an address, and the default route if it has a
// metric. It returns how to take the interface away.
func connect(t *testing.T, name, address string, metric int) (remove func()) {
	t.Helper()
	peer := name + "-peer"
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: peer}
	must(t, netlink.LinkAdd(link))
	other, err := netlink.LinkByName(peer)
	must(t, err)
	must(t, netlink.LinkSetUp(other))
	must(t, netlink.LinkSetUp(link))
	a, err := netlink.ParseAddr(address)
	must(t, err)
	must(t, netlink.AddrAdd(link, a))
	if metric > 0 {
		gateway := a.IP.To4()
		_, all, err := net.ParseCIDR("0.0.0.0/0")
		must(t, err)
		must(t, netlink.RouteAdd(&netlink.Route{LinkIndex: link.Index, Dst: all, Gw: net.IPv4(gateway[0], gateway[1], gateway[2], 254), Priority: metric}))
	}
	return func() { must(t, netlink.LinkDel(link)) }
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A node reaches the API server of its machine, and is reached by it, whatever
// the default route leads over, and whichever of the two is started again.
func TestANodeWhoseMachineMoves(t *testing.T) {
	if !inOwnNetwork(t) {
		return
	}
	flags := apiserver.NewOptions()
	flags.Services.ClusterIPRange = "10.96.0.0/16"
	keysDir, dir := t.TempDir(), t.TempDir()
	startControlPlane := func() {
		t.Helper()
		keys, err := pki.Open(keysDir, clock.RealClock{})
		must(t, err)
		must(t, flags.KeepNode(keys, dir, "n1"))
		config, err := clientcmd.LoadFromFile(filepath.Join(dir, apiserver.NodeKubelet))
		must(t, err)
		for _, c := range config.Clusters {
			if c.Server != "https://127.0.0.1:6443" {
				t.Errorf("the node looks for its API server at %s", c.Server)
			}
		}
	}
	startNode := func(when, want string) {
		t.Helper()
		address, err := flags.NodeAddress(dir)
		must(t, err)
		if address.String() != want {
			t.Errorf("%s: the node's address is %s, want %s", when, address, want)
		}
		certificates, err := certutil.CertsFromFile(filepath.Join(dir, apiserver.NodeServing))
		must(t, err)
		for _, name := range []string{want, "127.0.0.1", "10.9.0.1"} { // the last for a node that was started before
			if err := certificates[0].VerifyHostname(name); err != nil {
				t.Errorf("%s: %v", when, err)
			}
		}
	}
	connect(t, "e0", "10.9.0.1/24", 600)
	startControlPlane()
	startNode("at first", "10.9.0.1")
	connect(t, "e1", "10.9.1.1/24", 100)
	if advertised, err := flags.Advertised(); err != nil || advertised.String() != "10.9.1.1" {
		t.Fatal(advertised, err)
	}
	startNode("with a better route", "10.9.0.1")
	startControlPlane()
	startNode("with a control plane that knows it", "10.9.1.1")
}

// A certificate of the user's need not be for loopback: the node asks the
// address that the server advertises then.
func TestANodeOfAServerWithTheUsersCertificate(t *testing.T) {
	flags := apiserver.NewOptions()
	flags.Services.ClusterIPRange, flags.Serving.AdvertiseAddress = "10.96.0.0/16", net.IPv4(10, 0, 0, 5)
	flags.Serving.TLS.CertFile, flags.Serving.TLS.KeyFile = "/etc/users.crt", "/etc/users.key"
	dir := t.TempDir()
	keys, err := pki.Open(t.TempDir(), clock.RealClock{})
	must(t, err)
	must(t, flags.KeepNode(keys, dir, "n1"))
	config, err := clientcmd.LoadFromFile(filepath.Join(dir, apiserver.NodeKubelet))
	must(t, err)
	for _, c := range config.Clusters {
		if c.Server != "https://10.0.0.5:6443" {
			t.Errorf("the node looks for its API server at %s", c.Server)
		}
	}
}

// Without a default route, any address of the machine is advertised. The
// address of a cluster's bridge comes last, because the bridge is removed with
// its cluster.
func TestAdvertisedWithoutARoute(t *testing.T) {
	if !inOwnNetwork(t) {
		return
	}
	flags := apiserver.NewOptions()
	check := func(want string) {
		t.Helper()
		if got, err := flags.Advertised(); err != nil || got.String() != want {
			t.Errorf("got %v %v, want %s", got, err, want)
		}
	}
	connect(t, "cor-t", "10.244.0.1/24", 0)
	check("10.244.0.1")
	remove := connect(t, "e0", "10.9.0.1/24", 0)
	check("10.9.0.1")
	remove()
	check("10.244.0.1")
}

// Clients reach a server that listens at one address at that address, and its
// certificate is valid for it.
func TestANodeOfAServerAtOneAddress(t *testing.T) {
	const bind = "127.0.0.5"
	s := startWhole(t, "--bind-address="+bind)
	flags := commandLine(t, "--bind-address="+bind, "--advertise-address=192.0.2.1")
	dir := t.TempDir()
	must(t, flags.KeepNode(s.keys, dir, "n1"))
	config, err := clientcmd.LoadFromFile(filepath.Join(dir, apiserver.NodeDNS))
	must(t, err)
	for _, c := range config.Clusters {
		if c.Server != "https://"+bind+":6443" {
			t.Errorf("the node looks for its API server at %s", c.Server)
		}
	}
	certificates, err := certutil.CertsFromFile(s.keys.File("apiserver.crt"))
	must(t, err)
	must(t, certificates[0].VerifyHostname(bind))
}

// A further node of a machine reaches the API server at the address that is for
// it, and has a certificate for its own address.
func TestAFurtherNode(t *testing.T) {
	flags := apiserver.NewOptions()
	flags.Services.ClusterIPRange, flags.Serving.NodesAddress = "10.96.0.0/16", net.IPv4(10, 9, 0, 1)
	dir := t.TempDir()
	keys, err := pki.Open(t.TempDir(), clock.RealClock{})
	must(t, err)
	must(t, flags.KeepFurtherNode(keys, dir, "n1-2", []net.IP{net.IPv4(10, 9, 0, 2), net.ParseIP("fd00:9::2")}))
	config, err := clientcmd.LoadFromFile(filepath.Join(dir, apiserver.NodeKubelet))
	must(t, err)
	for _, c := range config.Clusters {
		if c.Server != "https://10.9.0.1:6443" {
			t.Errorf("the node looks for its API server at %s", c.Server)
		}
	}
	certificates, err := certutil.CertsFromFile(filepath.Join(dir, apiserver.NodeServing))
	must(t, err)
	must(t, certificates[0].VerifyHostname("10.9.0.2"))
	must(t, certificates[0].VerifyHostname("fd00:9::2"))
	if certificates[0].Subject.CommonName != "system:node:n1-2" {
		t.Errorf("the certificate is that of %s", certificates[0].Subject)
	}
}
