package services

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// addresses allocates cluster IPs by creating IPAddress objects.
type addresses struct {
	cidrs  []netip.Prefix
	kind   *watchcache.Kind
	ranges *watchcache.Kind
	clock  clock.PassiveClock
}

var (
	errAddressTaken = errors.New("provided IP is already allocated")
	errRangeFull    = errors.New("range is full")
	errNoRange      = errors.New("the provided network does not match the current range")
)

// managedBy is the label value of IPAddress objects that this package
// creates.
const managedBy = "ipallocator.k8s.io"

func (a *Allocator) allocateAddresses(ctx context.Context, t *allocation, s, old *corev1.Service, dryRun bool) error {
	if !needsAddresses(s) || old != nil && isHeadless(old) {
		return nil
	}
	var held []netip.Addr
	if old != nil {
		held = addressesOf(old)
	}
	wanted, ok := wantedAddresses(s, held)
	if !ok {
		return nil
	}
	for _, w := range wanted {
		ip, err := a.addresses.take(ctx, w, s, dryRun)
		if err != nil {
			return allocationError(s, w, err)
		}
		if !dryRun {
			t.undo = append(t.undo, func() { a.release(context.WithoutCancel(ctx), s, []netip.Addr{ip}, nil) })
		}
		for len(s.Spec.ClusterIPs) <= w.index {
			s.Spec.ClusterIPs = append(s.Spec.ClusterIPs, "")
		}
		s.Spec.ClusterIPs[w.index] = ip.String()
	}
	if len(s.Spec.ClusterIPs) > 0 {
		s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
	}
	return nil
}

func allocationError(s *corev1.Service, w wantedAddress, err error) error {
	if !w.given.IsValid() {
		return apierrors.NewInternalError(fmt.Errorf("failed to allocate a serviceIP: %w", err))
	}
	return invalid(s, field.ErrorList{
		field.Invalid(field.NewPath("spec", "clusterIPs"), s.Spec.ClusterIPs, fmt.Sprintf("failed to allocate IP %s: %v", w.given, err)),
	})
}

// take allocates the given address, or any one of the family. As upstream, a
// dry run does not check whether a given address is free.
func (a *addresses) take(ctx context.Context, w wantedAddress, s *corev1.Service, dryRun bool) (netip.Addr, error) {
	if w.given.IsValid() {
		return w.given, a.takeGiven(ctx, w.given, s, dryRun)
	}
	for _, p := range a.prefixes(w.family) {
		ip, err := a.takeAny(ctx, p, s, dryRun)
		if !errors.Is(err, errRangeFull) {
			return ip, err
		}
	}
	return netip.Addr{}, errRangeFull
}

// within returns an error if no range contains the address, or if it is the
// network or broadcast address of a range.
func within(prefixes []netip.Prefix, ip netip.Addr) error {
	err := errNoRange
	for _, p := range prefixes {
		switch {
		case usable(p, ip):
			return nil
		case p.Contains(ip):
			err = fmt.Errorf("the provided IP (%s) is not in the valid range. The range of valid IPs is %s", ip, p)
		}
	}
	return err
}

func (a *addresses) takeGiven(ctx context.Context, ip netip.Addr, s *corev1.Service, dryRun bool) error {
	if err := within(a.prefixes(familyOf(ip)), ip); err != nil {
		return err
	}
	if dryRun {
		return nil
	}
	return a.create(ctx, ip, s)
}

// takeAny allocates the first free address from a random one on. It tries the
// upper part of the range first, so that the lower part stays free for
// addresses that users choose.
func (a *addresses) takeAny(ctx context.Context, p netip.Prefix, s *corev1.Service, dryRun bool) (netip.Addr, error) {
	first, size := span(p)
	reserved := reservedSize(p)
	for _, part := range [][2]uint64{{reserved, size}, {0, reserved}} {
		count := part[1] - part[0]
		if count == 0 {
			continue
		}
		start := rand.Uint64N(count)
		for i := range count {
			ip := offset(first, part[0]+(start+i)%count)
			if _, ok := a.kind.Get("", ip.String()); ok {
				continue
			}
			if dryRun {
				return ip, nil
			}
			err := a.create(ctx, ip, s)
			if err == nil || !errors.Is(err, errAddressTaken) {
				return ip, err
			}
		}
	}
	return netip.Addr{}, errRangeFull
}

