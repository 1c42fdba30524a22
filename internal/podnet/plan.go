package podnet

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/coracle-io/coracle/internal/clusternames"
	"github.com/coracle-io/coracle/internal/wireguard"
)

// Peer is another node of the cluster, as its object describes it.
type Peer struct {
	Name      string
	PodCIDRs  []netip.Prefix
	Addresses []netip.Addr // internal ones
	Created   int64        // in nanoseconds since 1970; the older of two nodes keeps a range
	// WireGuard is what the node has published for an encrypted network, if anything.
	WireGuard wireguard.Identity
}

// Routes configures the routes of a node to the pods of other ones. A node on a
// link of this one is the next hop to its pods. Packets to the pods of all others
// go through a tunnel (VXLAN, RFC 7348):
//
//	same segment       pods ── cor-NAME ── route ── cos-NAME ═ eth0 of node 2
//	same subnet        pods ── cor-NAME ── route ── eth0 ═ the other machine
//	another network    pods ── cor-NAME ── route ── cov-NAME ─ in UDP ─ eth0 ═ router ═ the other machine
//
// In an encrypted network the tunnel is WireGuard's, and leads to all nodes of other
// machines, also to those of the same subnet.
//
// A further node of a machine is reached from other machines by the first node there,
// and reaches them by it:
//
//	node 2 of a machine ═ cos-NAME ── node 1 ── a route or the tunnel, as above ── another machine
type Routes struct {
	// Name is the name of the cluster, or of its node (clusternames.OfNode), and
	// NodeName that of the node's object.
	Name, NodeName string
	// Own are the addresses by which other machines reach this node. Without them,
	// nodes on other links are not reached.
	Own []netip.Addr
	// Link is the node's interface on the segment, a link that several nodes of this
	// machine share, and Addresses those of the nodes there, by name, at most one of
	// each family.
	Link      string
	Addresses map[string][]netip.Addr
	// Gateways are the addresses of the first node there, if this is a further one,
	// which reaches other machines by it.
	Gateways []netip.Addr
	// Behind are the ranges, masked, of the addresses of the further nodes of another
	// machine, and Front is the name of the first node there.
	Behind []netip.Prefix
	Front  string
	// Encryption keeps the tunnel of an encrypted network. It is nil in any other one, and
	// for a further node, which has no tunnel.
	Encryption *wireguard.Device
	// ClusterCIDRs are the ranges of all pods, and NodeMaskSizeIPv4 and
	// NodeMaskSizeIPv6 the prefix lengths of each node's parts of them.
	ClusterCIDRs                       []netip.Prefix
	NodeMaskSizeIPv4, NodeMaskSizeIPv6 int
}

// Route is the way to a pod CIDR.
type Route struct {
	To   netip.Prefix
	Via  netip.Addr // the next hop, which in the tunnel is the first address of To
	Link string     // name of the interface
}

// mostTold is how many of the addresses of a node a refusal names.
const mostTold = 10

// Plan is what a node's kernel needs to reach the pods of other nodes.
type Plan struct {
	Routes []Route // sorted
	// Tunnel has neither endpoints nor peers if no node needs it.
	Tunnel Tunnel
	// Refused says why ranges get no route, one line for each.
	Refused []string
}

// Tunnel is the interface to the pods of nodes on other links: that of VXLAN, with
// endpoints, or that of WireGuard, with peers.
type Tunnel struct {
	Link       string
	Identifier int        // VNI
	Local      netip.Addr // the address of this node, from which packets are sent
	Hardware   hardware   // of this node's interface
	MTU        int
	Hops       []netip.Addr // the first addresses of this node's pod CIDRs, which the interface has
	Endpoints  []Endpoint
	Peers      []wireguard.Peer
}

// needed reports whether the tunnel leads to any node.
func (t Tunnel) needed() bool { return len(t.Endpoints)+len(t.Peers) > 0 }

