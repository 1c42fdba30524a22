package candidates

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"

	_ "github.com/coracle-io/coracle/internal/bubble"
	"github.com/coracle-io/coracle/internal/wallclock/wallclocktest"
)

// bench is an election among client-go's candidates.
type bench struct {
	*testing.T
	kube kubernetes.Interface
	wg   sync.WaitGroup
}

// run runs f beside the elections, in virtual time.
func run(t *testing.T, f func(b *bench)) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{T: t, kube: fake.NewSimpleClientset()}
		ctx, cancel := context.WithCancel(t.Context())
		b.wg.Go(func() { _ = Run(ctx, b.kube) })
		f(b)
		cancel()
		b.wg.Wait()
	})
}

// candidate starts a candidate for the Lease default/work, which leads whenever it is
// elected, until stop is called.
func (b *bench) candidate(name, emulation string) (stop func()) {
	b.Helper()
	c, _, err := leaderelection.NewCandidate(b.kube, "default", name, "work", "1.37.0", emulation, coordinationv1.OldestEmulationVersion)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	b.wg.Go(func() { c.Run(ctx) })
	b.leads(ctx, name, true)
	return cancel
}

// leads takes part in the election of the Lease until ctx ends, by candidates or without.
func (b *bench) leads(ctx context.Context, name string, coordinated bool) {
	b.Helper()
	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, "default", "work", b.kube.CoreV1(), b.kube.CoordinationV1(), resourcelock.ResourceLockConfig{Identity: name})
	if err != nil {
		b.Fatal(err)
	}
	b.wg.Go(func() {
		for ctx.Err() == nil {
			leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
				Lock: lock, LeaseDuration: 5 * time.Second, RenewDeadline: 3 * time.Second, RetryPeriod: time.Second, Coordinated: coordinated,
				Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(ctx context.Context) { <-ctx.Done() }, OnStoppedLeading: func() {}},
			})
		}
	})
}

// want checks who holds the Lease after a minute.
func (b *bench) want(when, holder string) {
	b.Helper()
	time.Sleep(time.Minute)
	synctest.Wait()
	lease, err := b.kube.CoordinationV1().Leases("default").Get(b.Context(), "work", metav1.GetOptions{})
	if err != nil {
		b.Fatalf("%s: %v", when, err)
	}
	if got := ptr.Deref(lease.Spec.HolderIdentity, ""); got != holder || !holds(&lease.Spec, lease.Spec.RenewTime.Time, time.Now()) {
		b.Errorf("%s: the lease is %+v, want %s", when, lease.Spec, holder)
	}
}

// The best candidate gets the Lease, also from another one that holds it. One that does
// not answer any more gets nothing, and is forgotten.
func TestCandidatesAreElected(t *testing.T) {
	run(t, func(b *bench) {
		stopNew := b.candidate("new", "1.37.0")
		defer stopNew()
		b.want("a single candidate", "new")
		stopOld := b.candidate("old", "1.36.0")
		b.want("an older emulation", "old")
		stopOther := b.candidate("other", "1.37.0")
		defer stopOther()
		b.want("an equal one", "old")
		stopOld()
		b.want("the holder is gone", "new")
		time.Sleep(candidateAge)
		b.want("later", "new")
		if _, err := b.kube.CoordinationV1beta1().LeaseCandidates("default").Get(b.Context(), "old", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			b.Errorf("a candidate that is gone is remembered: %v", err)
		}
	})
}

// A Lease of an election without candidates stays with its holder, and is taken by such an
// election when the candidates are gone.
func TestElectionsWithoutCandidates(t *testing.T) {
	run(t, func(b *bench) {
		before, end := context.WithCancel(b.Context())
		b.leads(before, "before", false)
		b.want("without candidates", "before")
		stop := b.candidate("candidate", "1.37.0")
		b.want("beside a candidate", "before")
		end()
		b.want("with a candidate alone", "candidate")
		stop()
		after, end := context.WithCancel(b.Context())
		defer end()
		b.leads(after, "after", false)
		b.want("without candidates again", "after")
	})
}

