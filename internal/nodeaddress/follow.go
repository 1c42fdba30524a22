// Package nodeaddress follows the addresses of a node whose machine gets others while
// the node runs, such as by DHCP. It stands for upstream's node status setter of
// addresses, which finds the address of the default route again at each report.
//
//	kernel ── netlink ─┬─► Follower ── choose ──► List ──► kubelet, routes, announcer ...
//	                   └─► Keeper ──► Loss ──► a server and its node, which begin again
//
// A node keeps its address as long as its machine has it, also when another one comes.
// A loopback address gives way: no other machine reaches it.
package nodeaddress

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/clusternames"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Machine is the machine of a node.
type Machine interface {
	// Addresses returns the addresses of the machine.
	Addresses() ([]Address, error)
	// DefaultRoutes returns the default routes of a family, the best one first.
	DefaultRoutes(ipv4 bool) ([]Route, error)
	// Watch returns a channel that receives after addresses or routes have changed,
	// until ctx ends. Changes that it was not read for count as one.
	Watch(ctx context.Context) (<-chan struct{}, error)
}

// Follower keeps a List at what the machine has.
type Follower struct {
	Machine Machine
	List    *List
	// Fixed says why the addresses stay as they are, and what to do when the machine
	// has lost one. "" follows the machine.
	Fixed string
	// Moving is called before List gets other addresses; nil for nothing.
	Moving func()

	had   map[netip.Addr]string // the interfaces of the node's addresses, as long as they were here
	known map[netip.Addr]bool   // the addresses of the machine when it had all of the node's first
}

const (
	// checkPeriod is how often the addresses are read without a message of the kernel:
	// some are lost when there are many.
	checkPeriod = 3 * time.Second
	// rest is the least time between two times: the interfaces of pods come and go.
	rest = 100 * time.Millisecond
)

// Run follows the machine until ctx ends. While the machine lacks an address of the
// node, the component that ctx belongs to has the condition Address.
func (f *Follower) Run(ctx context.Context) error { return look(ctx, f.Machine, f.step) }

// look calls step at once, after changes of the machine's addresses and routes, and once in
// checkPeriod, until ctx ends. The error of step is the condition Address of the component
// that ctx belongs to, and is logged when it becomes another one.
func look(ctx context.Context, machine Machine, step func(context.Context) error) error {
	changed, err := machine.Watch(ctx)
	if err != nil {
		return fmt.Errorf("watch the addresses of this machine: %w", err)
	}
	check := time.NewTicker(checkPeriod)
	defer check.Stop()
	reported := "" // each report wakes who shows the status of components
	for {
		err := step(ctx)
		if text := fmt.Sprint(err); text != reported {
			supervise.Report(ctx, "Address", err)
			if err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "The machine's addresses are not those that it is known by")
			}
			reported = text
		}
		if !supervise.Pause(ctx, rest) {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-check.C:
		}
	}
}

// step compares the addresses of the node with those of the machine once.
func (f *Follower) step(ctx context.Context) error {
	here, err := f.Machine.Addresses()
	if err != nil {
		return err
	}
	if f.had == nil {
		f.had = map[netip.Addr]string{}
	}
	now := f.List.Now()
	after, lost := slices.Clone(now), false
	var errs []error
	for i, text := range now {
		a, err := netip.ParseAddr(text)
		if err != nil || a.IsUnspecified() || a.Zone() != "" {
			continue // no address of this machine is meant
		}
		a = a.Unmap()
		var next netip.Addr
		switch at := slices.IndexFunc(here, func(h Address) bool { return h.Prefix.Addr() == a }); {
		case at < 0:
			lost = true
			next, err = f.replace(a, here)
		case a.IsLoopback() && f.Fixed == "": // the machine had no network when the node began
			next, err = f.next(a, here)
		default:
			f.had[a] = here[at].Interface
		}
		errs = append(errs, err)
		if next.IsValid() {
			after[i] = next.String()
		}
	}
	if f.known == nil && !lost || !slices.Equal(now, after) {
		f.known = addressesOf(here)
	}
	if !slices.Equal(now, after) {
		klog.FromContext(ctx).Info("The machine has another address, and so has the node", "was", now, "is", after)
		if f.Moving != nil {
			f.Moving()
		}
		f.List.Set(after)
	}
	return errors.Join(errs...)
}

// addressesOf returns the set of these addresses.
func addressesOf(here []Address) map[netip.Addr]bool {
	set := map[netip.Addr]bool{}
	for _, h := range here {
		set[h.Prefix.Addr()] = true
	}
	return set
}

// replace returns the address that takes the place of one that the machine has lost, or
// an invalid one and why there is none. If addresses stay, it is no error to lack one that
// has never been the machine's, which another machine may translate, or one of a cluster's
// interface, which the cluster restores.
func (f *Follower) replace(lost netip.Addr, here []Address) (netip.Addr, error) {
	had, seen := f.had[lost]
	if f.Fixed != "" {
		if !seen || clusternames.IsClusters(had) {
			return netip.Addr{}, nil
		}
		return netip.Addr{}, fmt.Errorf("this machine has lost %s, the address of its node: %s", lost, f.Fixed)
	}
	next, err := f.next(lost, here)
	if err != nil || next.IsValid() {
		return next, err
	}
	family := "IPv6"
	if lost.Is4() {
		family = "IPv4"
	}
	return netip.Addr{}, fmt.Errorf("this machine has lost %s, the address of its node, and has no %s address with a default route, nor a new one on the same interface: the node gets the next one", lost, family)
}

// next returns the address that takes the place of one of the node's, an invalid one if
// there is none.
func (f *Follower) next(of netip.Addr, here []Address) (netip.Addr, error) {
	defaults, err := f.Machine.DefaultRoutes(of.Is4())
	if err != nil {
		return netip.Addr{}, err
	}
	return choose(of, f.had[of], f.known, here, defaults), nil
}
