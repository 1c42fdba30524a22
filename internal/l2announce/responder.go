package l2announce

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/pace"
	"github.com/coracle-io/coracle/internal/supervise"
)

const (
	// checkPeriod is the interval at which the interfaces of the machine are looked at.
	checkPeriod = 3 * time.Second
	// changeBurst changes are followed at once, and then one in each changePeriod: who
	// may change endpoints, or the status of a node, can do so all the time.
	changeBurst  = 20
	changePeriod = 500 * time.Millisecond
)

// responder answers for addresses on the interfaces of this machine. One goroutine
// uses it, which owns all claims:
//
//	changed ────────────┐
//	sockets ──packets──►├─► claims ──► frames
//	the next due step ──┘
type responder struct {
	// wanted returns the addresses and the place of this node in the order of each.
	wanted func() map[netip.Addr]int
	// changed has a value when wanted would return something else.
	changed <-chan struct{}
	// own are the addresses by which other machines reach this node.
	own []netip.Addr
	// took is called when this node begins to answer for an address, and ceded when it
	// leaves one, though it is the first in the order, to a machine that insists on it.
	took  func(netip.Addr)
	ceded func(netip.Addr, hardware)

	latest  map[netip.Addr]int // what wanted has returned last
	changes pace.Pace
	late    <-chan time.Time // has a value when a change that waits is due; nil if none does
	arrived chan arrival
	links   map[int]*link // by the index of the interface
	claims  map[place]*claim
	failure string // the last error of the sockets
	absent  int    // how many addresses have no interface
}

// place is an address on an interface.
type place struct {
	index   int
	address netip.Addr
}

// run answers until ctx ends. It opens sockets in its own goroutine alone, and so in
// the network namespace of its caller.
func (r *responder) run(ctx context.Context) {
	r.arrived, r.links, r.claims = make(chan arrival, 64), map[int]*link{}, map[place]*claim{}
	defer func() {
		for _, l := range r.links {
			l.close()
		}
	}()
	check := time.NewTicker(checkPeriod)
	defer check.Stop()
	next := time.NewTimer(0)
	defer next.Stop()
	r.follow(ctx)
	for {
		if len(r.claims) > 0 {
			next.Reset(time.Until(r.due()))
		} else {
			next.Stop()
		}
		if !r.wait(ctx, check.C, next.C) {
			return
		}
	}
}

// wait handles the next event, and then others that touch no claim, until one does. It
// returns false if ctx has ended.
func (r *responder) wait(ctx context.Context, check, next <-chan time.Time) bool {
	for {
		changed := r.changed
		if r.late != nil {
			changed = nil
		}
		select {
		case <-ctx.Done():
			return false
		case <-changed:
			if wait := r.changes.Take(time.Now(), changeBurst, changePeriod); wait > 0 {
				r.late = time.After(wait)
				continue
			}
			r.follow(ctx)
			return true
		case <-r.late:
			r.late = nil
			r.changes.Count(time.Now(), changePeriod)
			r.follow(ctx)
			return true
		case <-check:
			if len(r.latest) > 0 || r.failure != "" {
				r.reconcile(ctx)
				return true
			}
		case <-next:
			r.step(ctx)
			return true
		case a := <-r.arrived:
			if r.hear(ctx, a) {
				return true
			}
		}
	}
}

// follow follows a change of what is wanted.
func (r *responder) follow(ctx context.Context) {
	r.latest = r.wanted()
	r.reconcile(ctx)
}

// due returns when the first claim has something to do. There must be one.
func (r *responder) due() (first time.Time) {
	for _, c := range r.claims {
		if due := c.due(); first.IsZero() || due.Before(first) {
			first = due
		}
	}
	return first
}

