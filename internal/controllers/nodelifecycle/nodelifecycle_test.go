package nodelifecycle

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
	"github.com/coracle-io/coracle/internal/controllers/tainteviction"
	"github.com/coracle-io/coracle/internal/nodestatus"
)

func nodeOf(name string, status v1.ConditionStatus) *v1.Node {
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1.LabelTopologyZone: "a"}, CreationTimestamp: metav1.Now()},
		Status: v1.NodeStatus{Conditions: []v1.NodeCondition{{
			Type: v1.NodeReady, Status: status, LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
		}}},
	}
}

func describeTaints(taints []v1.Taint) string {
	var out []string
	for _, t := range taints {
		out = append(out, t.Key+":"+string(t.Effect))
	}
	return strings.Join(out, " ")
}

func TestTaints(t *testing.T) {
	with := func(status v1.ConditionStatus, f func(n *v1.Node)) *v1.Node {
		n := nodeOf("n", status)
		if f != nil {
			f(n)
		}
		return n
	}
	for _, c := range []struct {
		name  string
		node  *v1.Node
		evict bool
		want  string
	}{
		{"ready", with(v1.ConditionTrue, nil), true, ""},
		{"not ready", with(v1.ConditionFalse, nil), false, "node.kubernetes.io/not-ready:NoSchedule"},
		{"not ready, evicted", with(v1.ConditionFalse, nil), true, "node.kubernetes.io/not-ready:NoExecute node.kubernetes.io/not-ready:NoSchedule"},
		{"unreachable", with(v1.ConditionUnknown, nil), true, "node.kubernetes.io/unreachable:NoExecute node.kubernetes.io/unreachable:NoSchedule"},
		{"from not ready to unreachable", with(v1.ConditionUnknown, func(n *v1.Node) {
			n.Spec.Taints = []v1.Taint{{Key: v1.TaintNodeNotReady, Effect: v1.TaintEffectNoExecute}, {Key: v1.TaintNodeNotReady, Effect: v1.TaintEffectNoSchedule}}
		}), true, "node.kubernetes.io/unreachable:NoExecute node.kubernetes.io/unreachable:NoSchedule"},
		{"cordoned, with another taint", with(v1.ConditionTrue, func(n *v1.Node) {
			n.Spec.Unschedulable = true
			n.Spec.Taints = []v1.Taint{{Key: "dedicated", Value: "x", Effect: v1.TaintEffectNoExecute}}
		}), true, "dedicated:NoExecute node.kubernetes.io/unschedulable:NoSchedule"},
		{"disk pressure", with(v1.ConditionTrue, func(n *v1.Node) {
			n.Status.Conditions = append(n.Status.Conditions, v1.NodeCondition{Type: v1.NodeDiskPressure, Status: v1.ConditionTrue})
		}), true, "node.kubernetes.io/disk-pressure:NoSchedule"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := describeTaints(taints(c.node, c.evict, time.Now())); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestZoneRates(t *testing.T) {
	r := rates{normal: 0.1, secondary: 0.01, threshold: 0.55, large: 50}
	for _, c := range []struct {
		zone zone
		all  bool
		want float32
	}{
		{zone{ready: 9, notReady: 1}, false, 0.1},
		{zone{ready: 2, notReady: 8}, false, 0},
		{zone{ready: 20, notReady: 80}, false, 0.01},
		{zone{ready: 0, notReady: 5}, false, 0.1},
		{zone{ready: 0, notReady: 5}, true, 0},
		{zone{ready: 0, notReady: 2}, false, 0.1},
	} {
		if got := r.rate(&c.zone, c.all); got != c.want {
			t.Errorf("%d ready, %d not ready, all zones disrupted %v: %v, want %v", c.zone.ready, c.zone.notReady, c.all, got, c.want)
		}
	}
}

// One of two nodes stops reporting. After 50 s it is tainted and its pods are not ready.
// 300 s later its pods are deleted, except those with a longer toleration.
func TestUnreachableNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tolerate := func(seconds int64) []v1.Toleration {
			return []v1.Toleration{{Key: v1.TaintNodeUnreachable, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute, TolerationSeconds: &seconds}}
		}
		pod := func(name string, seconds int64) *v1.Pod {
			return &v1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
				Spec:       v1.PodSpec{NodeName: "silent", Tolerations: tolerate(seconds)},
				Status:     v1.PodStatus{Phase: v1.PodRunning, Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}},
			}
		}
		c := controllertest.New(t, nodeOf("alive", v1.ConditionTrue), nodeOf("silent", v1.ConditionTrue), pod("usual", 300), pod("patient", 3600))
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: v1.NamespaceNodeLease, Name: "alive"}}
		renew := func() {
			now := metav1.NowMicro()
			lease = lease.DeepCopy()
			lease.Spec.RenewTime = &now
			if _, err := c.Fake.CoordinationV1().Leases(v1.NamespaceNodeLease).Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
				if _, err := c.Fake.CoordinationV1().Leases(v1.NamespaceNodeLease).Create(t.Context(), lease, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
		}
		wait := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); {
				time.Sleep(min(10*time.Second, time.Until(end)))
				renew()
				synctest.Wait()
			}
		}
		taintsOf := func(name string) string {
			n, err := c.Fake.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return string(nodestatus.Ready(n)) + " " + describeTaints(n.Spec.Taints)
		}
		podsNow := func() string {
			var out []string
			for _, p := range c.Pods("default") {
				out = append(out, fmt.Sprintf("%s=%s", p.Name, p.Status.Conditions[0].Status))
			}
			return strings.Join(out, " ")
		}
		registry := prometheus.NewRegistry()
		c.Env.Metrics = registry
		c.Run(Descriptor())
		c.Run(tainteviction.Descriptor())
		wait(45 * time.Second)
		wantZone(t, registry, 0, 100, 0)
		if got := taintsOf("silent"); got != "True " {
			t.Errorf("after 45 s: %s", got)
		}
		wait(6 * time.Second)
		if got := taintsOf("silent"); got != "Unknown node.kubernetes.io/unreachable:NoExecute node.kubernetes.io/unreachable:NoSchedule" {
			t.Errorf("after 51 s: %s", got)
		}
		if got := taintsOf("alive"); got != "True " {
			t.Errorf("the healthy node: %s", got)
		}
		if got := podsNow(); got != "patient=False usual=False" {
			t.Errorf("after 51 s: %s", got)
		}
		wantZone(t, registry, 1, 50, 1)
		wait(295 * time.Second)
		if got := podsNow(); got != "patient=False usual=False" {
			t.Errorf("after 346 s: %s", got)
		}
		wait(6 * time.Second)
		if got := podsNow(); got != "patient=False" {
			t.Errorf("after 352 s: %s", got)
		}
	})
}

