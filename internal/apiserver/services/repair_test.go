package services

import (
	"context"
	"net/netip"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	_ "github.com/coracle-io/coracle/internal/bubble"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core"
	"github.com/coracle-io/coracle/internal/resource/networking"
	"github.com/coracle-io/coracle/internal/store/mem"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// After a crash, allocations without a service are released, and missing
// allocations of services are restored.
func TestRepair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := mem.New()
		kinds := []*resource.Resource{core.Services(), networking.IPAddresses(), networking.ServiceCIDRs()}
		cache := watchcache.New(s, kinds)
		done := make(chan error, 2)
		go func() { done <- cache.Run(ctx) }()
		<-cache.Synced()
		a, err := New(Config{
			CIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/24")}, NodePorts: PortRange{30000, 30009}, Store: s, Clock: clock.RealClock{},
			Services: cache.Kind(kinds[0]), Addresses: cache.Kind(kinds[1]), Ranges: cache.Kind(kinds[2]),
		}, core.CheckedServiceFamilies)
		if err != nil {
			t.Fatal(err)
		}
		held := &corev1.Service{
			TypeMeta:   metav1.TypeMeta{Kind: "Service", APIVersion: "v1"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "held"},
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeNodePort, ClusterIP: "10.96.0.7", ClusterIPs: []string{"10.96.0.7"},
				Ports: []corev1.ServicePort{{Port: 80, NodePort: 30003}},
			},
		}
		if _, err := cache.Kind(kinds[0]).Create(ctx, held); err != nil {
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
		<-done //nolint:errcheck // canceled
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
		prefix string
		first  string
		size   uint64
	}{
		{"10.96.0.0/24", "10.96.0.1", 254},
		{"10.96.0.0/30", "10.96.0.1", 2},
		{"fd00::/112", "fd00::1", 65535},
		{"fd00::/64", "fd00::1", maxSpan - 1},
	} {
		first, size := span(netip.MustParsePrefix(test.prefix))
		if first.String() != test.first || size != test.size {
			t.Errorf("%s: %s %d", test.prefix, first, size)
		}
	}
	if got := offset(netip.MustParseAddr("10.96.0.255"), 2).String(); got != "10.96.1.1" {
		t.Error(got)
	}
}