// Endpoint is the other end of the tunnel for a pod CIDR.
type Endpoint struct {
	Hop      netip.Addr // the next hop of the route
	Hardware hardware   // of the other node's interface
	Node     netip.Addr // the address of the other node
}

// hardware is the hardware address of an interface of the tunnel.
type hardware [6]byte

// hardwareOf returns the hardware address that the name of a node determines: a
// locally administered one, so that nodes need not tell theirs to each other.
func hardwareOf(node string) hardware {
	var h hardware
	digest := sha256.Sum256([]byte(node))
	copy(h[:], digest[:])
	h[0] = h[0]&^1 | 2
	return h
}

// Plan returns the routes to the pods of peers for the node with its own pod CIDRs
// on a machine with these interfaces. Objects of nodes are mistrusted: a range that
// is not a node's part of the cluster's, or overlaps with the node's own or that of
// an older peer, gets no route. Neither does one whose node has no address that can
// be another machine's, or in the tunnel the hardware address or the key of another
// node. A peer that has reported no address is not refused, nor is one whose machine's
// first node is not there.
func (r Routes) Plan(own []netip.Prefix, peers []Peer, interfaces []Interface) Plan {
	peers = slices.Clone(peers)
	slices.SortFunc(peers, func(a, b Peer) int { return cmp.Or(cmp.Compare(a.Created, b.Created), cmp.Compare(a.Name, b.Name)) })
	plan := Plan{Tunnel: r.tunnel(own, interfaces)}
	var taken claims
	for _, p := range own {
		taken.take(p.Masked())
	}
	for _, p := range peers {
		for _, to := range p.PodCIDRs {
			to = to.Masked()
			reason := r.refuse(to)
			if reason == "" && !taken.take(to) { // also without a route: it is that node's
				reason = "is the range of this node or of an older one"
			}
			if reason == "" {
				reason = plan.reach(r, r.front(p, peers), to, interfaces)
			}
			if reason != "" {
				plan.Refused = append(plan.Refused, fmt.Sprintf("%s of node %s %s", to, p.Name, reason))
			}
		}
	}
	plan.reachBehind(r, peers)
	slices.SortFunc(plan.Routes, func(a, b Route) int { return a.To.Addr().Compare(b.To.Addr()) })
	slices.SortFunc(plan.Tunnel.Endpoints, func(a, b Endpoint) int { return a.Hop.Compare(b.Hop) })
	slices.SortFunc(plan.Tunnel.Peers, func(a, b wireguard.Peer) int { return bytes.Compare(a.Key[:], b.Key[:]) })
	for _, p := range plan.Tunnel.Peers {
		slices.SortFunc(p.AllowedIPs, netip.Prefix.Compare)
	}
	return plan
}

// front returns the node by which this one reaches a peer: the peer, or the first
// node of its machine, without addresses if that is not among the peers.
func (r Routes) front(p Peer, peers []Peer) Peer {
	if !slices.ContainsFunc(p.Addresses, r.isBehind) {
		return p
	}
	if i := slices.IndexFunc(peers, func(other Peer) bool { return other.Name == r.Front }); i >= 0 {
		return peers[i]
	}
	return Peer{Name: r.Front}
}

// isBehind reports whether an address is that of a further node of another machine.
func (r Routes) isBehind(a netip.Addr) bool {
	return slices.ContainsFunc(r.Behind, func(nodes netip.Prefix) bool { return nodes.Contains(a) })
}

