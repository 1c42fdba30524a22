package nodeipam

import (
	"errors"
	"fmt"
	"math/big"
	"net/netip"
)

// errFull says that a cluster CIDR has no block left.
var errFull = errors.New("CIDR allocation failed; there are no remaining CIDRs left to allocate in the accepted range")

// cidrs hands out blocks of equal size from one cluster CIDR. It has no lock
// of its own.
type cidrs struct {
	cluster netip.Prefix
	bits    int // prefix length of a block
	size    int // how many blocks there are
	used    big.Int
	// next is where the search for a free block begins, so that a block that
	// became free is not given away again at once.
	next int
}

// maxBlocks bounds the memory for a huge IPv6 range, as upstream does.
const maxBlocks = 16

func newCIDRs(cluster netip.Prefix, bits int) (*cidrs, error) {
	cluster = cluster.Masked()
	switch {
	case bits < cluster.Bits() || bits > cluster.Addr().BitLen():
		return nil, fmt.Errorf("a node's mask size of /%d does not fit into --cluster-cidr=%s", bits, cluster)
	case bits-cluster.Bits() > maxBlocks:
		return nil, fmt.Errorf("--cluster-cidr=%s has more than 2^%d blocks of /%d; make the cluster CIDR smaller or the node mask size larger", cluster, maxBlocks, bits)
	}
	return &cidrs{cluster: cluster, bits: bits, size: 1 << (bits - cluster.Bits())}, nil
}

// allocate takes the next free block.
func (c *cidrs) allocate() (netip.Prefix, error) {
	for i := range c.size {
		at := (c.next + i) % c.size
		if c.used.Bit(at) == 0 {
			c.used.SetBit(&c.used, at, 1)
			c.next = at + 1
			return c.block(at), nil
		}
	}
	return netip.Prefix{}, errFull
}

// mark sets all blocks that a prefix touches to used or free. A prefix
// outside the cluster CIDR touches none.
func (c *cidrs) mark(p netip.Prefix, used bool) {
	p = p.Masked()
	if !c.cluster.Overlaps(p) {
		return
	}
	first, last := 0, c.size-1
	if p.Bits() > c.cluster.Bits() {
		first = c.index(p.Addr())
		last = first
		if p.Bits() < c.bits {
			last = first + 1<<(c.bits-p.Bits()) - 1
		}
	}
	bit := uint(0)
	if used {
		bit = 1
	}
	for i := first; i <= last; i++ {
		c.used.SetBit(&c.used, i, bit)
	}
}

// block is the i-th block.
func (c *cidrs) block(i int) netip.Prefix {
	base := new(big.Int).SetBytes(c.cluster.Addr().AsSlice())
	offset := new(big.Int).Lsh(big.NewInt(int64(i)), uint(c.cluster.Addr().BitLen()-c.bits))
	bytes := base.Add(base, offset).FillBytes(make([]byte, c.cluster.Addr().BitLen()/8))
	addr, _ := netip.AddrFromSlice(bytes)
	return netip.PrefixFrom(addr, c.bits)
}

// index is the number of the block that an address is in.
func (c *cidrs) index(addr netip.Addr) int {
	offset := new(big.Int).Sub(new(big.Int).SetBytes(addr.AsSlice()), new(big.Int).SetBytes(c.cluster.Addr().AsSlice()))
	return int(offset.Rsh(offset, uint(c.cluster.Addr().BitLen()-c.bits)).Int64())
}
