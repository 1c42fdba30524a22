// Package proxytest checks by packets what a proxy.Backend does. The node, its pods
// and clients are network namespaces, and what answers a connection says its name.
// Every backend passes the same Suite.
package proxytest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/netnstest"
	"github.com/coracle-io/coracle/internal/persistent"
	"github.com/coracle-io/coracle/internal/proxy"
)

// PodCIDR and PodCIDR6 are the ranges of the pods of a Lab.
var (
	PodCIDR  = netip.MustParsePrefix("10.9.1.0/24")
	PodCIDR6 = netip.MustParsePrefix("fd00:9:1::/64")
)

// Config is what a backend of a Lab is to be configured with.
type Config struct {
	ClusterCIDRs []netip.Prefix
	IPv6         bool
	// NetNS is the file descriptor of the network namespace to work in; 0 means that
	// of the calling thread.
	NetNS int
}

// Lab is a node with members, each in a network namespace of its own:
//
//	client 10.9.1.2 ─┐
//	pod a  10.9.1.3 ─┤ bridge-less veths, routed by the node 10.9.1.1
//	pod b  10.9.1.4 ─┘
//
// With IPv6, a member in PodCIDR also has the address of PodCIDR6 with the same last
// byte. Up0 is the node's interface to other machines, 192.168.77.1.
type Lab struct {
	Node    netns.NsHandle
	Members map[string]netns.NsHandle
	Backend proxy.Backend
	t       *testing.T
	ipv6    bool
}

// Up0 is the interface of the node to which its default route leads.
const Up0 = "up0"

// NewLab returns a node with members of the given names and IPv4 addresses. Its backend
// is made by newBackend for pods in PodCIDR.
func NewLab(t *testing.T, newBackend func(Config) proxy.Backend, members map[string]string) *Lab {
	t.Helper()
	return newLab(t, newBackend, members, false)
}

// newLab is NewLab, with or without IPv6.
func newLab(t *testing.T, newBackend func(Config) proxy.Backend, members map[string]string, ipv6 bool) *Lab {
	t.Helper()
	l := &Lab{t: t, ipv6: ipv6, Node: netnstest.New(t), Members: map[string]netns.NsHandle{}}
	netnstest.Do(t, l.Node, func() error {
		if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644); err != nil || !ipv6 {
			return err
		}
		return os.WriteFile("/proc/sys/net/ipv6/conf/all/forwarding", []byte("1"), 0o644)
	})
	i := 0
	for name, address := range members {
		l.addMember(name, netip.MustParseAddr(address), fmt.Sprintf("v%d", i))
		i++
	}
	// As on every machine, so that what the node itself sends reaches the
	// output hook.
	netnstest.Do(t, l.Node, func() error {
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: Up0}, PeerName: "up1"}); err != nil {
			return err
		}
		if err := setUp(Up0); err != nil {
			return err
		}
		return errors.Join(addAddress(Up0, "192.168.77.1/24"), addRoute(Up0, "0.0.0.0/0", ""))
	})
	c := Config{ClusterCIDRs: []netip.Prefix{PodCIDR}, IPv6: ipv6, NetNS: int(l.Node)}
	if ipv6 {
		c.ClusterCIDRs = append(c.ClusterCIDRs, PodCIDR6)
	}
	l.Backend = newBackend(c)
	return l
}

// addMember adds a member that is reached by an interface of the node.
func (l *Lab) addMember(name string, address netip.Addr, near string) {
	l.t.Helper()
	ns := netnstest.New(l.t)
	l.Members[name] = ns
	hosts, gateways := []string{address.String() + "/32"}, []string{"10.9.1.1"}
	if l.ipv6 && PodCIDR.Contains(address) {
		hosts, gateways = append(hosts, InIPv6(address).String()+"/128"), append(gateways, "fd00:9:1::1")
	}
	netnstest.Do(l.t, l.Node, func() error {
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: near}, PeerName: "eth0", PeerNamespace: netlink.NsFd(ns)}
		if err := netlink.LinkAdd(veth); err != nil {
			return err
		}
		return setUp(near)
	})
	netnstest.Do(l.t, ns, func() error { return setUp("eth0") })
	for i, host := range hosts {
		gateway := netip.MustParseAddr(gateways[i])
		itself := netip.PrefixFrom(gateway, gateway.BitLen()).String()
		netnstest.Do(l.t, l.Node, func() error {
			return errors.Join(addAddress(near, itself), addRoute(near, host, ""))
		})
		netnstest.Do(l.t, ns, func() error {
			everywhere := map[bool]string{true: "0.0.0.0/0", false: "::/0"}[gateway.Is4()]
			return errors.Join(addAddress("eth0", host), addRoute("eth0", itself, ""), addRoute("eth0", everywhere, gateway.String()))
		})
	}
}

// InIPv6 returns the address in PodCIDR6 of a member with an address in PodCIDR.
func InIPv6(a netip.Addr) netip.Addr {
	bytes := PodCIDR6.Addr().As16()
	bytes[15] = a.As4()[3]
	return netip.AddrFrom16(bytes)
}

