package cluster

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/coracle-io/coracle/internal/clusterdefaults"
)

// EachNode configures one of the nodes of this machine (NodeOptions.Each).
type EachNode struct {
	// Name is the name of a further node. The default is NodeName with the number
	// after its first part, such as host-2. The first node is called NodeName.
	Name string `json:"name,omitzero"`
	// Labels are the labels with which the node registers. Of a node that is
	// registered, they change only those that describe the machine, such as the zone.
	Labels map[string]string `json:"labels,omitzero"`
	// Taints are the taints with which the node registers, as KEY=VALUE:EFFECT.
	Taints []string `json:"taints,omitzero"`
	// KubeletArgs are flags of this kubelet, as name=value, in addition to
	// Options.KubeletArgs.
	KubeletArgs []string `json:"kubeletArgs,omitzero"`
	// State says whether the node is there.
	State NodeState `json:"state,omitzero"`
}

// NodeState says whether a node of this machine is there.
type NodeState string

// States of a node.
const (
	NodePresent NodeState = ""        // it runs with the cluster
	NodeAdding  NodeState = "adding"  // likewise, and it has not been ready yet
	NodeLeaving NodeState = "leaving" // it runs no more, and what it has made is being removed
	NodeRemoved NodeState = "removed" // nothing of it is left
)

// Exists reports whether the node runs with the cluster.
func (n EachNode) Exists() bool { return n.State == NodePresent || n.State == NodeAdding }

// arguments returns the flags of the node's kubelet.
func (n EachNode) arguments() []string {
	var all []string
	if len(n.Labels) > 0 {
		all = append(all, "node-labels="+labels.Set(n.Labels).String())
	}
	if len(n.Taints) > 0 {
		all = append(all, "register-with-taints="+strings.Join(n.Taints, ","))
	}
	return append(all, n.KubeletArgs...)
}

// each returns the configuration of a node, numbered from 1.
func (n *NodeOptions) each(number int) EachNode {
	if number > len(n.Each) {
		return EachNode{}
	}
	return n.Each[number-1]
}

// NodeNumbers returns the numbers of the nodes on this machine, in order. There are
// none without Node.
func (o Options) NodeNumbers() []int {
	if o.Node == nil {
		return nil
	}
	var numbers []int
	for number := 1; number <= min(max(o.Node.Count, 1), clusterdefaults.MaxNodes); number++ {
		if o.Node.each(number).Exists() {
			numbers = append(numbers, number)
		}
	}
	return numbers
}

// NodeNames returns the names of the nodes on this machine, in the order of
// NodeNumbers.
func (o Options) NodeNames() []string {
	var names []string
	for _, number := range o.NodeNumbers() {
		names = append(names, o.NameOfNode(number))
	}
	return names
}

// NameOfNode returns the name of a node of this machine, numbered from 1: NodeName,
// and for further nodes EachNode.Name, or NodeName with the number after its first
// part, such as host-2.
func (o Options) NameOfNode(number int) string {
	if number == 1 {
		return o.NodeName
	}
	if o.Node != nil {
		if name := o.Node.each(number).Name; name != "" {
			return name
		}
	}
	return furtherName(o.NodeName, number)
}

// KubeletArgsOf returns the flags of the kubelet of a node of this machine, numbered
// from 1.
func (o Options) KubeletArgsOf(number int) []string {
	if o.Node == nil {
		return o.KubeletArgs
	}
	return slices.Concat(o.KubeletArgs, o.Node.each(number).arguments())
}

// furtherName returns the name that a further node of the machine called name has by
// default.
func furtherName(name string, number int) string {
	host, domain, qualified := strings.Cut(name, ".")
	host += "-" + strconv.Itoa(number)
	if qualified {
		host += "." + domain
	}
	return host
}

// checkEach returns an error if Node.Each cannot configure the nodes.
func (o *settings) checkEach() error {
	n := o.Node
	if len(n.Each) > n.Count {
		return wrong("Node.Each", strconv.Itoa(len(n.Each)), "want at most %d nodes, which is Node.Count", n.Count)
	}
	for i, each := range n.Each {
		field := fmt.Sprintf("Node.Each[%d]", i)
		switch each.State {
		case NodePresent, NodeAdding, NodeLeaving, NodeRemoved:
		default:
			return wrong(field+".State", string(each.State), "want one of adding, leaving and removed, or nothing")
		}
		if i == 0 && (each.Name != "" || !each.Exists()) {
			return wrong(field, each.Name+string(each.State), "the first node is the machine: it is called NodeName, and is there as long as the cluster is")
		}
		if problems := validation.IsDNS1123Subdomain(each.Name); each.Name != "" && len(problems) > 0 {
			return wrong(field+".Name", each.Name, "%s", strings.Join(problems, "; "))
		}
	}
	return nil
}

// checkNodeNames returns an error if two nodes have the same name, or one that is too
// long. A node that is being removed has its name until that is done.
func (o *settings) checkNodeNames() error {
	names := map[string]int{}
	for number := 1; number <= o.Node.Count; number++ {
		if o.Node.each(number).State == NodeRemoved {
			continue
		}
		name := o.NameOfNode(number)
		if first, _, _ := strings.Cut(name, "."); len(first) > validation.DNS1123LabelMaxLength || len(name) > validation.DNS1123SubdomainMaxLength {
			return wrong("NodeName", o.NodeName, "a further node would be called %s, which is too long for a host name: choose a shorter one", name)
		}
		if other, taken := names[name]; taken {
			return wrong("NodeName", o.NodeName, "nodes %d and %d of this machine would both be called %s: choose another name for one of them", other, number, name)
		}
		names[name] = number
	}
	return nil
}

// present returns the names of the nodes that this machine has now, by number: those
// that Node.Present returns, or else those of the options.
func (o *settings) present() map[int]string {
	if o.Node.Present != nil {
		if names := o.Node.Present(); len(names) > 0 {
			return names
		}
	}
	given := o.Options
	given.NodeName = o.parsed.firstNode
	names := map[int]string{}
	for _, number := range given.NodeNumbers() {
		names[number] = given.NameOfNode(number)
	}
	return names
}
