package cluster

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/coracle-io/coracle/internal/clusterdefaults"
	"github.com/coracle-io/coracle/internal/clusternames"
	"github.com/coracle-io/coracle/internal/flagvalue"
	"github.com/coracle-io/coracle/internal/segment"
)

// checkNodes returns an error if this machine cannot have the nodes.
func (o *settings) checkNodes() error {
	n := o.Node
	if n == nil {
		return nil
	}
	if n.Count < 1 || n.Count > clusterdefaults.MaxNodes {
		return wrong("Node.Count", strconv.Itoa(n.Count), "want 1 to %d", clusterdefaults.MaxNodes)
	}
	if err := n.Ingress.check(); err != nil {
		return err
	}
	if n.Number < 1 || n.Number > n.Count {
		return wrong("Node.Number", strconv.Itoa(n.Number), "want 1 to %d, which is how many nodes there are", n.Count)
	}
	if err := o.checkEach(); err != nil {
		return err
	}
	if !n.each(n.Number).Exists() {
		return wrong("Node.Number", strconv.Itoa(n.Number), "this node has been removed")
	}
	if err := errors.Join(o.parseNodeCIDR(), o.checkNetwork()); err != nil {
		return err
	}
	if n.Joined != nil && (n.Count > 1 || !n.SeparateProcess) {
		return wrong("Node.Joined", n.Joined.Server, "want one node on this machine, in a process of its own: set SeparateProcess, and leave Count out")
	}
	if n.Count == 1 {
		return nil
	}
	count := strconv.Itoa(n.Count)
	switch {
	case !n.SeparateProcess:
		return wrong("Node.Count", count, "several nodes need processes of their own: set SeparateProcess")
	case n.ContainerRuntimeEndpoint != "":
		return wrong("Node.ContainerRuntimeEndpoint", n.ContainerRuntimeEndpoint, "a container runtime that is not the cluster's own runs one node, and this cluster has %d: leave it out", n.Count)
	case n.Network != "":
		return wrong("Node.Network", n.Network, "the nodes of this machine would share the configuration of the CNI plugin, and this cluster has %d: leave it out", n.Count)
	case o.parsed.bind.IsLoopback():
		return wrong("BindAddress", o.BindAddress, "further nodes do not reach the API server there: want 0.0.0.0, or an address of this machine that is not loopback")
	}
	if longest := maxNodeName - len("/"+count); len(o.Name) > longest {
		return wrong("Name", o.Name, "the name is part of the paths of the further nodes' sockets: choose one of at most %d characters", longest)
	}
	return errors.Join(o.checkNodeNames(), o.checkNodeCIDR(), o.checkOneNodeArguments())
}

// parseNodeCIDR parses the ranges of the nodes' addresses.
func (o *settings) parseNodeCIDR() error {
	cidr := o.Node.CIDR
	for r := range strings.SplitSeq(cidr, ",") {
		p, err := netip.ParsePrefix(r)
		if err != nil || slices.ContainsFunc(o.parsed.nodes, func(other netip.Prefix) bool { return other.Addr().Is4() == p.Addr().Is4() }) {
			return wrong("Node.CIDR", cidr, "want a range such as %s, or one of each family with a comma between", clusterdefaults.NodeCIDR)
		}
		o.parsed.nodes = append(o.parsed.nodes, p.Masked())
	}
	return nil
}

// checkNodeCIDR checks the ranges of the nodes' addresses. Each family of pods and
// Services needs one: the nodes are the next hops to the pods.
func (o *settings) checkNodeCIDR() error {
	cidr := o.Node.CIDR
	if !o.segment().Address(o.Node.Count).IsValid() {
		return wrong("Node.CIDR", cidr, "the range has too few addresses for %d nodes: choose one such as %s", o.Node.Count, clusterdefaults.NodeCIDR)
	}
	for _, other := range []struct{ field, ranges string }{{"ClusterCIDR", o.ClusterCIDR}, {"ServiceCIDR", o.ServiceCIDR}} {
		for _, r := range prefixes(other.ranges) {
			if !slices.ContainsFunc(o.parsed.nodes, func(nodes netip.Prefix) bool { return nodes.Addr().Is4() == r.Addr().Is4() }) {
				return wrong("Node.CIDR", cidr, "there is no range of the family of %s, which is %s: the default is %s", other.field, other.ranges, defaultNodeCIDR(o.ClusterCIDR))
			}
			if slices.ContainsFunc(o.parsed.nodes, r.Overlaps) {
				return wrong("Node.CIDR", cidr, "it overlaps with %s, which is %s: choose another range", other.field, other.ranges)
			}
		}
	}
	for _, r := range o.Node.Behind.ranges() {
		if slices.ContainsFunc(o.parsed.nodes, r.Overlaps) {
			return wrong("Node.CIDR", cidr, "the nodes on the machine of node %s have addresses in %s: choose another range", o.Node.Behind.Node, r)
		}
	}
	return nil
}