// AddAddress adds an address to an interface of a namespace.
func (l *Lab) AddAddress(ns netns.NsHandle, link, prefix string) {
	l.t.Helper()
	netnstest.Do(l.t, ns, func() error { return addAddress(link, prefix) })
}

func setUp(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(link)
}

// addAddress adds an address at once, without asking for duplicates.
func addAddress(name, prefix string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	address, err := netlink.ParseAddr(prefix)
	if err != nil {
		return err
	}
	if address.IP.To4() == nil {
		address.Flags = unix.IFA_F_NODAD
	}
	return netlink.AddrAdd(link, address)
}

// addRoute adds a route by a gateway, or without one to what the link reaches.
func addRoute(name, prefix, gateway string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	_, to, err := net.ParseCIDR(prefix)
	if err != nil {
		return err
	}
	route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: to}
	if gateway == "" {
		route.Scope = netlink.SCOPE_LINK
	} else {
		route.Gw = net.ParseIP(gateway)
	}
	return netlink.RouteAdd(route)
}

// Serve answers each TCP connection and each datagram to a member's port with the
// member's name and the client's address.
func (l *Lab) Serve(member string, port int) {
	l.t.Helper()
	var listener net.Listener
	var datagrams net.PacketConn
	address := fmt.Sprintf(":%d", port)
	netnstest.Do(l.t, l.Members[member], func() (err error) {
		if listener, err = net.Listen("tcp", address); err != nil {
			return err
		}
		datagrams, err = net.ListenPacket("udp", address)
		return err
	})
	accepted, received := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(accepted)
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = fmt.Fprintf(c, "%s %s", member, c.RemoteAddr().(*net.TCPAddr).IP)
			_ = c.Close()
		}
	}()
	go func() {
		defer close(received)
		buffer := make([]byte, 64)
		for {
			_, from, err := datagrams.ReadFrom(buffer)
			if err != nil {
				return
			}
			_, _ = datagrams.WriteTo(fmt.Appendf(nil, "%s %s", member, from.(*net.UDPAddr).IP), from)
		}
	}()
	l.t.Cleanup(func() {
		_, _ = listener.Close(), datagrams.Close()
		<-accepted
		<-received
	})
}

// ServeOnNode answers connections to a port of the node with the name node.
func (l *Lab) ServeOnNode(port int) {
	l.t.Helper()
	l.Members["node"] = l.Node
	l.Serve("node", port)
}

// Ask connects from a namespace and returns the member that answered and the
// client's address that it saw. It says nothing of speed.
func (l *Lab) Ask(from netns.NsHandle, address string) (name, client string, err error) {
	l.t.Helper()
	return l.AskFor(3*time.Minute, from, address)
}

// AskFor is Ask with a bound of the time for a connection.
func (l *Lab) AskFor(patience time.Duration, from netns.NsHandle, address string) (name, client string, err error) {
	l.t.Helper()
	netnstest.Do(l.t, from, func() error {
		var c net.Conn
		if c, err = net.DialTimeout("tcp", address, patience); err != nil {
			return nil
		}
		defer func() { _ = c.Close() }()
		content, readErr := io.ReadAll(c)
		if err = readErr; err == nil {
			_, err = fmt.Sscan(string(content), &name, &client)
		}
		return nil
	})
	return name, client, err
}

// Answerers counts the members that answer n connections.
func (l *Lab) Answerers(from netns.NsHandle, address string, n int) map[string]int {
	l.t.Helper()
	seen := map[string]int{}
	for range n {
		name, _, err := l.Ask(from, address)
		if err != nil {
			name = "error"
		}
		seen[name]++
	}
	return seen
}

// Apply applies the rules of ports.
func (l *Lab) Apply(ports ...*proxy.ServicePort) {
	l.t.Helper()
	l.ApplyRules(RulesOf(ports...))
}

// ApplyRules applies rules.
func (l *Lab) ApplyRules(rules proxy.Rules) {
	l.t.Helper()
	if err := l.Backend.Apply(rules); err != nil {
		l.t.Fatal(err)
	}
}

// RulesOf returns rules with the Services default/s0, default/s1 and so on, each with
// a port http of TCP in the family of its cluster IP.
func RulesOf(ports ...*proxy.ServicePort) proxy.Rules {
	return rulesOf(v1.ProtocolTCP, ports...)
}

func rulesOf(protocol v1.Protocol, ports ...*proxy.ServicePort) proxy.Rules {
	services := map[proxy.PortName]*proxy.ServicePort{}
	for i, p := range ports {
		family := v1.IPv4Protocol
		if p.ClusterIP.Is6() {
			family = v1.IPv6Protocol
		}
		services[proxy.PortName{
			NamespacedName: types.NamespacedName{Namespace: "default", Name: fmt.Sprintf("s%d", i)},
			Port:           "http", Protocol: protocol, Family: family,
		}] = p
	}
	return proxy.Rules{Services: persistent.Of(services), HostPorts: map[proxy.LocalPort]proxy.HostPort{}}
}

// Endpoints parses addresses and ports.
func Endpoints(list ...string) []netip.AddrPort {
	var result []netip.AddrPort
	for _, s := range list {
		result = append(result, netip.MustParseAddrPort(s))
	}
	return result
}
