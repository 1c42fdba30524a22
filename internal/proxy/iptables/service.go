package iptables

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/proxy"
)

// part is what one port of a Service, or one host port, adds to the tables.
type part struct {
	// own are chains of the table nat that no other part has.
	own chains
	// nat and filter are rules of chains that parts share.
	nat, filter chains
	// closed are rules of KUBE-EXTERNAL-SERVICES about a node port without endpoints.
	// What matches the node's addresses comes before them.
	closed []string
}

func newPart() *part { return &part{own: chains{}, nat: chains{}, filter: chains{}} }

// service makes the part of a port of a Service.
type service struct {
	settings
	*part
	port *proxy.ServicePort
	// label is namespace/name:port, for comments and hashes.
	label, protocol string
	hash            string
}

// ofService returns the part for a port of a Service. If the kernel lacks what its
// session affinity needs, it is as without endpoints: that clients are refused is more
// than that their packets leave the node.
func (s settings) ofService(name proxy.PortName, p *proxy.ServicePort) *part {
	if s.lacks.protocol(name.Protocol) {
		return newPart()
	}
	if s.lacks.affinity(p) {
		p = new(*p)
		p.Cluster, p.Local = nil, nil
	}
	label, protocol := name.Label(), protocolOf(name.Protocol)
	w := &service{settings: s, part: newPart(), port: p, label: label, protocol: protocol, hash: hash(label + protocol)}
	w.clusterIP()
	outside := len(p.External)+len(p.LoadBalancer) > 0 || p.NodePort != 0
	if outside {
		w.outside()
	}
	if p.HealthCheckNodePort != 0 {
		w.filter.add(nodePorts, w.says("health check node port")+fmt.Sprintf("-p tcp -m tcp --dport %d -j ACCEPT", p.HealthCheckNodePort))
	}
	var used []netip.AddrPort
	if outside || !p.InternalLocal {
		w.choose(w.chain("SVC"), p.Cluster)
		used = slices.Clone(p.Cluster)
	}
	if p.InternalLocal || outside && p.ExternalLocal {
		w.choose(w.chain("SVL"), p.Local)
		used = append(used, p.Local...)
	}
	slices.SortFunc(used, netip.AddrPort.Compare)
	for _, e := range slices.Compact(used) {
		w.endpoint(e)
	}
	return w.part
}

// chain returns the name of a chain of the port: KUBE-SVC for all endpoints, KUBE-SVL
// for those on this node, KUBE-EXT for connections from outside, and KUBE-FW for those
// to load balancers that only some clients may use.
func (w *service) chain(kind string) string { return "KUBE-" + kind + "-" + w.hash }

// endpointChain returns the name of the chain of an endpoint.
func (w *service) endpointChain(e netip.AddrPort) string {
	return "KUBE-SEP-" + hash(w.label+w.protocol+e.String())
}

// says returns a comment about the port.
func (w *service) says(what string) string { return comment(w.label + " " + what) }

// to matches connections to the port of an address.
func (w *service) to(a netip.Addr) string {
	return fmt.Sprintf("-d %s -p %s -m %s --dport %d ", a, w.protocol, w.protocol, w.port.Port)
}

// clusterIP adds the rules about the cluster IP.
func (w *service) clusterIP() {
	chain, endpoints := w.chain("SVC"), w.port.Cluster
	if w.port.InternalLocal {
		chain, endpoints = w.chain("SVL"), w.port.Local
	}
	at := w.to(w.port.ClusterIP)
	if len(endpoints) == 0 {
		w.filter.add(services, w.refuse(at))
		return
	}
	w.nat.add(services, w.says("cluster IP")+at+"-j "+chain)
	if others := w.fromPods(true); w.masqueradeAll || others != "" {
		if w.masqueradeAll {
			others = ""
		}
		w.own.add(chain, w.says("cluster IP")+others+at+"-j "+markMasquerade)
	}
}

// refuse returns a rule that rejects connections without endpoints, or drops them if
// the policy excludes the existing ones. A TCP connection is refused by a reset: the
// kernel sends a client only about one ICMP error a second.
func (w *service) refuse(at string) string {
	switch {
	case len(w.port.Cluster) > 0:
		return w.says("has no local endpoints") + at + "-j DROP"
	case w.protocol == "tcp":
		return w.says("has no endpoints") + at + "-j REJECT --reject-with tcp-reset"
	}
	return w.says("has no endpoints") + at + "-j REJECT"
}

// outside adds the rules about external addresses, load balancers and the node port.
func (w *service) outside() {
	p, external := w.port, w.chain("EXT")
	endpoints := p.Cluster
	if p.ExternalLocal {
		endpoints = p.Local
	}
	if len(p.Cluster) > 0 {
		w.fromOutside(external, len(endpoints) > 0)
	}
	frontend := func(a netip.Addr, what, chain string) {
		if len(p.Cluster) > 0 {
			w.nat.add(services, w.says(what)+w.to(a)+"-j "+chain)
		}
		if len(endpoints) == 0 {
			w.filter.add(externalServices, w.refuse(w.to(a)))
		}
	}
	for _, a := range p.External {
		frontend(a, "external IP", external)
	}
	balancer := external
	if len(p.LoadBalancer) > 0 && len(p.SourceRanges) > 0 && len(p.Cluster) > 0 {
		balancer = w.chain("FW")
		w.allow(balancer, external)
	}
	for _, a := range p.LoadBalancer {
		frontend(a, "loadbalancer IP", balancer)
	}
	if p.NodePort == 0 {
		return
	}
	at := fmt.Sprintf("-p %s -m %s --dport %d ", w.protocol, w.protocol, p.NodePort)
	if len(p.Cluster) > 0 {
		w.nat.add(nodePorts, comment(w.label)+at+"-j "+external)
	}
	if len(endpoints) == 0 {
		w.closed = append(w.closed, w.refuse(at))
	}
}

