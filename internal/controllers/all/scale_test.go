package all_test

import (
	"cmp"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/controllertest"
	"github.com/coracle-io/coracle/internal/controllers/deployment"
	"github.com/coracle-io/coracle/internal/controllers/disruption"
	"github.com/coracle-io/coracle/internal/controllers/endpoints"
	"github.com/coracle-io/coracle/internal/controllers/endpointslice"
	"github.com/coracle-io/coracle/internal/controllers/nodelifecycle"
	"github.com/coracle-io/coracle/internal/controllers/replicaset"
	"github.com/coracle-io/coracle/internal/costtest"
)

// scaled is a controller whose cost of one change is measured beside many other objects.
type scaled struct {
	name  string
	new   func() controller.Descriptor
	flags []string
	// group returns the objects of a workload with a name, with a number of pods or nodes.
	group    func(name string) []runtime.Object
	perGroup int
	// verb and resource are the write of the controller that answers a change. settles says
	// that it writes that for each group at the start.
	verb, resource string
	settles        bool
	// change makes the n-th change of the group with a name.
	change func(b *testing.B, c *controllertest.Cluster, name string, n int)
}

const (
	changedGroup = "changed"
	podsOfGroup  = 10
)

// scales returns the controllers to measure.
func scales() []scaled {
	return []scaled{
		{
			name: "replicaset", new: replicaset.Descriptor, flags: []string{"--concurrent-replicaset-syncs=1"},
			group: func(name string) []runtime.Object { return append(podsOf(name), replicaSetOf(name)) }, perGroup: podsOfGroup,
			verb: "update", resource: "replicasets", settles: true, change: flipPod,
		},
		{
			name: "deployment", new: deployment.Descriptor, flags: []string{"--concurrent-deployment-syncs=1"},
			group: func(name string) []runtime.Object {
				return append(podsOf(name), deploymentOf(name), replicaSetOf(name))
			}, perGroup: podsOfGroup,
			verb: "update", resource: "deployments", settles: true, change: flipReplicaSet,
		},
		{
			name: "endpoints", new: endpoints.Descriptor, flags: []string{"--concurrent-endpoint-syncs=1"},
			group: func(name string) []runtime.Object { return append(podsOf(name), serviceOf(name)) }, perGroup: podsOfGroup,
			verb: "*", resource: "endpoints", settles: true, change: flipPod,
		},
		{
			name: "endpointslice", new: endpointslice.Descriptor, flags: []string{"--concurrent-service-endpoint-syncs=1"},
			group: func(name string) []runtime.Object { return append(podsOf(name), serviceOf(name)) }, perGroup: podsOfGroup,
			verb: "*", resource: "endpointslices", settles: true, change: flipPod,
		},
		{
			name: "disruption", new: disruption.Descriptor, flags: []string{"--concurrent-disruption-syncs=1"},
			group: func(name string) []runtime.Object { return append(podsOf(name), budgetOf(name)) }, perGroup: podsOfGroup,
			verb: "update", resource: "poddisruptionbudgets", settles: true, change: flipPod,
		},
		{
			name: "nodelifecycle", new: nodelifecycle.Descriptor, flags: []string{"--node-monitor-grace-period=1h", "--node-startup-grace-period=1h"},
			group: func(name string) []runtime.Object { return []runtime.Object{nodeOf(name, false)} }, perGroup: 1,
			verb: "patch", resource: "nodes", change: flipNode,
		},
	}
}

// BenchmarkScale shows what it costs the controllers to answer one change beside 1,000,
// 10,000 and 100,000 other objects in the same namespace, the fake API server included.
// "growth" is the cost compared with the first, in allocated bytes; its budget is 1.
func BenchmarkScale(b *testing.B) {
	for _, s := range scales() {
		var first float64
		for _, others := range []int{1000, 10_000, 100_000} {
			b.Run(fmt.Sprintf("%s/%d", s.name, others), func(b *testing.B) {
				cost, changes := s.measure(b, others)
				each := float64(cost.Bytes) / float64(changes)
				if first == 0 {
					first = each
				}
				b.ReportMetric(each, "bytes/change")
				b.ReportMetric(float64(cost.Processor.Microseconds())/float64(changes), "CPU-us/change")
				b.ReportMetric(each/first, "growth(budget:1)")
			})
		}
	}
}

