package nftables

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/nft"
	"github.com/coracle-io/coracle/internal/persistent"
	"github.com/coracle-io/coracle/internal/proxy"
)

// Delivery says who chooses the endpoint of a connection to a Service. The zero value
// means the table itself. Otherwise it only decides which connections are masqueraded,
// refused or dropped, and leaves the others to somebody else. Host ports are always its
// own.
type Delivery struct {
	// IPVS leaves connections to the kernel's virtual servers. The addresses of Services
	// are the node's own then, so that its programs would answer at every port that is
	// no Service's: such connections are refused, unless the address is among
	// NodeAddresses, which are all others of the node but link-local ones, in order.
	IPVS          bool
	NodeAddresses []netip.Addr
	// Port returns the port of this node to which connections are redirected that are
	// for the endpoints of a port of a Service, or with local for those on this node. 0
	// is none, and they are dropped. The port of a Service does not change. Nothing else
	// than what is redirected gets to it.
	Port func(name proxy.PortName, local bool) uint16
}

// Deliver sets who chooses endpoints, from the next Apply on.
func (b *Backend) Deliver(d Delivery) { b.delivery = d }

// sameFrame reports whether two settings of a table that exists are the same. All other
// settings never change.
func (s settings) sameFrame(o settings) bool {
	return s.pods == o.pods && slices.Equal(s.delivery.NodeAddresses, o.delivery.NodeAddresses)
}

// The fixed sets of tables that leave connections to somebody else.
const (
	balancedIPs = "balanced-ips" // address . protocol . port, of virtual servers
	proxyPorts  = "proxy-ports"  // protocol . port
)

// sets returns the names of the fixed sets that only a delivery needs.
func (d Delivery) sets() []string {
	switch {
	case d.IPVS:
		return []string{balancedIPs}
	case d.Port != nil:
		return []string{proxyPorts}
	}
	return nil
}

// leave adds the chain that leaves connections to somebody else. It reports false if the
// table itself chooses an endpoint.
func (r part) leave(chain string, name proxy.PortName, local bool) bool {
	switch d := r.delivery; {
	case d.IPVS:
		r.chains[chain] = []nft.Rule{{nft.Accept()}}
	case d.Port != nil:
		port := d.Port(name, local)
		if port == 0 {
			r.chains[chain] = []nft.Rule{{nft.Drop()}}
			return true
		}
		r.chains[chain] = []nft.Rule{{clearMark(r.mark), redirectTo(port)}} // it does not leave the node
		r.put(proxyPorts, key{protocol: name.Protocol, port: port}, "")
	default:
		return false
	}
	return true
}

// unbalanced returns the rule of the chain services that keeps host ports and node ports
// from the addresses of Services, which are addresses of the node with IPVS.
func (d Delivery) unbalanced(f nft.Family) []nft.Rule {
	if !d.IPVS {
		return nil
	}
	return []nft.Rule{{f.DestAddrIn(clusterAddresses), nft.Accept()}}
}

// guard adds the rules about what arrives at the node and is for nobody: other ports of
// the addresses of Services with IPVS, and what was not redirected to a port of Port.
func (r part) guard(f nft.Family) {
	const hook = "filter-input"
	switch {
	case r.delivery.IPVS:
		r.chains[hook] = append(r.chains[hook],
			nft.Rule{newConnection(), f.DestAddrPortIn(balancedIPs), nft.Accept()},
			nft.Rule{newConnection(), f.DestAddrIn(clusterAddresses), nft.GoTo("reject")})
	case r.delivery.Port != nil:
		r.chains[hook] = append(r.chains[hook], nft.Rule{portIn(proxyPorts), notTranslated(), nft.GoTo("reject")})
	}
}

// outside adds addresses at which a Service is reached from outside to those that other
// rules guard, if they become the node's own.
func (r part) outside(addresses ...netip.Addr) {
	if !r.delivery.IPVS {
		return
	}
	for _, a := range addresses {
		if !slices.Contains(r.delivery.NodeAddresses, a) {
			r.put(clusterAddresses, key{address: a}, "")
		}
	}
}

// answering returns rules in which the endpoints of UDP ports are what answers in the
// kernel's connection table: with Port, a port of the node at any address.
func (d Delivery) answering(rules proxy.Rules) proxy.Rules {
	if d.Port == nil {
		return rules
	}
	services := map[proxy.PortName]*proxy.ServicePort{}
	for name, p := range rules.Services.All() {
		if name.Protocol != v1.ProtocolUDP {
			continue
		}
		answering := *p
		answering.Cluster, answering.Local = d.atNode(name, false), d.atNode(name, true)
		services[name] = &answering
	}
	rules.Services = persistent.Of(services)
	return rules
}

// atNode returns the port of the node for a port of a Service, without an address.
func (d Delivery) atNode(name proxy.PortName, local bool) []netip.AddrPort {
	if port := d.Port(name, local); port != 0 {
		return []netip.AddrPort{netip.AddrPortFrom(netip.Addr{}, port)}
	}
	return nil
}

// portIn matches packets to a protocol and port of a set.
func portIn(set string) nft.Statement {
	return nft.Plain("meta l4proto . th dport @"+set,
		nft.LoadProtocol(1), nft.LoadPort(nft.FirstWord+1), &expr.Lookup{SourceRegister: 1, SetName: set})
}

// notTranslated matches packets of connections whose destination is what the sender
// asked for.
func notTranslated() nft.Statement {
	const destinationNAT = 1 << 5 // IPS_DST_NAT of nf_conntrack_common.h
	return nft.Plain("ct status & dnat == 0",
		&expr.Ct{Key: expr.CtKeySTATUS, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4,
			Mask: binaryutil.NativeEndian.PutUint32(destinationNAT), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: make([]byte, 4)})
}

// redirectTo sends the connection to a port of the node: at the address of the interface
// by which it arrives, or at the loopback address if the node itself made it.
func redirectTo(port uint16) nft.Statement {
	return nft.Plain(fmt.Sprintf("redirect to :%d", port),
		&expr.Immediate{Register: 1, Data: binary.BigEndian.AppendUint16(nil, port)},
		&expr.Redir{RegisterProtoMin: 1})
}