// create allocates one address for a service.
func (a *addresses) create(ctx context.Context, ip netip.Addr, s *corev1.Service) error {
	_, err := a.kind.Create(ctx, newAddress(ip, s, a.clock.Now()))
	if errors.Is(err, store.ErrExists) {
		return errAddressTaken
	}
	return err
}

func newAddress(ip netip.Addr, s *corev1.Service, now time.Time) *networkingv1.IPAddress {
	return &networkingv1.IPAddress{
		TypeMeta: metav1.TypeMeta{Kind: "IPAddress", APIVersion: "networking.k8s.io/v1"},
		ObjectMeta: metav1.ObjectMeta{
			Name: ip.String(), UID: uuid.NewUUID(), CreationTimestamp: metav1.Time{Time: time.Unix(now.Unix(), 0)},
			Labels: map[string]string{
				networkingv1.LabelIPAddressFamily: string(familyOf(ip)),
				networkingv1.LabelManagedBy:       managedBy,
			},
		},
		Spec: networkingv1.IPAddressSpec{ParentRef: &networkingv1.ParentReference{
			Resource: "services", Namespace: s.Namespace, Name: s.Name,
		}},
	}
}

// release deletes the IPAddress of an address if it still belongs to the
// service.
func (a *addresses) release(ctx context.Context, ip netip.Addr, s *corev1.Service) error {
	e, err := a.kind.Read(ctx, "", ip.String())
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if !isParent(e.Object.(*networkingv1.IPAddress), s.Namespace, s.Name) {
		return nil
	}
	_, err = a.kind.Delete(ctx, e, nil)
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrConflict) {
		return nil
	}
	return err
}

func isParent(a *networkingv1.IPAddress, namespace, name string) bool {
	p := a.Spec.ParentRef
	return p != nil && p.Group == "" && p.Resource == "services" && p.Namespace == namespace && p.Name == name
}

// prefixes returns the ranges of a family: the configured range, then the
// ranges of ServiceCIDRs.
func (a *addresses) prefixes(family corev1.IPFamily) []netip.Prefix {
	var out []netip.Prefix
	add := func(p netip.Prefix) {
		if familyOf(p.Addr()) != family {
			return
		}
		for _, known := range out {
			if known == p.Masked() {
				return
			}
		}
		out = append(out, p.Masked())
	}
	for _, p := range a.cidrs {
		add(p)
	}
	if a.ranges == nil {
		return out
	}
	a.ranges.Snapshot().Ascend("", watchcache.Position{}, func(e *watchcache.Entry) bool {
		if r, ok := e.Object.(*networkingv1.ServiceCIDR); ok && r.DeletionTimestamp == nil {
			for _, text := range r.Spec.CIDRs {
				if p, err := netip.ParsePrefix(text); err == nil {
					add(p)
				}
			}
		}
		return true
	})
	return out
}

// maxSpan bounds the number of addresses of a range that are used. It exceeds
// the number of services of any cluster.
const maxSpan = 1 << 32

// span returns the first usable address of a range and the number of usable
// ones. The network address and IPv4's broadcast address are not usable.
func span(p netip.Prefix) (first netip.Addr, size uint64) {
	bits := p.Addr().BitLen() - p.Bits()
	if bits >= 32 {
		size = maxSpan
	} else {
		size = 1 << bits
	}
	size--
	if p.Addr().Is4() && size > 0 {
		size--
	}
	return p.Masked().Addr().Next(), size
}

// usable reports whether an address of a range may be allocated.
func usable(p netip.Prefix, ip netip.Addr) bool {
	if !p.Contains(ip) || ip == p.Masked().Addr() {
		return false
	}
	first, size := span(p)
	return !ip.Is4() || size == 0 || ip.Compare(offset(first, size-1)) <= 0
}

// reservedSize returns how many addresses of the lower part of a range are left for
// addresses that users choose: a sixteenth of all its addresses, at least 16 and at most
// 256 (KEP-3070). A range of 16 addresses has none.
func reservedSize(p netip.Prefix) uint64 {
	const least, most = 16, 256
	size := uint64(1) << min(p.Addr().BitLen()-p.Bits(), 32)
	if size <= least {
		return 0
	}
	return min(max(size/16, least), most)
}

// offset returns the n-th address after first.
func offset(first netip.Addr, n uint64) netip.Addr {
	sum := new(big.Int).SetBytes(first.AsSlice())
	sum.Add(sum, new(big.Int).SetUint64(n))
	raw := sum.FillBytes(make([]byte, first.BitLen()/8))
	ip, _ := netip.AddrFromSlice(raw)
	return ip
}
