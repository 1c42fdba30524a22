package services

import (
	"context"
	"errors"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	_ "github.com/coracle-io/coracle/internal/bubble"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core"
	"github.com/coracle-io/coracle/internal/resource/networking"
	"github.com/coracle-io/coracle/internal/store/mem"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// newAllocator returns an allocator of an empty cluster, in a bubble, whose services and
// addresses are kept until stop is called.
func newAllocator(ctx context.Context, t *testing.T) (a *Allocator, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	s := mem.New()
	kinds := []*resource.Resource{core.Services(), networking.IPAddresses(), networking.ServiceCIDRs(), core.Endpoints()}
	cache := watchcache.New(s, kinds)
	done := make(chan error, 1)
	go func() { done <- cache.Run(ctx) }()
	<-cache.Synced()
	a, err := New(Config{
		CIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/24")}, NodePorts: PortRange{30000, 30009}, Store: s, Clock: clock.RealClock{},
		Services: cache.Kind(kinds[0]), Addresses: cache.Kind(kinds[1]), Ranges: cache.Kind(kinds[2]), Endpoints: cache.Kind(kinds[3]),
	}, core.AssignServiceFamilies)
	if err != nil {
		t.Fatal(err)
	}
	return a, func() {
		cancel()
		<-done //nolint:errcheck // canceled
	}
}

// serviceWith returns a service that has an address.
func serviceWith(name, ip string) *corev1.Service {
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{Kind: "Service", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: ip, ClusterIPs: []string{ip}},
	}
}

// Each address of a service belongs to it, and to one service only, at any time.
func TestRepairedReferences(t *testing.T) {
	foreign := func(a *networkingv1.IPAddress) {
		a.Labels[networkingv1.LabelManagedBy] = "another"
		a.Spec.ParentRef = &networkingv1.ParentReference{Group: "gateway.networking.k8s.io", Resource: "gateways", Namespace: "default", Name: "gate"}
	}
	for name, c := range map[string]struct {
		services  []string // with the address 10.96.0.7
		addresses map[string]string
		change    func(a *networkingv1.IPAddress)
		want      string
		kept      bool // none is made again
	}{
		"right":                     {services: []string{"held"}, addresses: map[string]string{"10.96.0.7": "held"}, want: "10.96.0.7 held", kept: true},
		"missing":                   {services: []string{"held"}, want: "10.96.0.7 held"},
		"of another service":        {services: []string{"held"}, addresses: map[string]string{"10.96.0.7": "lost"}, want: "10.96.0.7 held"},
		"of no service":             {addresses: map[string]string{"10.96.0.7": "lost"}},
		"a second one":              {services: []string{"held"}, addresses: map[string]string{"10.96.0.7": "held", "10.96.0.8": "held"}, want: "10.96.0.7 held", kept: true},
		"of the first of two":       {services: []string{"held", "other"}, addresses: map[string]string{"10.96.0.7": "held"}, want: "10.96.0.7 held", kept: true},
		"of the second of two":      {services: []string{"held", "other"}, addresses: map[string]string{"10.96.0.7": "other"}, want: "10.96.0.7 other", kept: true},
		"without labels":            {services: []string{"held"}, addresses: map[string]string{"10.96.0.7": "held"}, change: func(a *networkingv1.IPAddress) { a.Labels = nil }, want: "10.96.0.7 held"},
		"of another controller":     {addresses: map[string]string{"10.96.0.7": ""}, change: foreign, want: "10.96.0.7 gate", kept: true},
		"of a service, and foreign": {services: []string{"held"}, addresses: map[string]string{"10.96.0.7": ""}, change: foreign, want: "10.96.0.7 held"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, stop := newAllocator(t.Context(), t)
				defer stop()
				for _, service := range c.services {
					if _, err := a.services.Create(t.Context(), serviceWith(service, "10.96.0.7")); err != nil {
						t.Fatal(err)
					}
				}
				for ip, service := range c.addresses {
					address := newAddress(netip.MustParseAddr(ip), serviceWith(service, ip), time.Now())
					if c.change != nil {
						c.change(address)
					}
					if _, err := a.addresses.kind.Create(t.Context(), address); err != nil {
						t.Fatal(err)
					}
				}
				synctest.Wait() // wait until the cache has them
				before := references(a)
				if err := a.repairAddresses(t.Context()); err != nil || len(c.addresses) > 0 && !slices.Equal(references(a), before) {
					t.Errorf("young addresses %v have become %v (%v)", before, references(a), err)
				}
				for range 3 {
					time.Sleep(repairPeriod)
					if err := a.repairAddresses(t.Context()); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
					got := references(a)
					if text := strings.Join(got, ", "); !strings.HasPrefix(text, c.want) || len(got) > 1 || c.want == "" && text != "" {
						t.Errorf("addresses %s, want %q", text, c.want)
					}
					if c.kept && !slices.Contains(before, strings.Join(got, "")) {
						t.Errorf("%v was made again: %v", before, got)
					}
				}
			})
		})
	}
}

// An address that was created in the future, because the clock was set back, is repaired as well.
func TestRepairAfterTheClockIsSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, stop := newAllocator(t.Context(), t)
		defer stop()
		if _, err := a.services.Create(t.Context(), serviceWith("held", "10.96.0.7")); err != nil {
			t.Fatal(err)
		}
		for ip, service := range map[string]string{"10.96.0.7": "lost", "10.96.0.8": "lost"} {
			address := newAddress(netip.MustParseAddr(ip), serviceWith(service, ip), time.Now().Add(time.Hour))
			if _, err := a.addresses.kind.Create(t.Context(), address); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 {
			synctest.Wait()
			if err := a.repairAddresses(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if got := references(a); len(got) != 1 || !strings.HasPrefix(got[0], "10.96.0.7 held") {
			t.Errorf("addresses %v", got)
		}
	})
}

