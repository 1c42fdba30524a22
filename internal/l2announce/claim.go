package l2announce

import (
	"bytes"
	"net"
	"time"
)

// hardware is the address of an Ethernet interface.
type hardware [6]byte

func (h hardware) isZero() bool { return h == hardware{} }

// String returns the address with colons.
func (h hardware) String() string { return net.HardwareAddr(h[:]).String() }

// compare orders hardware addresses.
func (h hardware) compare(o hardware) int { return bytes.Compare(h[:], o[:]) }

const (
	// probeInterval is the time between two questions of a standby, and the least
	// time between two announcements of a holder.
	probeInterval = 500 * time.Millisecond
	// patience is how long the first standby waits for an answer, and lastPatience
	// what the last one of many waits for, nearly. Two questions and the time of an answer
	// are in it, so that one packet that is lost moves no address.
	patience, lastPatience = 1250 * time.Millisecond, 1750 * time.Millisecond
	// takeoverAnnouncements are those of a new holder: the first one may be lost. Then
	// it announces the address once in each refreshInterval, so that two holders that
	// have not heard each other do.
	takeoverAnnouncements = 3
	refreshInterval       = 10 * time.Second
	// mostConflicts is how often the first node insists on an address that another
	// machine claims, too. Conflicts that are older than conflictMemory do not count.
	mostConflicts  = 4
	conflictMemory = 10 * time.Second
)

// claim is the part that this node has in the announcement of an address on an
// interface, as of a router in VRRP (RFC 5798): the address has an order of nodes, the
// first one holds it, and the others stand by, in case that nobody answers.
//
//	          the first node at once, others when nobody has answered for a while
//	standby ─────────────────────────────────────────────────────────────────────► holder
//	        ◄─────────────────────────────────────────────────────────────────────
//	                 another machine answers, and this node is not the first
//
// Which nodes are alive is so found out on the link itself, also while the API server
// is away. A claim has no clock: each method gets the time.
type claim struct {
	rank    int      // place of this node in the order, from 0
	own     hardware // of the interface
	holding bool
	// ceded says that the first node has left the address to another machine that
	// insists on it, until that one is silent.
	ceded bool

	// Of a standby: when somebody has answered last, and who; whether that was after
	// the last question, and when the next one is due.
	heard    time.Time
	holder   hardware
	answered bool
	probeAt  time.Time

	// Of a holder: how many announcements of the takeover are left, when the last one
	// was and the next one is due, and the conflicts with other machines.
	announcements int
	announced     time.Time
	announceAt    time.Time
	conflicts     int
	conflictAt    time.Time
}

// action is what is to be sent, and what has changed.
type action struct {
	probe      bool     // ask for the address
	to         hardware // whom; zero is everybody
	announce   bool
	took, left bool // the claim has become a holder or a standby
}

// newClaim returns the claim of a node.
func newClaim(rank int, own hardware, now time.Time) *claim {
	c := &claim{rank: rank, own: own, heard: now, probeAt: now}
	if rank == 0 {
		c.take(now)
	}
	return c
}

// setRank changes the place of this node in the order. A node that is now the first
// one takes the address; one that no longer is waits until the first one claims it.
func (c *claim) setRank(rank int, now time.Time) {
	if rank == c.rank {
		return
	}
	c.rank, c.ceded = rank, false
	if rank == 0 && !c.holding {
		c.take(now)
	}
}

// take makes the claim a holder, which announces the address at once.
func (c *claim) take(now time.Time) {
	c.holding, c.ceded, c.conflicts = true, false, 0
	c.announcements, c.announceAt = takeoverAnnouncements, now
}

// wait makes the claim a standby.
func (c *claim) wait(now time.Time) {
	c.holding, c.probeAt = false, now.Add(probeInterval)
}

// patience returns how long a standby waits for an answer. The places of two nodes
// differ by what keeps them from taking an address at the same time.
func (c *claim) patience() time.Duration {
	if c.rank <= 1 {
		return patience
	}
	return lastPatience - (lastPatience-patience)/time.Duration(c.rank)
}

// due returns when step has something to do.
func (c *claim) due() time.Time {
	if c.holding {
		return c.announceAt
	}
	if late := c.heard.Add(c.patience()); late.Before(c.probeAt) {
		return late
	}
	return c.probeAt
}

// step does what is due.
func (c *claim) step(now time.Time) (do action) {
	if !c.holding && now.Sub(c.heard) >= c.patience() {
		c.take(now)
		do.took = true
	}
	switch {
	case c.holding && !now.Before(c.announceAt):
		do.announce = true
		c.announced, c.announceAt = now, now.Add(refreshInterval)
		if c.announcements = max(c.announcements-1, 0); c.announcements > 0 {
			c.announceAt = now.Add(probeInterval)
		}
	case !c.holding && !now.Before(c.probeAt):
		do.probe = true
		if c.answered { // otherwise another machine may have the address now
			do.to = c.holder
		}
		c.answered, c.probeAt = false, now.Add(probeInterval)
	}
	return do
}

// hear takes note of another machine's claim to the address.
func (c *claim) hear(from hardware, now time.Time) (do action) {
	if from == c.own {
		return do
	}
	c.heard, c.holder, c.answered = now, from, true
	if !c.holding {
		return do
	}
	if c.rank > 0 {
		c.wait(now)
		return action{left: true}
	}
	since := now.Sub(c.conflictAt)
	if since < probeInterval && c.conflicts > 0 {
		return do // of one conflict
	}
	if since > conflictMemory {
		c.conflicts = 0
	}
	c.conflicts, c.conflictAt = c.conflicts+1, now
	if c.conflicts > mostConflicts && c.own.compare(from) > 0 {
		c.wait(now)
		c.ceded = true
		return action{left: true}
	}
	soon := c.announced.Add(probeInterval)
	if soon.Before(now) {
		soon = now
	}
	if soon.Before(c.announceAt) {
		c.announceAt = soon
	}
	return do
}