// reconcile makes links and claims those of the wanted addresses and the interfaces
// that there are.
func (r *responder) reconcile(ctx context.Context) {
	wanted, now := r.latest, time.Now()
	var list []nic
	var errs []error
	if len(wanted) > 0 {
		var err error
		if list, err = nics(); err != nil {
			r.report(ctx, err)
			return
		}
	}
	ranks, used, absent := map[place]int{}, map[int]nic{}, 0
	for _, a := range slices.SortedFunc(maps.Keys(wanted), netip.Addr.Compare) {
		n, ok := nicFor(a, list, r.own)
		if !ok {
			absent++
			continue
		}
		ranks[place{n.index, a}], used[n.index] = wanted[a], n
	}
	if absent > r.absent {
		klog.FromContext(ctx).Info("This node does not announce some addresses of Services: by no interface do other machines reach their subnets or this node", "addresses", absent)
	}
	r.absent = absent
	for at := range r.claims {
		l := r.links[at.index]
		if _, stays := ranks[at]; !stays || l.own != used[at.index].own {
			delete(r.claims, at)
			l.leave(at.address)
		}
	}
	for index, l := range r.links {
		if n, stays := used[index]; !stays || l.own != n.own {
			l.close()
			delete(r.links, index)
		}
	}
	for _, at := range slices.SortedFunc(maps.Keys(ranks), func(a, b place) int { return cmp.Or(cmp.Compare(a.index, b.index), a.address.Compare(b.address)) }) {
		errs = append(errs, r.claim(ctx, at, used[at.index], ranks[at], now))
	}
	r.report(ctx, errors.Join(errs...))
	r.step(ctx)
}

// claim begins a claim or changes its rank.
func (r *responder) claim(ctx context.Context, at place, n nic, rank int, now time.Time) error {
	if c := r.claims[at]; c != nil {
		held := c.holding
		if c.setRank(rank, now); c.holding && !held {
			r.took(at.address)
		}
		return nil
	}
	l := r.links[at.index]
	if l == nil {
		var err error
		if l, err = openLink(ctx, n, r.arrived); err != nil {
			return err
		}
		r.links[at.index] = l
	}
	if err := l.join(at.address); err != nil {
		return err
	}
	c := newClaim(rank, n.own, now)
	r.claims[at] = c
	if c.holding {
		r.took(at.address)
	}
	return nil
}

// report logs and reports what keeps addresses from being announced.
func (r *responder) report(ctx context.Context, err error) {
	failure := ""
	if err != nil {
		failure = err.Error()
	}
	if failure != "" && failure != r.failure {
		klog.FromContext(ctx).Error(err, "Announcing addresses of Services failed, will try again", "in", checkPeriod)
	}
	r.failure = failure
	supervise.Report(ctx, "Announcements", err)
}

// step does what is due of all claims.
func (r *responder) step(ctx context.Context) {
	now := time.Now()
	for at, c := range r.claims {
		if !now.Before(c.due()) {
			r.act(ctx, at, c, c.step(now))
		}
	}
}

// hear takes note of a packet, and answers it if this node holds the address that it
// asks for. It reports whether that was about an address of this node's.
func (r *responder) hear(ctx context.Context, a arrival) bool {
	touched := false
	if c := r.claims[place{a.index, a.claims}]; c != nil {
		r.act(ctx, place{a.index, a.claims}, c, c.hear(a.from, time.Now()))
		touched = true
	}
	if c := r.claims[place{a.index, a.asks}]; c != nil && c.holding && a.from != c.own {
		r.send(ctx, place{a.index, a.asks}, answer(a.packet, c.own))
	}
	return touched
}

// act does what a claim asks for.
func (r *responder) act(ctx context.Context, at place, c *claim, do action) {
	log := klog.FromContext(ctx)
	switch {
	case do.took:
		log.Info("Nobody answers for an address of a Service: this node takes it", "address", at.address, "interface", r.links[at.index].name)
		r.took(at.address)
	case do.left:
		log.Info("Another machine answers for an address of a Service: this node leaves it", "address", at.address, "interface", r.links[at.index].name, "machine", c.holder)
		if c.ceded {
			r.ceded(at.address, c.holder)
		}
	}
	if do.announce {
		r.send(ctx, at, announcement(at.address, c.own)...)
	}
	if do.probe {
		r.send(ctx, at, probe(at.address, c.own, do.to))
	}
}

func (r *responder) send(ctx context.Context, at place, frames ...frame) {
	if err := r.links[at.index].send(at.address, frames...); err != nil {
		klog.FromContext(ctx).V(2).Info("A packet was not sent", "address", at.address, "err", err)
	}
}
