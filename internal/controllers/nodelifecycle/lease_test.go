package nodelifecycle

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
	"github.com/coracle-io/coracle/internal/nodestatus"
)

// A node is not taken for unreachable because the cache does not show that its lease is renewed,
// or because its lease cannot be read.
func TestStaleLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := controllertest.New(t, nodeOf("n", v1.ConditionTrue))
		renewed, failing := metav1.NowMicro(), false
		// The informers see no lease.
		c.Fake.PrependReactor("get", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			if failing {
				return true, nil, errors.New("the server is gone")
			}
			return true, &coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Namespace: v1.NamespaceNodeLease, Name: "n"},
				Spec:       coordinationv1.LeaseSpec{RenewTime: &renewed},
			}, nil
		})
		c.Run(Descriptor())
		ready := func() v1.ConditionStatus {
			synctest.Wait()
			n, err := c.Fake.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return nodestatus.Ready(n)
		}
		for range 20 {
			time.Sleep(10 * time.Second)
			renewed = metav1.NowMicro()
			if got := ready(); got != v1.ConditionTrue {
				t.Fatalf("the node is %s while its lease is renewed", got)
			}
		}
		failing = true
		time.Sleep(time.Minute)
		if got := ready(); got != v1.ConditionTrue {
			t.Errorf("the node is %s while its lease cannot be read", got)
		}
		failing = false
		time.Sleep(5 * time.Minute)
		if got := ready(); got != v1.ConditionUnknown {
			t.Errorf("the node is %s after its lease was not renewed for minutes", got)
		}
	})
}

// A node without a status is not unreachable while its lease is renewed.
func TestLeaseWithoutStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := nodeOf("n", v1.ConditionTrue)
		n.CreationTimestamp, n.Status.Conditions = metav1.NewTime(time.Now().Add(-time.Hour)), nil
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: v1.NamespaceNodeLease, Name: "n"}}
		lease.Spec.RenewTime = new(metav1.NowMicro())
		c := controllertest.New(t, n, nodeOf("other", v1.ConditionTrue))
		leases := c.Fake.CoordinationV1().Leases(v1.NamespaceNodeLease)
		lease, err := leases.Create(t.Context(), lease, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		c.Run(Descriptor())
		get := func() *v1.Node {
			synctest.Wait()
			n, err := c.Fake.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		for range 4 {
			time.Sleep(45 * time.Second)
			lease.Spec.RenewTime = new(metav1.NowMicro())
			if lease, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			if got := get(); len(got.Status.Conditions)+len(got.Spec.Taints) != 0 {
				t.Fatalf("conditions %v, taints %v while the lease is renewed", got.Status.Conditions, got.Spec.Taints)
			}
		}
		time.Sleep(61 * time.Second)
		if got := get(); nodestatus.Condition(got, v1.NodeReady) == nil || nodestatus.Ready(got) != v1.ConditionUnknown {
			t.Errorf("conditions %v when the lease is no longer renewed", got.Status.Conditions)
		}
	})
}

// A node without a status that was created in the future, because the clock was set back, is not
// waited for until then.
func TestNodeOfTheFuture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := nodeOf("n", v1.ConditionTrue)
		n.CreationTimestamp, n.Status.Conditions = metav1.NewTime(time.Now().Add(time.Hour)), nil
		c := controllertest.New(t, n, nodeOf("other", v1.ConditionTrue))
		c.Run(Descriptor())
		get := func() *v1.Node {
			synctest.Wait()
			n, err := c.Fake.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		time.Sleep(59 * time.Second)
		if got := get(); len(got.Status.Conditions) != 0 {
			t.Errorf("after 59 s: conditions %v", got.Status.Conditions)
		}
		time.Sleep(2 * time.Second)
		if got := get(); nodestatus.Condition(got, v1.NodeReady) == nil || nodestatus.Ready(got) != v1.ConditionUnknown {
			t.Errorf("after 61 s: conditions %v", got.Status.Conditions)
		}
	})
}

