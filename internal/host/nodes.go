package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/internal/clusterdefaults"
	"github.com/coracle-io/coracle/internal/sharedfile"
)

// nodesFlag is the flag that says how many nodes there are. Its field in a
// configuration file may be a list, which configures each of them.
const nodesFlag = "nodes"

// NodeNumbers returns the numbers of the nodes on this machine, in order.
func (s Settings) NodeNumbers() []int { return s.ClusterOptions().NodeNumbers() }

// Several reports whether the cluster has, or has had, more than one node on this
// machine.
func (s Settings) Several() bool {
	s.copyPointers()
	s.countNodes()
	return s.Options.Node.Count > 1
}

// NodesLeft returns the numbers of the nodes on this machine, and of those whose removal
// has begun and not ended, in order.
func (s Settings) NodesLeft() []int {
	o := s.ClusterOptions()
	if o.Node == nil {
		return nil
	}
	var numbers []int
	for number := 1; number <= max(o.Node.Count, 1); number++ {
		if s.StateOfNode(number) != cluster.NodeRemoved {
			numbers = append(numbers, number)
		}
	}
	return numbers
}

// StateOfNode returns the state of a node of this machine.
func (s Settings) StateOfNode(number int) cluster.NodeState { return s.eachNode(number).State }

// FindNode returns the number of a node of this machine, and its state. A node that
// was removed is not found; ok is false then.
func (s Settings) FindNode(name string) (number int, state cluster.NodeState, ok bool) {
	o := s.ClusterOptions()
	for _, number := range s.NodesLeft() {
		if o.NameOfNode(number) == name {
			return number, s.StateOfNode(number), true
		}
	}
	return 0, "", false
}

// eachNode returns how a node is configured.
func (s *Settings) eachNode(number int) cluster.EachNode {
	if each := nodeOf(s.Options).Each; number <= len(each) {
		return each[number-1]
	}
	return cluster.EachNode{}
}

// setNode configures a node.
func (s *Settings) setNode(number int, node cluster.EachNode) {
	s.copyPointers()
	each := slices.Clone(s.Options.Node.Each)
	if number > len(each) && reflect.DeepEqual(node, cluster.EachNode{}) {
		return
	}
	for len(each) < number {
		each = append(each, cluster.EachNode{})
	}
	each[number-1] = node
	s.Options.Node.Each = each
}

// AddNode adds a node and returns its number: the one after the highest of a node, so
// that nodes are in the order in which they were added. If that is more than there
// can be, it is the lowest that a removed node has left.
func (s *Settings) AddNode(node cluster.EachNode) int {
	number := 1
	if numbers := s.NodeNumbers(); len(numbers) > 0 {
		number = numbers[len(numbers)-1] + 1
	}
	each := nodeOf(s.Options).Each
	for number <= len(each) && each[number-1].State == cluster.NodeLeaving {
		number++
	}
	if number > s.highestNode() {
		if free := slices.IndexFunc(each, func(n cluster.EachNode) bool { return n.State == cluster.NodeRemoved }); free >= 0 {
			number = free + 1
		}
	}
	s.setNode(number, node)
	s.Nodes++
	return number
}

// highestNode returns the highest number that a node can have.
func (s *Settings) highestNode() int {
	highest := clusterdefaults.MaxNodes
	for r := range strings.SplitSeq(nodeOf(s.Options).CIDR, ",") {
		cidr, err := netip.ParsePrefix(r)
		if err != nil {
			continue
		}
		if bits := cidr.Addr().BitLen() - cidr.Bits(); bits <= 16 {
			highest = min(highest, 1<<bits-2)
		}
	}
	return highest
}

// SetNodeState changes the state of a node. One that is removed loses its
// configuration.
func (s *Settings) SetNodeState(number int, state cluster.NodeState) {
	was := s.eachNode(number)
	now := was
	if now.State = state; state == cluster.NodeRemoved {
		now = cluster.EachNode{State: state}
	}
	s.setNode(number, now)
	switch {
	case was.Exists() && !now.Exists():
		s.Nodes--
	case !was.Exists() && now.Exists():
		s.Nodes++
	}
}

// arrangeNodes makes the nodes of kept those of s, whose number may be higher, and
// configures them as listed, in their order; without a list they stay as they are. It
// returns what that changes in nodes that kept has.
func (s *Settings) arrangeNodes(kept *Settings, listed []cluster.EachNode) []Change {
	wanted := s.Nodes
	if kept.Nodes > 0 && wanted > kept.Nodes {
		for s.Nodes = kept.Nodes; s.Nodes < wanted; {
			s.AddNode(cluster.EachNode{})
		}
	}
	if wanted < kept.Nodes { // which is refused
		return nil
	}
	var changes []Change
	for i, number := range s.NodeNumbers() {
		if i >= len(listed) {
			break
		}
		was, now := s.eachNode(number), listed[i]
		now.State = was.State
		if now.Name == "" || now.Name == s.ClusterOptions().NameOfNode(number) {
			now.Name = was.Name
		}
		s.setNode(number, now)
		if i >= kept.Nodes || reflect.DeepEqual(was, now) {
			continue
		}
		c := Change{Flag: fmt.Sprintf("%s[%d]", nodesFlag, i), Field: true, From: describe(was), To: describe(now)}
		if was.Name != now.Name {
			c.Refused = nodeHasName
		}
		changes = append(changes, c)
	}
	return changes
}

// describe returns the configuration of a node for people.
func describe(n cluster.EachNode) string {
	var parts []string
	add := func(what string, values ...string) {
		if text := strings.Join(values, ","); text != "" {
			parts = append(parts, what+" "+text)
		}
	}
	add("name", n.Name)
	add("labels", labels.Set(n.Labels).String())
	add("taints", n.Taints...)
	add("kubeletArgs", n.KubeletArgs...)
	return strings.Join(parts, "; ")
}

// nodesLock is the name of the lock of the commands that add and remove nodes, in the
// directory of the cluster's sockets.
const nodesLock = "nodes.lock"

// LockNodes locks the nodes of a running cluster for a command that adds or removes
// one. It waits for other commands up to timeout, and returns a
// sharedfile.HeldError then. Who stops or removes the cluster ends the holder
// (StopNodesCommand).
func (rec Record) LockNodes(ctx context.Context, timeout time.Duration) (*sharedfile.Lock, error) {
	return sharedfile.Acquire(ctx, filepath.Join(rec.RunDirectory(), nodesLock), holderOf(rec.Name, os.Getpid()), timeout)
}

// StopNodesCommand ends a command that adds or removes nodes of the cluster, as
// Record.Stop does. No other one begins until the lock is released. It returns no lock
// if the directory of sockets is gone or full: there no command begins, either.
func (rec Record) StopNodesCommand(ctx context.Context, timeout time.Duration) (*sharedfile.Lock, error) {
	lock, err := rec.LockNodes(ctx, 0)
	if held := (*sharedfile.HeldError)(nil); errors.As(err, &held) {
		if err := StopHolder(ctx, held.Holder, timeout); err != nil {
			return nil, err
		}
		lock, err = rec.LockNodes(ctx, 2*time.Second)
	}
	if errors.Is(err, fs.ErrNotExist) || NoRoom(err) {
		return nil, nil
	}
	return lock, err
}
