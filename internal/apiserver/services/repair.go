package services

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/supervise"
	"github.com/coracle-io/coracle/internal/watchcache"
)

const (
	repairPeriod = 3 * time.Minute
	// addressGrace is the minimal age of an address without a service for its
	// release. The service of a younger one may not be stored yet.
	addressGrace = time.Minute
)

// Run repairs the allocations after crashes, at once and periodically, until
// ctx ends. It releases addresses and ports without a service, and allocates
// those that a service has. It calls repaired after each complete repair.
func (a *Allocator) Run(ctx context.Context, repaired func()) error {
	leaked := map[int32]bool{}
	supervise.Repeat(ctx, repairPeriod, func() {
		addressesErr := a.repairAddresses(ctx)
		if addressesErr != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(addressesErr, "Cannot repair cluster IPs; trying again later")
		}
		next, err := a.repairPorts(ctx, leaked)
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot repair node ports; trying again later")
		}
		if addressesErr == nil && err == nil {
			repaired()
		}
		leaked = next
	})
	return nil
}

// repairAddresses makes the IPAddress objects agree with the services.
func (a *Allocator) repairAddresses(ctx context.Context) error {
	var failed []error
	owners := map[netip.Addr][]*corev1.Service{}
	a.each(func(s *corev1.Service) {
		for _, ip := range addressesOf(s) {
			owners[ip] = append(owners[ip], s)
		}
	})
	for ip, all := range owners {
		if err := a.claim(ctx, ip, all); err != nil {
			failed = append(failed, err)
		}
	}
	a.addresses.kind.Snapshot().Ascend("", watchcache.Position{}, func(e *watchcache.Entry) bool {
		address, ok := e.Object.(*networkingv1.IPAddress)
		if !ok || !isAbandoned(address, owners, a.clock.Now()) {
			return true
		}
		klog.FromContext(ctx).V(1).Info("Releasing a cluster IP that no service has", "ip", address.Name)
		if err := a.deleteAddress(ctx, e); err != nil {
			failed = append(failed, err)
		}
		return true
	})
	return errors.Join(failed...)
}

// deleteAddress deletes an IPAddress unless it has changed.
func (a *Allocator) deleteAddress(ctx context.Context, e *watchcache.Entry) error {
	_, err := a.addresses.kind.Delete(ctx, e, nil)
	if errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

// isYoung reports whether an address is younger than addressGrace. One from further in the future is
// of before the clock was set back.
func isYoung(a *networkingv1.IPAddress, now time.Time) bool {
	return now.Sub(a.CreationTimestamp.Time).Abs() < addressGrace
}

// claim allocates the address of one or more services to one of them, unless it is. It
// leaves a young IPAddress alone, whose service may not be stored yet.
func (a *Allocator) claim(ctx context.Context, ip netip.Addr, owners []*corev1.Service) error {
	log, of := klog.FromContext(ctx), 0
	if len(owners) > 1 {
		log.Info("A cluster IP was assigned to multiple services; recreate all but one", "ip", ip, "services", klog.KObjSlice(owners))
	}
	if e, ok := a.addresses.kind.Get("", ip.String()); ok {
		address := e.Object.(*networkingv1.IPAddress)
		parent := slices.IndexFunc(owners, func(s *corev1.Service) bool { return isParent(address, s.Namespace, s.Name) })
		if parent >= 0 && isLabeled(address, ip) || isYoung(address, a.clock.Now()) {
			return nil
		}
		of = max(parent, 0)
		log.Info("The IPAddress of a service has a wrong reference or labels; repairing", "ip", ip, "service", klog.KObj(owners[of]))
		if err := a.deleteAddress(ctx, e); err != nil {
			return err
		}
	}
	err := a.addresses.create(ctx, ip, owners[of])
	if errors.Is(err, errAddressTaken) {
		return nil
	}
	return err
}

// isLabeled reports whether an IPAddress has the labels of those that are allocated to
// services.
func isLabeled(a *networkingv1.IPAddress, ip netip.Addr) bool {
	return a.Labels[networkingv1.LabelManagedBy] == managedBy && a.Labels[networkingv1.LabelIPAddressFamily] == string(familyOf(ip))
}

// isAbandoned reports whether an address was allocated for a service, and no service
// has it.
func isAbandoned(a *networkingv1.IPAddress, owners map[netip.Addr][]*corev1.Service, now time.Time) bool {
	if a.Labels[networkingv1.LabelManagedBy] != managedBy || isYoung(a, now) {
		return false
	}
	ip, err := netip.ParseAddr(a.Name)
	return err == nil && len(owners[ip]) == 0
}

// repairPorts makes the bitmap agree with the services. It releases ports that
// no service has and that are in before, the result of the previous call. leaked
// are the other ports without a service, whose service may not be stored yet.
func (a *Allocator) repairPorts(ctx context.Context, before map[int32]bool) (leaked map[int32]bool, err error) {
	err = a.ports.change(ctx, func(b *bitmap) error {
		leaked = map[int32]bool{}
		held := map[int32]bool{}
		a.each(func(s *corev1.Service) {
			for _, port := range portsOf(s) {
				held[port] = true
				_ = b.set(port) // allocated already, or outside of a range that has shrunk
			}
		})
		for port := b.limits.First; port <= b.limits.Last; port++ {
			switch {
			case !b.has(port) || held[port]:
			case before[port]:
				b.clear(port)
			default:
				leaked[port] = true
			}
		}
		return nil
	})
	return leaked, err
}

func (a *Allocator) each(visit func(*corev1.Service)) {
	a.services.Snapshot().Ascend("", watchcache.Position{}, func(e *watchcache.Entry) bool {
		if s, ok := e.Object.(*corev1.Service); ok {
			visit(s)
		}
		return true
	})
}