// fromOutside adds the chain for connections from outside. With policy Local the
// client's address is kept. Pods and the node itself may use all endpoints, as with a
// cluster IP.
func (w *service) fromOutside(chain string, hasEndpoints bool) {
	about := func(what string) string { return comment(what + " " + w.label + " external destinations") }
	if !w.port.ExternalLocal {
		w.own.add(chain, about("masquerade traffic for")+"-j "+markMasquerade)
		w.own.add(chain, "-j "+w.chain("SVC"))
		return
	}
	if pods := w.fromPods(false); pods != "" {
		w.own.add(chain, about("pod traffic for")+pods+"-j "+w.chain("SVC"))
	}
	w.own.add(chain, about("masquerade LOCAL traffic for")+"-m addrtype --src-type LOCAL -j "+markMasquerade)
	w.own.add(chain, about("route LOCAL traffic for")+"-m addrtype --src-type LOCAL -j "+w.chain("SVC"))
	if hasEndpoints {
		w.own.add(chain, "-j "+w.chain("SVL"))
	}
}

// allow adds the chain that lets the clients of the source ranges use a load balancer,
// and the rules that drop what others send there.
func (w *service) allow(chain, external string) {
	for _, allowed := range w.port.SourceRanges {
		w.own.add(chain, w.says("loadbalancer IP")+"-s "+allowed.String()+" -j "+external)
	}
	w.own.add(chain, strings.TrimSpace(comment("other traffic to "+w.label+" will be dropped by "+proxyFirewall)))
	for _, a := range w.port.LoadBalancer {
		w.filter.add(proxyFirewall, w.says("traffic not accepted by "+chain)+w.to(a)+"-j DROP")
	}
}

// choose adds the rules of a chain that select one of the endpoints: with affinity the
// one that the client had last, else any with the same probability.
func (w *service) choose(chain string, endpoints []netip.AddrPort) {
	if w.port.Affinity > 0 {
		for _, e := range endpoints {
			name := w.endpointChain(e)
			w.own.add(chain, fmt.Sprintf("%s-m recent --name %s --rcheck --seconds %d --reap -j %s",
				w.says("-> "+e.String()), name, max(1, int(w.port.Affinity/time.Second)), name))
		}
	}
	for i, e := range endpoints {
		chance := ""
		if left := len(endpoints) - i; left > 1 {
			chance = fmt.Sprintf("-m statistic --mode random --probability %.10f ", 1/float64(left))
		}
		w.own.add(chain, w.says("-> "+e.String())+chance+"-j "+w.endpointChain(e))
	}
}

// endpoint adds the chain of an endpoint. What it sends itself through the Service is
// masqueraded, so that the answers return by the node.
func (w *service) endpoint(e netip.AddrPort) {
	chain, remember := w.endpointChain(e), ""
	if w.port.Affinity > 0 {
		remember = "-m recent --name " + chain + " --set "
	}
	w.own.add(chain, comment(w.label)+"-s "+e.Addr().String()+" -j "+markMasquerade)
	w.own.add(chain, fmt.Sprintf("%s%s-p %s -m %s -j DNAT --to-destination %s", comment(w.label), remember, w.protocol, w.protocol, e))
}

// ofHostPort returns the part for a host port.
func (s settings) ofHostPort(k proxy.LocalPort, to proxy.HostPort) *part {
	p, protocol := newPart(), protocolOf(k.Protocol)
	if s.lacks.protocol(k.Protocol) {
		return p
	}
	chain := "KUBE-HP-" + hash(fmt.Sprintf("%s %d %s", k.Address, k.Port, protocol))
	at := fmt.Sprintf("-p %s -m %s --dport %d ", protocol, protocol, k.Port)
	if k.Address.IsValid() {
		at = "-d " + k.Address.String() + " " + at
	}
	says := comment(to.Pod.String() + " host port")
	p.nat.add(hostPorts, says+at+"-j "+chain)
	p.own.add(chain, says+"-s "+to.To.Addr().String()+" -j "+markMasquerade)
	if s.is4 { // the pod cannot answer a loopback address
		p.own.add(chain, says+"-s 127.0.0.0/8 -j "+markMasquerade)
	}
	p.own.add(chain, fmt.Sprintf("%s-p %s -m %s -j DNAT --to-destination %s", says, protocol, protocol, to.To))
	return p
}

// protocolOf returns the name of a protocol in rules.
func protocolOf(p v1.Protocol) string {
	switch p {
	case v1.ProtocolUDP:
		return "udp"
	case v1.ProtocolSCTP:
		return "sctp"
	}
	return "tcp"
}

// hash returns a short name for a text. It is kube-proxy's, so that the chains of a
// Service have the same names with both.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base32.StdEncoding.EncodeToString(sum[:])[:16]
}

// longestComment is how long the kernel lets a comment be, in bytes.
const longestComment = 255

// comment returns the match of a comment, with a space at the end.
func comment(text string) string {
	return "-m comment --comment " + quote(text[:min(len(text), longestComment)]) + " "
}

// quote returns a text in quotation marks. It leaves out whatever could end it: the
// text may come from a file, and the input is read by root.
func quote(text string) string {
	return `"` + strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || r == '"' || r == '\\' {
			return -1
		}
		return r
	}, text) + `"`
}