// measure returns the cost of the changes of one group beside other objects.
func (s scaled) measure(b *testing.B, others int) (cost costtest.Cost, changes int) {
	b.Helper()
	groups := others/s.perGroup + 1
	objects := append(s.group(changedGroup), nodeOf("node", false))
	for i := range groups - 1 {
		objects = append(objects, s.group(fmt.Sprintf("other-%d", i))...)
	}
	c := controllertest.New(b, objects...)
	c.Env.Events = &record.FakeRecorder{} // without a channel, it keeps no events
	w := &writes{groups: map[string]bool{}, settled: make(chan struct{}), changed: make(chan struct{}, 1), want: groups}
	c.Fake.PrependReactor(s.verb, s.resource, w.observe)
	c.Run(s.new(), s.flags...)
	if s.settles {
		w.wait(b, w.settled)
	}
	change := func() {
		select {
		case <-w.changed: // a late write for the change before
		default:
		}
		s.change(b, c, changedGroup, changes)
		w.wait(b, w.changed)
		changes++
	}
	const rounds = 4
	for range rounds { // what was under way at the start is over
		change()
	}
	changes = 0
	cost = costtest.OfProcess(b, func() {
		for b.Loop() {
			change()
		}
	})
	return cost, changes
}

// writes observes what a controller writes.
type writes struct {
	mu      sync.Mutex // guards groups
	groups  map[string]bool
	want    int
	settled chan struct{} // closed when all groups have been written
	changed chan struct{} // receives when changedGroup has been written
}

// observe is a reactor that leaves the action to others.
func (w *writes) observe(action clienttesting.Action) (bool, runtime.Object, error) {
	var name string
	switch a := action.(type) {
	case clienttesting.PatchAction:
		name = a.GetName()
	case clienttesting.UpdateAction: // or to create
		o := a.GetObject().(metav1.Object)
		name = cmp.Or(o.GetName(), o.GetGenerateName())
	default:
		return false, nil, nil
	}
	for _, prefix := range []string{changedGroup, "other-"} {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			number, _, _ := strings.Cut(rest, "-")
			w.record(prefix, number)
		}
	}
	return false, nil, nil
}

func (w *writes) record(prefix, number string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if before := len(w.groups); before < w.want {
		if w.groups[prefix+number] = true; len(w.groups) == w.want {
			close(w.settled)
		}
	}
	if prefix == changedGroup {
		select {
		case w.changed <- struct{}{}:
		default:
		}
	}
}

// wait waits for a channel.
func (w *writes) wait(b *testing.B, c <-chan struct{}) {
	b.Helper()
	select {
	case <-c:
	case <-time.After(10 * time.Minute):
		b.Fatal("the controller does not write")
	}
}

func metaOf(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), Labels: map[string]string{"app": name, "tier": "front"}}
}

func readyIf(ready bool) v1.ConditionStatus {
	if ready {
		return v1.ConditionTrue
	}
	return v1.ConditionFalse
}

// podOf returns a pod of a group.
func podOf(name string, i int, ready bool) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metaOf(name)}
	p.Name, p.UID = fmt.Sprintf("%s-%d", name, i), types.UID(fmt.Sprintf("%s-%d", name, i))
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: name, UID: types.UID(name), Controller: new(true)}}
	p.Spec = v1.PodSpec{NodeName: "node", Containers: []v1.Container{{Name: "main", Image: "example/app:1"}}}
	ip := fmt.Sprintf("10.0.0.%d", i+1)
	p.Status = v1.PodStatus{
		Phase: v1.PodRunning, PodIP: ip, PodIPs: []v1.PodIP{{IP: ip}},
		Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: readyIf(ready), LastTransitionTime: metav1.NewTime(time.Unix(1000, 0))}},
	}
	return p
}

func podsOf(name string) (objects []runtime.Object) {
	for i := range podsOfGroup {
		objects = append(objects, podOf(name, i, true))
	}
	return objects
}

