package topologymanager

import (
	"math/bits"
	"strconv"
	"strings"
)

// MaxNode is the highest id of a NUMA node in a Mask.
const MaxNode = 63

// Mask is a set of NUMA nodes: upstream's bit mask.
type Mask uint64

// NewMask returns the mask of the given nodes. It ignores ids that a Mask cannot
// hold.
func NewMask(nodes ...int) Mask {
	var m Mask
	for _, n := range nodes {
		if n >= 0 && n <= MaxNode {
			m |= 1 << n
		}
	}
	return m
}

// Has reports whether the node is in the mask.
func (m Mask) Has(node int) bool { return node >= 0 && node <= MaxNode && m&(1<<node) != 0 }

// Any reports whether one of the nodes is in the mask.
func (m Mask) Any(nodes []int) bool { return m&NewMask(nodes...) != 0 }

// Count returns the number of nodes.
func (m Mask) Count() int { return bits.OnesCount64(uint64(m)) }

// Nodes returns the ids of the nodes, in ascending order.
func (m Mask) Nodes() []int {
	var nodes []int
	for rest := uint64(m); rest != 0; rest &= rest - 1 {
		nodes = append(nodes, bits.TrailingZeros64(rest))
	}
	return nodes
}

// Narrower reports whether the mask has fewer nodes than another one, or as many
// with lower ids.
func (m Mask) Narrower(other Mask) bool {
	if m.Count() == other.Count() {
		return m < other
	}
	return m.Count() < other.Count()
}

// String returns the nodes as a list, such as "0,2".
func (m Mask) String() string {
	var text []string
	for _, n := range m.Nodes() {
		text = append(text, strconv.Itoa(n))
	}
	return strings.Join(text, ",")
}

// Masks calls visit with every set of the nodes that is not empty, the smallest
// sets first.
func Masks(nodes []int, visit func(Mask)) {
	for size := 1; size <= len(nodes); size++ {
		combine(nodes, size, 0, visit)
	}
}

func combine(nodes []int, size int, chosen Mask, visit func(Mask)) {
	if size == 0 {
		visit(chosen)
		return
	}
	for i := 0; i+size <= len(nodes); i++ {
		combine(nodes[i+1:], size-1, chosen|NewMask(nodes[i]), visit)
	}
}
