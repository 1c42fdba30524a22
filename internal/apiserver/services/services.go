// Package services allocates cluster IPs and node ports of Services. API
// servers with the same store never allocate one of them twice:
//
//	cluster IP   an IPAddress object of that name (KEP-1880): creating it is taking it
//	node port    a bit in /registry/ranges/servicenodeports, which is replaced
//	             only at the revision it was read at
//
// Allocations of a failed write are released at once. Run finds those that
// remain after a crash.
package services

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/apiserver/errorlist"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// Config configures an Allocator. All fields are required.
type Config struct {
	// CIDRs are the ranges of cluster IPs, one for each family, the preferred
	// family first.
	CIDRs []netip.Prefix
	// NodePorts is the range of node ports.
	NodePorts PortRange
	Store     store.Store
	Services  *watchcache.Kind
	Addresses *watchcache.Kind
	Endpoints *watchcache.Kind
	// Ranges are the ServiceCIDRs that add to CIDRs.
	Ranges *watchcache.Kind
	Clock  clock.PassiveClock
}

// Allocator allocates cluster IPs and node ports. It implements
// registry.Lifecycle.
type Allocator struct {
	addresses *addresses
	ports     *ports
	services  *watchcache.Kind
	endpoints *watchcache.Kind
	families  []corev1.IPFamily
	assign    func(s, old *corev1.Service, cluster []corev1.IPFamily) field.ErrorList
	clock     clock.PassiveClock
}

// New returns an allocator. assign sets the families of a service before the
// allocation of addresses, or returns what is wrong with them.
func New(c Config, assign func(s, old *corev1.Service, cluster []corev1.IPFamily) field.ErrorList) (*Allocator, error) {
	a := &Allocator{
		addresses: &addresses{cidrs: c.CIDRs, kind: c.Addresses, ranges: c.Ranges, clock: c.Clock},
		ports:     &ports{limits: c.NodePorts, store: c.Store},
		services:  c.Services, endpoints: c.Endpoints, assign: assign, clock: c.Clock,
	}
	if len(c.CIDRs) == 0 || len(c.CIDRs) > 2 {
		return nil, fmt.Errorf("%d Service ranges are given; give one, or one for each of IPv4 and IPv6", len(c.CIDRs))
	}
	for _, p := range c.CIDRs {
		a.families = append(a.families, familyOf(p.Addr()))
	}
	if len(a.families) == 2 && a.families[0] == a.families[1] {
		return nil, fmt.Errorf("both Service ranges are %s; give one for each family", a.families[0])
	}
	return a, nil
}

func familyOf(a netip.Addr) corev1.IPFamily {
	if a.Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}

// allocation holds the functions that undo what a write has allocated so far.
type allocation struct {
	undo []func()
}

func (t *allocation) rollback() {
	for _, undo := range t.undo {
		undo()
	}
	t.undo = nil
}

// BeginCreate allocates for a new service.
func (a *Allocator) BeginCreate(ctx context.Context, obj resource.Object, dryRun bool) (func(stored bool), error) {
	return a.begin(ctx, obj.(*corev1.Service), nil, dryRun)
}

// BeginUpdate allocates what the new service needs besides the old one's
// allocations. It releases what the service no longer needs after the write.
func (a *Allocator) BeginUpdate(ctx context.Context, obj, old resource.Object, dryRun bool) (func(stored bool), error) {
	return a.begin(ctx, obj.(*corev1.Service), old.(*corev1.Service), dryRun)
}

// AfterDelete releases all allocations of a service, and deletes its Endpoints, also those
// that a user made: the next service of that name must not have them.
func (a *Allocator) AfterDelete(ctx context.Context, obj resource.Object) {
	s := obj.(*corev1.Service)
	if err := a.deleteEndpoints(ctx, s); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot delete the endpoints of a service", "service", klog.KObj(s))
	}
	a.release(ctx, s, addressesOf(s), portsOf(s))
}

// deleteEndpoints deletes the Endpoints of a service, unless they have finalizers. Others
// may change them meanwhile.
func (a *Allocator) deleteEndpoints(ctx context.Context, s *corev1.Service) error {
	const attempts = 5
	var err error
	for range attempts {
		var e *watchcache.Entry
		if e, err = a.endpoints.Read(ctx, s.Namespace, s.Name); err == nil && len(e.Object.GetFinalizers()) == 0 {
			_, err = a.endpoints.Delete(ctx, e, nil)
		}
		if !errors.Is(err, store.ErrConflict) {
			break
		}
	}
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

func (a *Allocator) begin(ctx context.Context, s, old *corev1.Service, dryRun bool) (func(stored bool), error) {
	if errs := a.assign(s, old, a.families); len(errs) > 0 {
		return nil, invalid(s, errs)
	}
	t := &allocation{}
	if err := a.allocate(ctx, t, s, old, dryRun); err != nil {
		t.rollback()
		return nil, err
	}
	return func(stored bool) {
		if !stored {
			t.rollback()
			return
		}
		if old != nil {
			a.release(context.WithoutCancel(ctx), old, subtract(addressesOf(old), addressesOf(s)), subtract(portsOf(old), portsOf(s)))
		}
	}, nil
}

func (a *Allocator) allocate(ctx context.Context, t *allocation, s, old *corev1.Service, dryRun bool) error {
	if err := a.allocateAddresses(ctx, t, s, old, dryRun); err != nil {
		return err
	}
	if err := a.allocatePorts(ctx, t, s, old, dryRun); err != nil {
		return err
	}
	return a.allocateHealthCheckPort(ctx, t, s, old, dryRun)
}

// release releases addresses and ports. Run retries what fails.
func (a *Allocator) release(ctx context.Context, s *corev1.Service, ips []netip.Addr, numbers []int32) {
	log := klog.FromContext(ctx)
	for _, ip := range ips {
		if err := a.addresses.release(ctx, ip, s); err != nil {
			log.Error(err, "Cannot release a cluster IP", "service", klog.KObj(s), "ip", ip)
		}
	}
	if len(numbers) == 0 {
		return
	}
	if err := a.ports.change(ctx, func(b *bitmap) error { b.clear(numbers...); return nil }); err != nil {
		log.Error(err, "Cannot release node ports", "service", klog.KObj(s), "ports", numbers)
	}
}

func invalid(s *corev1.Service, errs field.ErrorList) error {
	return errorlist.Invalid(schema.GroupKind{Kind: "Service"}, s.Name, errs)
}

// subtract returns the elements of a that are not in b.
func subtract[T comparable](a, b []T) []T {
	in := make(map[T]bool, len(b))
	for _, x := range b {
		in[x] = true
	}
	var out []T
	for _, x := range a {
		if !in[x] {
			out = append(out, x)
		}
	}
	return out
}