func replicaSetOf(name string) *apps.ReplicaSet {
	rs := &apps.ReplicaSet{ObjectMeta: metaOf(name)}
	rs.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: name, UID: types.UID("deployment-" + name), Controller: new(true)}}
	labels := map[string]string{"app": name, "tier": "front", apps.DefaultDeploymentUniqueLabelKey: "1"}
	rs.Labels = labels
	rs.Spec = apps.ReplicaSetSpec{
		Replicas: new(int32(podsOfGroup)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
		Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: "example/app:1"}}}},
	}
	return rs
}

func deploymentOf(name string) *apps.Deployment {
	d := &apps.Deployment{ObjectMeta: metaOf(name)}
	d.UID = types.UID("deployment-" + name)
	one := intstr.FromInt32(1)
	d.Spec = apps.DeploymentSpec{
		Replicas: new(int32(podsOfGroup)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
		Strategy: apps.DeploymentStrategy{Type: apps.RollingUpdateDeploymentStrategyType, RollingUpdate: &apps.RollingUpdateDeployment{MaxSurge: &one, MaxUnavailable: &one}},
		Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: d.Labels}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: "example/app:1"}}}},
	}
	return d
}

func serviceOf(name string) *v1.Service {
	return &v1.Service{ObjectMeta: metaOf(name), Spec: v1.ServiceSpec{
		Type: v1.ServiceTypeClusterIP, ClusterIP: "10.96.0.1", IPFamilies: []v1.IPFamily{v1.IPv4Protocol},
		Selector: map[string]string{"app": name}, Ports: []v1.ServicePort{{Port: 80, Protocol: v1.ProtocolTCP, TargetPort: intstr.FromInt32(80)}},
	}}
}

func budgetOf(name string) *policy.PodDisruptionBudget {
	least := intstr.FromInt32(podsOfGroup / 2)
	return &policy.PodDisruptionBudget{ObjectMeta: metaOf(name), Spec: policy.PodDisruptionBudgetSpec{
		MinAvailable: &least, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
	}}
}

// nodeOf returns a node that is ready, and has enough memory or not.
func nodeOf(name string, pressure bool) *v1.Node {
	n := &v1.Node{ObjectMeta: metaOf(name)}
	n.Namespace = ""
	n.Status.Conditions = []v1.NodeCondition{
		{Type: v1.NodeReady, Status: v1.ConditionTrue},
		{Type: v1.NodeMemoryPressure, Status: readyIf(pressure)},
	}
	return n
}

// flipPod makes a pod ready, or not.
func flipPod(b *testing.B, c *controllertest.Cluster, name string, n int) {
	b.Helper()
	if _, err := c.Fake.CoreV1().Pods("default").UpdateStatus(b.Context(), podOf(name, 0, n%2 == 1), metav1.UpdateOptions{}); err != nil {
		b.Fatal(err)
	}
}

// flipReplicaSet changes how many pods of a ReplicaSet are ready.
func flipReplicaSet(b *testing.B, c *controllertest.Cluster, name string, n int) {
	b.Helper()
	rs, err := c.Fake.AppsV1().ReplicaSets("default").Get(b.Context(), name, metav1.GetOptions{})
	if err != nil {
		b.Fatal(err)
	}
	ready := int32(podsOfGroup - n%2)
	rs.Status = apps.ReplicaSetStatus{Replicas: podsOfGroup, ReadyReplicas: ready, AvailableReplicas: ready, ObservedGeneration: rs.Generation}
	rs.ResourceVersion = "" // the controller writes it, too
	if _, err := c.Fake.AppsV1().ReplicaSets("default").UpdateStatus(b.Context(), rs, metav1.UpdateOptions{}); err != nil {
		b.Fatal(err)
	}
}

// flipNode changes whether a node has enough memory.
func flipNode(b *testing.B, c *controllertest.Cluster, name string, n int) {
	b.Helper()
	if _, err := c.Fake.CoreV1().Nodes().UpdateStatus(b.Context(), nodeOf(name, n%2 == 0), metav1.UpdateOptions{}); err != nil {
		b.Fatal(err)
	}
}
