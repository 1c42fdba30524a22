package services

import (
	"context"
	"errors"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/watchcache"
)

const (
	repairPeriod = 3 * time.Minute
	// addressGrace is how old an address without a service must be to be
	// released: its service may be about to be stored.
	addressGrace = time.Minute
)

// Run repairs what crashes left behind, at once and periodically, until ctx
// ends: addresses and ports that no service has are released, those that a
// service has are taken. repaired is called each time all has been repaired.
func (a *Allocator) Run(ctx context.Context, repaired func()) error {
	ticker := time.NewTicker(repairPeriod)
	defer ticker.Stop()
	leaked := map[int32]bool{}
	for {
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
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// repairAddresses compares addresses with services.
func (a *Allocator) repairAddresses(ctx context.Context) error {
	var failed []error
	owners := map[netip.Addr]*corev1.Service{}
	a.each(func(s *corev1.Service) {
		for _, ip := range addressesOf(s) {
			owners[ip] = s
			if err := a.claim(ctx, ip, s); err != nil {
				failed = append(failed, err)
			}
		}
	})
	a.addresses.kind.Snapshot().Ascend("", watchcache.Position{}, func(e *watchcache.Entry) bool {
		address, ok := e.Object.(*networkingv1.IPAddress)
		if !ok || !isAbandoned(address, owners, a.clock.Now()) {
			return true
		}
		klog.FromContext(ctx).V(1).Info("Releasing a cluster IP that no service has", "ip", address.Name)
		_, err := a.addresses.kind.Delete(ctx, e, nil)
		if err != nil && !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrNotFound) {
			failed = append(failed, err)
		}
		return true
	})
	return errors.Join(failed...)
}

// claim takes the address that a service says it has, if nobody has it.
func (a *Allocator) claim(ctx context.Context, ip netip.Addr, s *corev1.Service) error {
	e, ok := a.addresses.kind.Get("", ip.String())
	if !ok {
		err := a.addresses.create(ctx, ip, s)
		if errors.Is(err, errAddressTaken) {
			return nil
		}
		return err
	}
	if !isParent(e.Object.(*networkingv1.IPAddress), s.Namespace, s.Name) {
		klog.FromContext(ctx).Info("A cluster IP is not the service's that has it; delete and make the service again", "ip", ip, "service", klog.KObj(s))
	}
	return nil
}

// isAbandoned says that an address was taken for a service that does not have it.
func isAbandoned(a *networkingv1.IPAddress, owners map[netip.Addr]*corev1.Service, now time.Time) bool {
	if a.Labels[networkingv1.LabelManagedBy] != managedBy || now.Sub(a.CreationTimestamp.Time) < addressGrace {
		return false
	}
	ip, err := netip.ParseAddr(a.Name)
	if err != nil {
		return false
	}
	owner := owners[ip]
	return owner == nil || !isParent(a, owner.Namespace, owner.Name)
}

// repairPorts compares node ports with services. A port without a service is
// released when it was without one the last time too, since its service may
// be about to be stored; the next call is given those found now.
func (a *Allocator) repairPorts(ctx context.Context, before map[int32]bool) (leaked map[int32]bool, err error) {
	err = a.ports.change(ctx, func(b *bitmap) error {
		leaked = map[int32]bool{}
		held := map[int32]bool{}
		a.each(func(s *corev1.Service) {
			for _, port := range portsOf(s) {
				held[port] = true
				_ = b.set(port) // taken already, or out of a range that was made smaller
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
