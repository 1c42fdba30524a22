package nodeipam

import (
	"errors"
	"fmt"
	"math/big"
	"net/netip"
)

// errFull is returned if a cluster CIDR has no free block.
var errFull = errors.New("CIDR allocation failed; there are no remaining CIDRs left to allocate in the accepted range")

// cidrSet allocates blocks of equal size from a cluster CIDR. Callers must synchronize
// access.
type cidrSet struct {
	cluster netip.Prefix
	bits    int // prefix length of a block
	size    int // number of blocks
	free    int // number of blocks that are not used
	used    big.Int
	// next is where the search for a free block starts, so that a released block is not
	// reused at once.
	next int
	// reserved are ranges that no node gets, whatever is freed.
	reserved []netip.Prefix
}

// maxBlockBits is the binary logarithm of the maximum number of blocks. It limits the
// memory for large IPv6 ranges and is the same as upstream's.
const maxBlockBits = 16

func newCIDRSet(cluster netip.Prefix, bits int) (*cidrSet, error) {
	cluster = cluster.Masked()
	switch {
	case bits < cluster.Bits() || bits > cluster.Addr().BitLen():
		return nil, fmt.Errorf("a node's mask size of /%d does not fit into --cluster-cidr=%s", bits, cluster)
	case bits-cluster.Bits() > maxBlockBits:
		return nil, fmt.Errorf("--cluster-cidr=%s has more than 2^%d blocks of /%d; make the cluster CIDR smaller or the node mask size larger", cluster, maxBlockBits, bits)
	}
	size := 1 << (bits - cluster.Bits())
	return &cidrSet{cluster: cluster, bits: bits, size: size, free: size}, nil
}

// allocate allocates the next free block.
func (c *cidrSet) allocate() (netip.Prefix, error) {
	if c.free == 0 {
		return netip.Prefix{}, errFull
	}
	at := c.next % c.size
	for c.used.Bit(at) != 0 {
		at = (at + 1) % c.size
	}
	c.set(at, true)
	c.next = at + 1
	return c.block(at), nil
}

// set marks one block as used or free.
func (c *cidrSet) set(at int, used bool) {
	switch was := c.used.Bit(at) == 1; {
	case used && !was:
		c.used.SetBit(&c.used, at, 1)
		c.free--
	case !used && was:
		c.used.SetBit(&c.used, at, 0)
		c.free++
	}
}

// reserve keeps all blocks that overlap a prefix from nodes.
func (c *cidrSet) reserve(p netip.Prefix) {
	c.reserved = append(c.reserved, p)
	c.mark(p, true)
}

// mark marks all blocks that overlap a prefix as used or free. Blocks of reserved
// ranges stay used.
func (c *cidrSet) mark(p netip.Prefix, used bool) {
	if !used {
		defer func() {
			for _, r := range c.reserved {
				c.mark(r, true)
			}
		}()
	}
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
	for i := first; i <= last; i++ {
		c.set(i, used)
	}
}

// block returns the i-th block.
func (c *cidrSet) block(i int) netip.Prefix {
	base := new(big.Int).SetBytes(c.cluster.Addr().AsSlice())
	offset := new(big.Int).Lsh(big.NewInt(int64(i)), uint(c.cluster.Addr().BitLen()-c.bits))
	bytes := base.Add(base, offset).FillBytes(make([]byte, c.cluster.Addr().BitLen()/8))
	addr, _ := netip.AddrFromSlice(bytes)
	return netip.PrefixFrom(addr, c.bits)
}

// index returns the index of the block that contains an address.
func (c *cidrSet) index(addr netip.Addr) int {
	offset := new(big.Int).Sub(new(big.Int).SetBytes(addr.AsSlice()), new(big.Int).SetBytes(c.cluster.Addr().AsSlice()))
	return int(offset.Rsh(offset, uint(c.cluster.Addr().BitLen()-c.bits)).Int64())
}