// A Lease whose holder is gone is given to another candidate, though the holder renewed it in the
// future, before the clock was set back. Neither Leases nor candidates are lost because the clock
// is set forward.
func TestElectionsWhileTheClockIsSet(t *testing.T) {
	begin, id := time.Now(), types.NamespacedName{Namespace: "default", Name: "work"}
	for _, set := range []time.Duration{-time.Hour, time.Hour} {
		at := metav1.MicroTime{Time: begin.Round(0)}
		kube := fake.NewSimpleClientset(&coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: id.Namespace, Name: id.Name},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: new("gone"), LeaseDurationSeconds: new(int32(5)), RenewTime: &at, Strategy: new(coordinationv1.OldestEmulationVersion),
			},
		}, &coordinationv1beta1.LeaseCandidate{
			ObjectMeta: metav1.ObjectMeta{Namespace: id.Namespace, Name: "there"},
			Spec: coordinationv1beta1.LeaseCandidateSpec{
				LeaseName: id.Name, BinaryVersion: "1.37.0", EmulationVersion: "1.37.0", Strategy: coordinationv1.OldestEmulationVersion, PingTime: &at, RenewTime: &at,
			},
		})
		e := newElector(kube)
		for i, want := range []string{"gone", "gone", "gone", "gone", "gone", "gone", "there"} {
			now := begin.Add(time.Duration(i) * time.Second)
			if i > 0 {
				now = wallclocktest.Set(now, set)
			}
			// A candidate that is pinged answers before the next step.
			for range 2 {
				if err := e.electAll(t.Context(), now); err != nil {
					t.Fatal(err)
				}
				c, err := kube.CoordinationV1beta1().LeaseCandidates(id.Namespace).Get(t.Context(), "there", metav1.GetOptions{})
				if err != nil {
					t.Fatalf("set by %v: after %d s: %v", set, i, err)
				}
				c.Spec.RenewTime = c.Spec.PingTime
				if _, err := kube.CoordinationV1beta1().LeaseCandidates(id.Namespace).Update(t.Context(), c, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			lease, err := kube.CoordinationV1().Leases(id.Namespace).Get(t.Context(), id.Name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got := ptr.Deref(lease.Spec.HolderIdentity, ""); got != want {
				t.Errorf("set by %v: after %d s the holder is %s, want %s", set, i, got, want)
			}
		}
	}
}

// Servers whose clocks differ by 20 minutes elect together: neither takes the pings of the other for
// none. The clocks of the candidates are those of one of the servers.
func TestElectionsOfServersWithDifferentClocks(t *testing.T) {
	const apart = 20 * time.Minute
	for _, ahead := range []time.Duration{0, apart} {
		begin := time.Now()
		kube := fake.NewSimpleClientset(&coordinationv1beta1.LeaseCandidate{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "there"},
			Spec: coordinationv1beta1.LeaseCandidateSpec{
				LeaseName: "work", BinaryVersion: "1.37.0", EmulationVersion: "1.37.0", Strategy: coordinationv1.OldestEmulationVersion, RenewTime: &metav1.MicroTime{Time: begin.Round(0)},
			},
		})
		candidates := kube.CoordinationV1beta1().LeaseCandidates("default")
		servers := map[time.Duration]*elector{0: newElector(kube), apart: newElector(kube)}
		elected := func() bool {
			for i := range 30 {
				for _, by := range []time.Duration{0, apart} {
					now := begin.Add(time.Duration(i) * time.Second)
					if err := servers[by].electAll(t.Context(), wallclocktest.Set(now, by)); err != nil {
						t.Fatal(err)
					}
					if _, err := kube.CoordinationV1().Leases("default").Get(t.Context(), "work", metav1.GetOptions{}); err == nil {
						return true
					}
					c, err := candidates.Get(t.Context(), "there", metav1.GetOptions{})
					if err != nil {
						t.Fatal(err)
					}
					if c.Spec.PingTime != nil {
						c.Spec.PingTime.Time = c.Spec.PingTime.Round(0) // as it is stored
						if c.Spec.PingTime.After(c.Spec.RenewTime.Time) {
							c.Spec.RenewTime = &metav1.MicroTime{Time: wallclocktest.Set(now, ahead).Round(0)}
						}
					}
					if _, err := candidates.Update(t.Context(), c, metav1.UpdateOptions{}); err != nil {
						t.Fatal(err)
					}
				}
			}
			return false
		}
		if !elected() {
			t.Errorf("candidates with a clock that is ahead by %v: none is elected", ahead)
		}
	}
}