// reachBehind adds the way to the addresses of further nodes of another machine, if
// there are any: that to the pods of the first node there.
func (plan *Plan) reachBehind(r Routes, peers []Peer) {
	front := slices.IndexFunc(peers, func(p Peer) bool { return p.Name == r.Front })
	if front < 0 || !slices.ContainsFunc(peers, func(p Peer) bool { return slices.ContainsFunc(p.Addresses, r.isBehind) }) {
		return
	}
	for _, nodes := range r.Behind {
		i := slices.IndexFunc(plan.Routes, func(way Route) bool {
			return way.To.Addr().Is4() == nodes.Addr().Is4() && slices.Contains(peers[front].PodCIDRs, way.To)
		})
		if i < 0 {
			continue
		}
		way := plan.Routes[i]
		plan.Routes = append(plan.Routes, Route{nodes, way.Via, way.Link})
		for j, p := range plan.Tunnel.Peers {
			if slices.Contains(p.AllowedIPs, way.To) {
				plan.Tunnel.Peers[j].AllowedIPs = append(p.AllowedIPs, nodes)
			}
		}
	}
}

// onSegment adds the way by a node of this machine, or returns why there is none.
func (plan *Plan) onSegment(r Routes, to netip.Prefix, addresses []netip.Addr) (reason string) {
	i := slices.IndexFunc(addresses, func(a netip.Addr) bool { return a.Is4() == to.Addr().Is4() })
	if i < 0 {
		return "is of another family than the addresses of the nodes of this machine"
	}
	plan.Routes = append(plan.Routes, Route{to, addresses[i], r.Link})
	return ""
}

// reach adds the way to a range by a peer, or returns why there is none.
func (plan *Plan) reach(r Routes, p Peer, to netip.Prefix, interfaces []Interface) (reason string) {
	if addresses, ok := r.Addresses[p.Name]; ok {
		return plan.onSegment(r, to, addresses)
	}
	if len(p.Addresses) == 0 {
		return ""
	}
	if len(r.Gateways) > 0 {
		return plan.onSegment(r, to, r.Gateways)
	}
	var far netip.Addr
	for _, a := range p.Addresses {
		if !r.canBe(a) {
			continue
		}
		if link := linkTo(a, r.Own, interfaces); link != "" && r.Encryption == nil && a.Is4() == to.Addr().Is4() {
			plan.Routes = append(plan.Routes, Route{to, a, link})
			return ""
		}
		if local := plan.Tunnel.Local; !far.IsValid() && local.IsValid() && a.Is4() == local.Is4() {
			far = a
		}
	}
	if !far.IsValid() {
		return fmt.Sprint("has no address of another machine of the family of this node's: ", p.Addresses[:min(len(p.Addresses), mostTold)])
	}
	hop := to.Addr().Next()
	if !to.Contains(hop) {
		return "has no second address, which would be the next hop"
	}
	if r.Encryption == nil {
		reason = plan.Tunnel.addEndpoint(Endpoint{hop, hardwareOf(p.Name), far})
	} else {
		reason = plan.Tunnel.addPeer(r.Encryption.Identity().Key, p.WireGuard, far, to)
	}
	if reason == "" {
		plan.Routes = append(plan.Routes, Route{to, hop, plan.Tunnel.Link})
	}
	return reason
}

// addEndpoint adds the other end of a tunnel of VXLAN, or returns why it cannot be one.
func (t *Tunnel) addEndpoint(end Endpoint) (reason string) {
	if end.Hardware == t.Hardware || slices.ContainsFunc(t.Endpoints, func(e Endpoint) bool { return e.Hardware == end.Hardware && e.Node != end.Node }) {
		// A name can be sought that has this digest.
		return "is of a node whose name has the hardware address of another one's"
	}
	t.Endpoints = append(t.Endpoints, end)
	return ""
}

// addPeer lets a node, which has published its identity, receive and send what is for
// and from a range, or returns why it cannot. own is the key of this node.
func (t *Tunnel) addPeer(own wireguard.Key, published wireguard.Identity, node netip.Addr, to netip.Prefix) (reason string) {
	if published == (wireguard.Identity{}) {
		return "is of a node that has not published its key"
	}
	endpoint := netip.AddrPortFrom(node, published.Port)
	i := slices.IndexFunc(t.Peers, func(p wireguard.Peer) bool { return p.Key == published.Key })
	switch {
	case published.Key == own || i >= 0 && t.Peers[i].Endpoint != endpoint:
		return "is of a node that has published the key of another one"
	case i >= 0:
		t.Peers[i].AllowedIPs = append(t.Peers[i].AllowedIPs, to)
	default:
		t.Peers = append(t.Peers, wireguard.Peer{Key: published.Key, Endpoint: endpoint, AllowedIPs: []netip.Prefix{to}})
	}
	return ""
}