// wantZone checks the metrics of the only zone.
func wantZone(t *testing.T, registry *prometheus.Registry, evictions, health, unhealthy float64) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		got[f.GetName()] = f.GetMetric()[0].GetCounter().GetValue() + f.GetMetric()[0].GetGauge().GetValue()
	}
	for name, want := range map[string]float64{
		"node_collector_evictions_total": evictions, "node_collector_zone_health": health,
		"node_collector_zone_size": 2, "node_collector_unhealthy_nodes_in_zone": unhealthy,
	} {
		if value, ok := got[name]; !ok || value != want {
			t.Errorf("%s %v, want %v", name, value, want)
		}
	}
	if n, err := testutil.GatherAndCount(registry, "node_collector_update_node_health_duration_seconds"); err != nil || n != 1 {
		t.Errorf("%d metrics of the time that a node's health takes, %v", n, err)
	}
}

func readyPod(name, node string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       v1.PodSpec{NodeName: node},
		Status:     v1.PodStatus{Phase: v1.PodRunning, Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}},
	}
}

// The pods of a node are marked as not ready only if its kubelet has stopped reporting, and
// only once. A kubelet that reports its node as not ready also reports the state of its pods.
func TestPodsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := controllertest.New(t, nodeOf("reporting", v1.ConditionFalse), nodeOf("unreachable", v1.ConditionUnknown),
			readyPod("reporting", "reporting"), readyPod("unreachable", "unreachable"))
		c.Run(Descriptor())
		state := func() string {
			synctest.Wait()
			var out []string
			for _, p := range c.Pods("default") {
				out = append(out, fmt.Sprintf("%s=%s", p.Name, p.Status.Conditions[0].Status))
			}
			return strings.Join(out, " ")
		}
		if got := state(); got != "reporting=True unreachable=False" {
			t.Errorf("at first: %s", got)
		}
		c.SetReady("default", "unreachable", time.Now())
		n, err := c.Fake.CoreV1().Nodes().Get(t.Context(), "unreachable", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		n.Labels["changed"] = "true"
		if _, err := c.Fake.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		if got := state(); got != "reporting=True unreachable=True" {
			t.Errorf("after a change of the node: %s", got)
		}
	})
}