// After a restart, a Lease that expired before is not taken for held.
func TestExpiredLeaseAfterARestart(t *testing.T) {
	id, now := types.NamespacedName{Namespace: "default", Name: "work"}, time.Now()
	lease := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
		HolderIdentity: new("gone"), LeaseDurationSeconds: new(int32(15)), RenewTime: &metav1.MicroTime{Time: now.Add(-time.Minute).Round(0)},
	}}
	e := newElector(nil)
	if e.held(id, lease, now) {
		t.Error("a Lease that was renewed a minute ago is held")
	}
	lease.Spec.RenewTime = &metav1.MicroTime{Time: now.Add(-time.Hour).Round(0)}
	if !e.held(id, lease, now) || !e.held(id, lease, now.Add(15*time.Second)) || e.held(id, lease, now.Add(16*time.Second)) {
		t.Error("a Lease that is renewed by a clock that is behind is not held for 15 s")
	}
}

// The candidates with the newest version choose the strategy. One that is not known here is
// only written down, and nothing happens while they differ.
func TestStrategies(t *testing.T) {
	const own = coordinationv1.CoordinatedLeaseStrategy("example.com/mine")
	now := time.Unix(1_800_000_000, 0)
	candidate := func(name, binary string, strategy coordinationv1.CoordinatedLeaseStrategy) *coordinationv1beta1.LeaseCandidate {
		at := &metav1.MicroTime{Time: now}
		return &coordinationv1beta1.LeaseCandidate{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: coordinationv1beta1.LeaseCandidateSpec{
			LeaseName: "work", BinaryVersion: binary, EmulationVersion: "1.36.0", Strategy: strategy, PingTime: at, RenewTime: at,
		}}
	}
	for name, test := range map[string]struct {
		all    []*coordinationv1beta1.LeaseCandidate
		lease  *coordinationv1.Lease
		want   coordinationv1.CoordinatedLeaseStrategy // "": nothing changes
		holder string
	}{
		"known": {
			all:  []*coordinationv1beta1.LeaseCandidate{candidate("a", "1.36.0", own), candidate("b", "1.37.0", coordinationv1.OldestEmulationVersion)},
			want: coordinationv1.OldestEmulationVersion, holder: "a",
		},
		"unknown": {
			all:  []*coordinationv1beta1.LeaseCandidate{candidate("a", "1.37.0", own), candidate("b", "1.36.0", coordinationv1.OldestEmulationVersion)},
			want: own,
		},
		"written down": {
			all:   []*coordinationv1beta1.LeaseCandidate{candidate("a", "1.37.0", own)},
			lease: &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{Strategy: ptr.To(own)}},
		},
		"different": {
			all: []*coordinationv1beta1.LeaseCandidate{candidate("a", "1.37.0", own), candidate("b", "1.37.0", coordinationv1.OldestEmulationVersion)},
		},
	} {
		next := decide(test.lease, test.all, false, func(*coordinationv1beta1.LeaseCandidate) time.Duration { return 0 }, now)
		if len(next.ping) > 0 || (next.lease == nil) != (test.want == "") {
			t.Errorf("%s: %+v", name, next)
			continue
		}
		if next.lease != nil && (ptr.Deref(next.lease.Strategy, "") != test.want || ptr.Deref(next.lease.HolderIdentity, "") != test.holder) {
			t.Errorf("%s: strategy %q, holder %q", name, ptr.Deref(next.lease.Strategy, ""), ptr.Deref(next.lease.HolderIdentity, ""))
		}
	}
}