// references returns the addresses with the names of their owners and their UIDs.
func references(a *Allocator) []string {
	var all []string
	a.addresses.kind.Snapshot().Ascend("", watchcache.Position{}, func(e *watchcache.Entry) bool {
		address := e.Object.(*networkingv1.IPAddress)
		all = append(all, address.Name+" "+address.Spec.ParentRef.Name+" "+string(address.UID))
		return true
	})
	return all
}

// The administrator may change the range of node ports. Those that services have are not
// given to others before the first repair.
func TestPortsOfAnEarlierRange(t *testing.T) {
	on := mem.New()
	before := &ports{limits: PortRange{30000, 30009}, store: on}
	if err := before.change(t.Context(), func(b *bitmap) error { return errors.Join(b.set(30001), b.set(30005), b.set(30009)) }); err != nil {
		t.Fatal(err)
	}
	for _, limits := range []PortRange{{30004, 30100}, {29000, 30005}, {31000, 31010}} {
		b, err := (&ports{limits: limits, store: on}).read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for port := limits.First; port <= limits.Last; port++ {
			if want := port == 30001 || port == 30005 || port == 30009; b.has(port) != want {
				t.Errorf("range %s: port %d is allocated: %t", limits, port, !want)
			}
		}
	}
}

// After a crash, allocations without a service are released, and missing
// allocations of services are restored.
func TestRepair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		a, stop := newAllocator(ctx, t)
		done := make(chan error, 1)
		held := &corev1.Service{
			TypeMeta:   metav1.TypeMeta{Kind: "Service", APIVersion: "v1"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "held"},
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeNodePort, ClusterIP: "10.96.0.7", ClusterIPs: []string{"10.96.0.7"},
				Ports: []corev1.ServicePort{{Port: 80, NodePort: 30003}},
			},
		}
		if _, err := a.services.Create(ctx, held); err != nil {
			t.Fatal(err)
		}
		lost := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "lost"}}
		if err := a.addresses.create(ctx, netip.MustParseAddr("10.96.0.9"), lost); err != nil {
			t.Fatal(err)
		}
		if err := a.ports.change(ctx, func(b *bitmap) error { return b.set(30005) }); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // wait until the cache has the service
		var repaired atomic.Bool
		go func() { done <- a.Run(ctx, func() { repaired.Store(true) }) }()
		synctest.Wait()
		if !repaired.Load() {
			t.Error("nothing was repaired at once")
		}
		if got := allocated(t, a); !slices.Equal(got, []string{"10.96.0.7", "10.96.0.9", "30003", "30005"}) {
			t.Errorf("at once, when the lost ones may still become a service's: %v", got)
		}
		time.Sleep(repairPeriod + time.Second)
		synctest.Wait()
		if got := allocated(t, a); !slices.Equal(got, []string{"10.96.0.7", "30003"}) {
			t.Errorf("later: %v", got)
		}
		cancel()
		<-done //nolint:errcheck // canceled
		stop()
	})
}

// allocated returns the allocated addresses and ports.
func allocated(t *testing.T, a *Allocator) []string {
	t.Helper()
	var all []string
	a.addresses.kind.Snapshot().Ascend("", watchcache.Position{}, func(e *watchcache.Entry) bool {
		all = append(all, e.Name)
		return true
	})
	b, err := a.ports.read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for port := b.limits.First; port <= b.limits.Last; port++ {
		if b.has(port) {
			all = append(all, strconv.Itoa(int(port)))
		}
	}
	return all
}

func TestOffsets(t *testing.T) {
	for _, test := range []struct {
		prefix   string
		first    string
		size     uint64
		reserved uint64 // for addresses that users choose
	}{
		{"10.96.0.0/32", "10.96.0.1", 0, 0},
		{"10.96.0.0/30", "10.96.0.1", 2, 0},
		{"10.96.0.0/28", "10.96.0.1", 14, 0},
		{"10.96.0.0/27", "10.96.0.1", 30, 16},
		{"10.96.0.0/24", "10.96.0.1", 254, 16},
		{"10.96.0.0/21", "10.96.0.1", 2046, 128},
		{"10.96.0.0/20", "10.96.0.1", 4094, 256},
		{"10.96.0.0/12", "10.96.0.1", 1048574, 256},
		{"fd00::/112", "fd00::1", 65535, 256},
		{"fd00::/64", "fd00::1", maxSpan - 1, 256},
	} {
		p := netip.MustParsePrefix(test.prefix)
		first, size := span(p)
		if first.String() != test.first || size != test.size || reservedSize(p) != test.reserved {
			t.Errorf("%s: %s %d, reserved %d", test.prefix, first, size, reservedSize(p))
		}
	}
	for _, test := range []struct {
		first string
		n     uint64
		want  string
	}{
		{"10.96.0.255", 2, "10.96.1.1"}, {"192.168.0.11", 0, "192.168.0.11"},
		{"fd54:ceea:51ad:2f00::", math.MaxUint64, "fd54:ceea:51ad:2f00:ffff:ffff:ffff:ffff"},
		{"fd54:ceea:51ad:2f00::", math.MaxInt64 + 1, "fd54:ceea:51ad:2f00:8000::"},
		{"fd54:ceea:51ad:2f00::", math.MaxUint64>>13 - 1, "fd54:ceea:51ad:2f00:7:ffff:ffff:fffe"},
	} {
		if got := offset(netip.MustParseAddr(test.first), test.n).String(); got != test.want {
			t.Errorf("%s and %d: %s", test.first, test.n, got)
		}
	}
}