// canBe reports whether an address can be that of another machine. What is sent to
// a pod or to this node itself would enter the tunnel again.
func (r Routes) canBe(a netip.Addr) bool {
	return a.IsGlobalUnicast() && !slices.Contains(r.Own, a) && !r.ofCluster(netip.PrefixFrom(a, a.BitLen())) && !r.isBehind(a)
}

// claims are address ranges that share no address, sorted.
type claims []netip.Prefix

// take adds a range, or returns false if it shares addresses with another one.
func (c *claims) take(p netip.Prefix) bool {
	i, _ := slices.BinarySearchFunc(*c, p, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	if i > 0 && (*c)[i-1].Overlaps(p) || i < len(*c) && (*c)[i].Overlaps(p) {
		return false
	}
	*c = slices.Insert(*c, i, p)
	return true
}

// refuse returns why a range cannot be a node's, or "".
func (r Routes) refuse(to netip.Prefix) string {
	size := r.NodeMaskSizeIPv4
	if to.Addr().Is6() {
		size = r.NodeMaskSizeIPv6
	}
	switch {
	case !r.ofCluster(to):
		return "is not in the cluster CIDR"
	case to.Bits() < size: // a longer one may be of before the mask size was changed
		return fmt.Sprintf("is larger than a node's range, /%d", size)
	}
	return ""
}

func (r Routes) ofCluster(to netip.Prefix) bool {
	return slices.ContainsFunc(r.ClusterCIDRs, func(c netip.Prefix) bool { return c.Bits() <= to.Bits() && c.Contains(to.Addr()) })
}

// tunnel returns the tunnel without endpoints. Packets in it have IPv4 addresses if
// this node has one, so that all nodes of a cluster send the same.
func (r Routes) tunnel(own []netip.Prefix, interfaces []Interface) Tunnel {
	t := Tunnel{Link: clusternames.Tunnel(r.Name), Identifier: r.identifier(), Hardware: hardwareOf(r.NodeName)}
	for _, a := range r.Own {
		if slices.Contains(r.Addresses[r.NodeName], a) {
			continue // other machines do not reach it
		}
		if !t.Local.IsValid() || a.Is4() && !t.Local.Is4() {
			t.Local = a
		}
	}
	t.MTU = mtuInside(mtuAt(t.Local, interfaces), t.Local, r.Encryption != nil)
	for _, p := range own {
		t.Hops = append(t.Hops, p.Masked().Addr().Next())
	}
	return t
}

// identifier returns the VXLAN network identifier, of 24 bits. The ranges of pods
// determine it: those of clusters that share a machine differ.
func (r Routes) identifier() int {
	digest := sha256.New()
	for _, c := range r.ClusterCIDRs {
		_, _ = fmt.Fprintln(digest, c.Masked()) // a hash takes everything
	}
	return int(binary.BigEndian.Uint32(digest.Sum(nil))>>9 | 1<<23)
}

// defaultMTU is that of Ethernet.
const defaultMTU = 1500

// mtuInside returns the MTU of what is sent through a tunnel over a link with the
// given MTU, 0 if that is unknown. The headers around a packet are Ethernet (14
// bytes) and VXLAN (8), or WireGuard's (16) and a tag (16), and UDP (8), and IPv4 (20)
// or IPv6 (40).
func mtuInside(mtu int, local netip.Addr, encrypted bool) int {
	headers := 14 + 8
	if encrypted {
		headers = 16 + 16
	}
	headers += 8 + 20
	if local.Is6() {
		headers += 20
	}
	return cmp.Or(mtu, defaultMTU) - headers
}