// Older programs select nodes by labels whose names have changed.
func TestPlatformLabels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := nodeOf("n", v1.ConditionTrue)
		n.Labels = map[string]string{v1.LabelOSStable: "linux", v1.LabelArchStable: "arm64", "beta.kubernetes.io/arch": "amd64"}
		c := controllertest.New(t, n, nodeOf("bare", v1.ConditionTrue))
		c.Run(Descriptor())
		synctest.Wait()
		for name, want := range map[string]string{"n": "linux arm64", "bare": " "} {
			n, err := c.Fake.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got := n.Labels["beta.kubernetes.io/os"] + " " + n.Labels["beta.kubernetes.io/arch"]; got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
		if err := c.Fake.CoreV1().Nodes().Delete(t.Context(), "bare", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if events := c.DrainEvents(); !slices.Contains(events, "Normal RemovingNode Node bare event: Removing Node bare from Controller") {
			t.Errorf("events %q", events)
		}
	})
}

// When all zones are disrupted, no node is evicted. Afterwards, nodes are evicted at the usual
// rate again, also those that had been evicted before.
func TestRateAfterFullDisruption(t *testing.T) {
	o := defaultOptions()
	c := &nodes{
		options: o, counts: newCounts(), zones: map[string]*zone{zoneOf(nodeOf("n", v1.ConditionTrue)): {ready: 1, notReady: 2}},
		evicting: map[string]bool{"a": true, "b": true},
	}
	a, b := nodeOf("a", v1.ConditionFalse), nodeOf("b", v1.ConditionFalse)
	z := c.zones[zoneOf(a)]
	z.ready = 0
	for _, n := range []*v1.Node{a, b} {
		if evict, _ := c.mayEvict(n); evict {
			t.Errorf("%s is evicted while no node is ready", n.Name)
		}
	}
	z.ready = 1
	if evict, _ := c.mayEvict(a); !evict {
		t.Error("a is not evicted")
	}
	if evict, wait := c.mayEvict(b); evict || wait <= 0 {
		t.Errorf("b is evicted: %v, after %v", evict, wait)
	}
}

// Nodes with the label exclude-disruption do not tell whether a zone is disrupted, and nodes without
// a status are not evicted.
func TestMayEvict(t *testing.T) {
	c := &nodes{options: defaultOptions(), counts: newCounts(), zones: map[string]*zone{}, members: map[string]membership{}, evicting: map[string]bool{}}
	failed, other, silent := nodeOf("failed", v1.ConditionUnknown), nodeOf("other", v1.ConditionTrue), nodeOf("silent", v1.ConditionUnknown)
	other.Labels[labelExcludeDisruption] = ""
	silent.Status.Conditions = nil
	c.updateZone(failed)
	c.updateZone(other)
	if evict, _ := c.mayEvict(failed); evict {
		t.Error("a node is evicted although all that count have failed")
	}
	delete(other.Labels, labelExcludeDisruption)
	if !c.updateZone(other) {
		t.Error("the state of the zone has not changed with the label")
	}
	if evict, wait := c.mayEvict(silent); evict || wait != 0 {
		t.Errorf("a node without a status is evicted: %v, after %v", evict, wait)
	}
	if evict, _ := c.mayEvict(failed); !evict {
		t.Error("the failed node is not evicted")
	}
	other.Labels[labelExcludeDisruption] = ""
	c.updateZone(other)
	c.removeMember(c.members[failed.Name])
	delete(c.members, failed.Name)
	if z := c.zones[zoneOf(other)]; z == nil || *z.members(membership{excluded: true}) != 1 || z.ready+z.notReady != 0 || allFullyDisrupted(c.zones, 0.5) {
		t.Errorf("zone %+v with the excluded node alone", z)
	}
	c.forget("other")
	if len(c.zones)+len(c.members) != 0 {
		t.Errorf("left over: %v, %v", c.zones, c.members)
	}
}

// A lease whose node does not exist, or no longer, leaves nothing behind.
func TestLeaseWithoutNode(t *testing.T) {
	c := &nodes{health: map[string]*nodeHealth{}}
	now := metav1.NowMicro()
	c.observe("gone", nil, &now)
	if len(c.health) != 0 {
		t.Errorf("health of %d nodes", len(c.health))
	}
	c.observe("n", nodeOf("n", v1.ConditionTrue), nil)
	c.observe("n", nil, &now)
	if h := c.health["n"]; h == nil || !h.renewTime.Equal(&now) {
		t.Errorf("health %+v", h)
	}
}