// defaultNodeCIDR returns the ranges of the nodes' addresses in a cluster whose pods
// have the given ranges.
func defaultNodeCIDR(clusterCIDR string) string {
	return clusterdefaults.NodeCIDRs(clusterCIDR, clusterdefaults.NodeCIDR, clusterdefaults.NodeCIDRIPv6)
}

// checkOneNodeArguments refuses arguments of the kubelet and the proxy that
// several nodes cannot share.
func (o *settings) checkOneNodeArguments() error {
	for _, of := range []struct {
		field     string
		arguments []string
		one       []string
	}{
		{"KubeletArgs", o.kubeletArgsOfAll(), clusterdefaults.OneNodeKubeletFlags()},
		{"ProxyArgs", o.ProxyArgs, []string{"hostname-override"}},
	} {
		for _, argument := range of.arguments {
			if slices.Contains(of.one, flagvalue.ParseArgument(argument).Name) {
				return wrong(of.field, argument, "the nodes of this machine cannot share it: leave it out, or have one node")
			}
		}
	}
	return nil
}

// kubeletArgsOfAll returns the flags of the kubelets of all nodes.
func (o *settings) kubeletArgsOfAll() []string {
	all := slices.Clone(o.KubeletArgs)
	for _, each := range o.Node.Each {
		all = append(all, each.KubeletArgs...)
	}
	return all
}

// segment returns what connects the nodes of this machine.
func (o *settings) segment() segment.Segment { return segment.New(o.Name, o.parsed.nodes...) }

// several reports whether this machine has more than one node.
func (o *settings) several() bool { return o.Node != nil && o.Node.Count > 1 }

// node returns the settings of a node of this machine.
func (o *settings) node(number int) *settings {
	of, node := *o, *o.Node
	of.Node, node.Number = &node, number
	if number == 1 {
		return &of
	}
	of.NodeName = o.NameOfNode(number)
	of.DataDir = filepath.Join(o.DataDir, "nodes", strconv.Itoa(number))
	node.RunDir = filepath.Join(o.Node.RunDir, strconv.Itoa(number))
	node.NFTable = clusternames.OfNode(o.Node.NFTable, number)
	node.CgroupRoot = clusternames.OfNode(o.Node.CgroupRoot, number)
	return &of
}

// own returns the name by which the node names what it makes.
func (o *settings) own() string { return clusternames.OfNode(o.Name, o.Node.Number) }

// further reports whether these are the settings of a further node.
func (o *settings) further() bool { return o.Node.Number > 1 }

// member returns the place of a further node on the segment.
func (o *settings) member() segment.Member {
	host, _, _ := strings.Cut(o.NodeName, ".")
	return segment.Member{Segment: o.segment(), Node: o.Node.Number, Namespace: filepath.Join(o.Node.RunDir, "netns"), HostName: host}
}

// withSegment adds to the addresses of the first of several nodes those that it has on
// the segment, of the families that are missing: the other nodes of the machine reach
// pods in its host's network and its DNS server there.
func (o *settings) withSegment(addresses []net.IP) []net.IP {
	if !o.several() || o.further() {
		return addresses
	}
	for _, a := range o.segment().Addresses(1) {
		if !slices.ContainsFunc(addresses, func(ip net.IP) bool { return (ip.To4() != nil) == a.Is4() }) {
			addresses = append(addresses, a.AsSlice())
		}
	}
	return addresses
}

// nodeAddresses returns the addresses of a further node, one of each family.
func (o *settings) nodeAddresses() []net.IP {
	var addresses []net.IP
	for _, a := range o.segment().Addresses(o.Node.Number) {
		addresses = append(addresses, a.AsSlice())
	}
	return addresses
}

// EnterNode makes this process one of the node that Node.Number names, which
// NewNode needs: it makes what is missing of the node's network namespace and
// replaces this process by the same program with the same arguments there. It
// returns nil at once for the first node, and in the program that it has started.
func EnterNode(o Options) error {
	settings, err := complete(o)
	if err != nil || settings.Node == nil {
		return err
	}
	of := settings.node(settings.Node.Number)
	if !of.further() {
		return nil
	}
	m := of.member()
	if inside, err := m.Inside(); inside || err != nil {
		return err
	}
	if err := m.Enter(); err != nil {
		return fmt.Errorf("enter node %s: %w", of.NodeName, err)
	}
	return nil
}
