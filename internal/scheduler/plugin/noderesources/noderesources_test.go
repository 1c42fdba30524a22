package noderesources

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	kubescheduler "k8s.io/kube-scheduler/config/v1"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/plugintest"
)

const device = v1.ResourceName("example.com/device")

// list reads amounts as "cpu=1 memory=2Gi".
func list(amounts string) v1.ResourceList {
	out := v1.ResourceList{}
	for _, one := range strings.Fields(amounts) {
		name, amount, _ := strings.Cut(one, "=")
		out[v1.ResourceName(name)] = resource.MustParse(amount)
	}
	return out
}

func podOf(name, requests string) *framework.PodInfo {
	p := &v1.Pod{}
	p.Name, p.UID = name, types.UID(name)
	p.Spec.Containers = []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Requests: list(requests)}}}
	return framework.NewPodInfo(p)
}

func nodeOf(allocatable string, running ...string) *framework.NodeInfo {
	n := framework.NewNodeInfo("node")
	n.SetNode(apiNode(allocatable))
	for i, requests := range running {
		n.AddPod(podOf(string(rune('a'+i)), requests))
	}
	return n
}

func apiNode(allocatable string) *v1.Node {
	node := &v1.Node{}
	node.Name = "node"
	node.Status.Allocatable = list(allocatable)
	return node
}

func point(used, score int32) kubescheduler.UtilizationShapePoint {
	return kubescheduler.UtilizationShapePoint{Utilization: used, Score: score}
}

func fitOf(t *testing.T, a kubescheduler.NodeResourcesFitArgs) *fit {
	t.Helper()
	setFitDefaults(&a)
	if errs := validateFit(nil, &a); len(errs) > 0 {
		t.Fatal(errs)
	}
	p, err := FitFactory().New(t.Context(), &a, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p.(*fit)
}

func TestFit(t *testing.T) {
	for _, test := range []struct {
		name, pod, node string
		running         []string
		arguments       kubescheduler.NodeResourcesFitArgs
		code            framework.Code
		reasons         string
	}{
		{name: "room for all", pod: "cpu=1 memory=1Gi", node: "cpu=2 memory=2Gi pods=2", running: []string{"cpu=1 memory=1Gi"}},
		{name: "another takes the room", pod: "cpu=1", node: "cpu=1 pods=2", running: []string{"cpu=100m"}, code: framework.Unschedulable, reasons: "Insufficient cpu"},
		{name: "no eviction makes the node bigger", pod: "cpu=2", node: "cpu=1 pods=2", code: framework.UnschedulableAndUnresolvable, reasons: "Insufficient cpu"},
		{name: "a full node has room for requests of 0", pod: "", node: "cpu=1 pods=2", running: []string{"cpu=1"}},
		{name: "too many pods", pod: "", node: "cpu=1 pods=1", running: []string{""}, code: framework.Unschedulable, reasons: "Too many pods"},
		{
			name: "everything that is short is named", pod: "memory=2Gi ephemeral-storage=1Gi example.com/device=1", node: "memory=1Gi pods=0",
			code: framework.UnschedulableAndUnresolvable, reasons: "Insufficient ephemeral-storage, Insufficient example.com/device, Insufficient memory, Too many pods",
		},
		{name: "an extended resource", pod: "example.com/device=1", node: "pods=9 example.com/device=2", running: []string{"example.com/device=1"}},
		{name: "an ignored resource", pod: "example.com/device=1", node: "pods=9", arguments: kubescheduler.NodeResourcesFitArgs{IgnoredResources: []string{"example.com/device"}}},
		{name: "an ignored group", pod: "example.com/device=1", node: "pods=9", arguments: kubescheduler.NodeResourcesFitArgs{IgnoredResourceGroups: []string{"example.com"}}},
		{
			name: "only extended resources are ignored", pod: "hugepages-2Mi=2Mi", node: "pods=9", arguments: kubescheduler.NodeResourcesFitArgs{IgnoredResources: []string{"hugepages-2Mi"}},
			code: framework.UnschedulableAndUnresolvable, reasons: "Insufficient hugepages-2Mi",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := fitOf(t, test.arguments).Filter(t.Context(), nil, podOf("p", test.pod), nodeOf(test.node, test.running...))
			if s.Code() != test.code || s.Message() != test.reasons {
				t.Errorf("%s %q, want %s %q", s.Code(), s.Message(), test.code, test.reasons)
			}
		})
	}
}

// resizing returns a pod on the node, or on another one, whose resize the kubelet has
// deferred.
func resizing(node, requests string) *framework.PodInfo {
	p := podOf("p", requests).Pod
	p.Spec.NodeName = node
	p.Status.Conditions = []v1.PodCondition{{Type: v1.PodResizePending, Status: v1.ConditionTrue, Reason: v1.PodReasonDeferred}}
	return framework.NewPodInfo(p)
}

// A pod on the node counts once, with what the snapshot knows of it.
func TestFitOfResizes(t *testing.T) {
	for _, test := range []struct {
		name, known string // requests of the pod in the snapshot; "-" is not there
		running     []string
		code        framework.Code
		reasons     string
	}{
		{name: "alone", known: "cpu=2"},
		{name: "beside another", known: "cpu=1500m", running: []string{"cpu=500m"}},
		{name: "another has the room", known: "cpu=2 memory=1Gi", running: []string{"cpu=500m memory=1Gi"}, code: framework.Unschedulable, reasons: "Insufficient cpu"},
		{name: "more than the node has", known: "cpu=3", code: framework.UnschedulableAndUnresolvable, reasons: "Insufficient cpu"},
		{name: "the node has too many pods", known: "cpu=1", running: []string{"", ""}, code: framework.Unschedulable, reasons: "Too many pods"},
		{name: "an extended resource of another", known: "cpu=1 example.com/device=1", running: []string{"example.com/device=1"}},
		{name: "it has left", known: "-", running: []string{"cpu=500m"}, code: framework.Unschedulable, reasons: "Insufficient cpu"},
	} {
		n := nodeOf("cpu=2 memory=2Gi pods=2 example.com/device=2", test.running...)
		if test.known != "-" {
			n.AddPod(resizing("node", test.known))
		}
		s := fitOf(t, kubescheduler.NodeResourcesFitArgs{}).Filter(t.Context(), nil, resizing("node", "cpu=2"), n)
		if s.Code() != test.code || s.Message() != test.reasons {
			t.Errorf("%s: %s %q, want %s %q", test.name, s.Code(), s.Message(), test.code, test.reasons)
		}
	}
}

// Room elsewhere does not help a pod that keeps its node.
func TestFitHintsOfResizes(t *testing.T) {
	on := func(node, requests string) *v1.Pod { return resizing(node, requests).Pod }
	larger := apiNode("cpu=4 pods=2")
	for _, test := range []struct {
		name, node string // of the pod that waits
		resource   framework.EventResource
		action     framework.ActionType
		old, new   any
		want       framework.QueueingHint
	}{
		{"a pod leaves its node", "node", framework.AssignedPod, framework.Delete, on("node", "cpu=1"), nil, framework.Queue},
		{"a pod leaves another node", "other", framework.AssignedPod, framework.Delete, on("node", "cpu=1"), nil, framework.QueueSkip},
		{"a pod shrinks on its node", "node", framework.AssignedPod, framework.UpdatePodScaleDown, on("node", "cpu=2"), on("node", "cpu=1"), framework.Queue},
		{"a pod shrinks on another node", "other", framework.AssignedPod, framework.UpdatePodScaleDown, on("node", "cpu=2"), on("node", "cpu=1"), framework.QueueSkip},
		{"its node grows", "node", framework.Node, framework.UpdateNodeAllocatable, apiNode("cpu=2 pods=2"), larger, framework.Queue},
		{"another node grows", "other", framework.Node, framework.UpdateNodeAllocatable, apiNode("cpu=2 pods=2"), larger, framework.QueueSkip},
		{"another node comes", "other", framework.Node, framework.Add, nil, larger, framework.QueueSkip},
	} {
		f := fitOf(t, kubescheduler.NodeResourcesFitArgs{})
		if hint, ok := plugintest.Hint(t, f, on(test.node, "cpu=1"), test.resource, test.action, test.old, test.new); !ok || hint != test.want {
			t.Errorf("%s: %v, registered %t, want %v", test.name, hint, ok, test.want)
		}
	}
}

func TestFitScore(t *testing.T) {
	ratio := func(resources []kubescheduler.ResourceSpec, shape ...kubescheduler.UtilizationShapePoint) *kubescheduler.ScoringStrategy {
		return &kubescheduler.ScoringStrategy{Type: kubescheduler.RequestedToCapacityRatio, Resources: resources, RequestedToCapacityRatio: &kubescheduler.RequestedToCapacityRatioParam{Shape: shape}}
	}
	devices := []kubescheduler.ResourceSpec{{Name: string(device)}}
	for _, test := range []struct {
		name, pod, node string
		running         []string
		strategy        *kubescheduler.ScoringStrategy
		want            int64
	}{
		{name: "an empty node is the best", pod: "cpu=1 memory=1Gi", node: "cpu=4 memory=4Gi", want: 75},
		{name: "running pods count", pod: "cpu=1 memory=1Gi", node: "cpu=4 memory=4Gi", running: []string{"cpu=2 memory=2Gi"}, want: 25},
		{name: "100m and 200Mi for a container without requests", pod: "", node: "cpu=1 memory=2000Mi", want: 90},
		{name: "over capacity", pod: "cpu=1", node: "cpu=500m memory=400Mi", want: 25},
		{name: "a resource that the node has not does not count", pod: "cpu=1 memory=1Gi", node: "cpu=4", want: 75},
		{name: "most allocated", pod: "cpu=1 memory=1Gi", node: "cpu=4 memory=2Gi", strategy: &kubescheduler.ScoringStrategy{Type: kubescheduler.MostAllocated}, want: 37},
		{name: "most allocated, over capacity", pod: "cpu=1 memory=1Gi", node: "cpu=500m memory=2Gi", strategy: &kubescheduler.ScoringStrategy{Type: kubescheduler.MostAllocated}, want: 75},
		{
			name: "weights", pod: "cpu=1 memory=1Gi", node: "cpu=4 memory=2Gi", want: 68,
			strategy: &kubescheduler.ScoringStrategy{Type: kubescheduler.LeastAllocated, Resources: []kubescheduler.ResourceSpec{{Name: "cpu", Weight: 3}, {Name: "memory", Weight: 1}}},
		},
		{name: "an extended resource that the pod does not request", pod: "cpu=1", node: "example.com/device=4", strategy: &kubescheduler.ScoringStrategy{Type: kubescheduler.LeastAllocated, Resources: devices}, want: 0},
		{name: "an extended resource", pod: "example.com/device=1", node: "example.com/device=4", strategy: &kubescheduler.ScoringStrategy{Type: kubescheduler.LeastAllocated, Resources: devices}, want: 75},
		{name: "packed by ratio", pod: "example.com/device=1", node: "example.com/device=4", running: []string{"example.com/device=1"}, strategy: ratio(devices, point(0, 0), point(100, 10)), want: 50},
		{name: "left of the first point", pod: "example.com/device=1", node: "example.com/device=4", strategy: ratio(devices, point(50, 3), point(100, 10)), want: 30},
		{name: "right of the last", pod: "example.com/device=3", node: "example.com/device=4", strategy: ratio(devices, point(0, 0), point(50, 7)), want: 70},
		{name: "over capacity is full", pod: "example.com/device=9", node: "example.com/device=4", strategy: ratio(devices, point(0, 10), point(100, 2)), want: 20},
		{
			name: "zero scores do not count in the mean", pod: "cpu=1 example.com/device=1", node: "cpu=1 example.com/device=3", want: 30,
			strategy: ratio([]kubescheduler.ResourceSpec{{Name: string(device)}, {Name: "cpu"}}, point(33, 3), point(34, 0), point(100, 0)),
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, _ := fitOf(t, kubescheduler.NodeResourcesFitArgs{ScoringStrategy: test.strategy}).Score(t.Context(), nil, podOf("p", test.pod), nodeOf(test.node, test.running...))
			if got != test.want {
				t.Errorf("%d, want %d", got, test.want)
			}
		})
	}
}

func TestBalanced(t *testing.T) {
	three := []kubescheduler.ResourceSpec{{Name: "cpu"}, {Name: "memory"}, {Name: string(device)}}
	for _, test := range []struct {
		name, pod, node string
		running         []string
		resources       []kubescheduler.ResourceSpec
		skips           bool
		want            int64
	}{
		{name: "a pod that requests nothing", pod: "", node: "cpu=1 memory=1Gi", skips: true},
		{name: "the balance stays", pod: "cpu=1 memory=1Gi", node: "cpu=4 memory=4Gi", want: 75},
		{name: "worse", pod: "cpu=1", node: "cpu=4 memory=4Gi", want: 68},
		{name: "better", pod: "cpu=1", node: "cpu=4 memory=4Gi", running: []string{"memory=1Gi"}, want: 81},
		{name: "worst", pod: "cpu=4", node: "cpu=4 memory=4Gi", want: 50},
		{name: "best", pod: "cpu=4", node: "cpu=4 memory=4Gi", running: []string{"memory=4Gi"}, want: 100},
		{name: "one resource is always in balance", pod: "cpu=4", node: "cpu=4", want: 75},
		{name: "three resources", pod: "cpu=1 memory=1Gi example.com/device=1", node: "cpu=1 memory=1Gi example.com/device=4", resources: three, want: 57},
		{name: "an extended resource that the pod does not request", pod: "cpu=1 memory=1Gi", node: "cpu=1 memory=1Gi example.com/device=4", resources: three, want: 75},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := &kubescheduler.NodeResourcesBalancedAllocationArgs{Resources: slices.Clone(test.resources)}
			setBalancedDefaults(a)
			made, err := BalancedFactory().New(t.Context(), a, nil)
			if err != nil {
				t.Fatal(err)
			}
			p := made.(*balanced)
			if skips := p.PreScore(t.Context(), nil, podOf("p", test.pod), nil, nil).IsSkip(); skips != test.skips {
				t.Fatalf("skips: %t", skips)
			}
			if test.skips {
				return
			}
			if got, _ := p.Score(t.Context(), nil, podOf("p", test.pod), nodeOf(test.node, test.running...)); got != test.want {
				t.Errorf("%d, want %d", got, test.want)
			}
		})
	}
}

func TestFitHints(t *testing.T) {
	events, err := fitOf(t, kubescheduler.NodeResourcesFitArgs{}).EventsToRegister(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name     string
		resource framework.EventResource
		action   framework.ActionType
		old, new any
		want     framework.QueueingHint
	}{
		{"a pod leaves", framework.AssignedPod, framework.Delete, podOf("x", "").Pod, nil, framework.Queue},
		{"a pod needs less of what is wanted", framework.AssignedPod, framework.UpdatePodScaleDown, podOf("x", "cpu=2").Pod, podOf("x", "cpu=1").Pod, framework.Queue},
		{"a pod needs less of something else", framework.AssignedPod, framework.UpdatePodScaleDown, podOf("x", "memory=2").Pod, podOf("x", "memory=1").Pod, framework.QueueSkip},
		{"the pod itself needs less", framework.TargetPod, framework.UpdatePodScaleDown, podOf("p", "cpu=2").Pod, podOf("p", "cpu=1").Pod, framework.Queue},
		{"a node comes", framework.Node, framework.Add, nil, apiNode("cpu=1 pods=1"), framework.Queue},
		{"a small node comes", framework.Node, framework.Add, nil, apiNode("cpu=500m pods=1"), framework.QueueSkip},
		{"a node grows", framework.Node, framework.UpdateNodeAllocatable, apiNode("cpu=1 pods=1"), apiNode("cpu=2 pods=1"), framework.Queue},
		{"a node gets more of something else", framework.Node, framework.UpdateNodeAllocatable, apiNode("cpu=1 pods=1"), apiNode("cpu=1 pods=1 memory=1Gi"), framework.QueueSkip},
		{"a node shrinks", framework.Node, framework.UpdateNodeAllocatable, apiNode("cpu=3 pods=1"), apiNode("cpu=2 pods=1"), framework.QueueSkip},
		{"a node takes more pods", framework.Node, framework.UpdateNodeAllocatable, apiNode("cpu=1 pods=1"), apiNode("cpu=1 pods=2"), framework.Queue},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := framework.QueueSkip
			happened := framework.ClusterEvent{Resource: test.resource, Action: test.action}
			for _, e := range events {
				if e.Event.Matches(happened) && (e.Hint == nil || e.Hint(podOf("p", "cpu=1"), test.old, test.new) == framework.Queue) {
					got = framework.Queue
				}
			}
			if got != test.want {
				t.Errorf("hint %d, want %d", got, test.want)
			}
		})
	}
}

// A node helps a pod with an extended resource if it has enough of all that is wanted,
// and more of any of it than before.
func TestFitHintsOfExtendedResources(t *testing.T) {
	for _, test := range []struct {
		name, old, node string // old is "" if the node comes
		want            framework.QueueingHint
	}{
		{"too little memory", "", "memory=1 example.com/device=2 pods=1", framework.QueueSkip},
		{"another resource", "", "memory=4 example.com/other=1 pods=1", framework.QueueSkip},
		{"enough of both", "", "memory=4 example.com/device=2 pods=1", framework.Queue},
		{"fewer devices, and others", "memory=2 example.com/device=2 pods=1", "memory=2 example.com/device=1 example.com/other=2 pods=1", framework.QueueSkip},
		{"more devices", "memory=2 example.com/device=1 pods=1", "memory=2 example.com/device=2 pods=1", framework.Queue},
		{"the memory is no longer enough", "memory=4 example.com/device=2 pods=1", "memory=1 example.com/device=2 pods=1", framework.QueueSkip},
		{"the memory is enough now", "memory=1 example.com/device=2 pods=1", "memory=4 example.com/device=2 pods=1", framework.Queue},
		{"more of what is not wanted", "memory=2 example.com/device=1 pods=1", "memory=2 example.com/device=1 ephemeral-storage=5 cpu=1 pods=1", framework.QueueSkip},
	} {
		action, old := framework.Add, any(nil)
		if test.old != "" {
			action, old = framework.UpdateNodeAllocatable, apiNode(test.old)
		}
		f := fitOf(t, kubescheduler.NodeResourcesFitArgs{})
		if hint, ok := plugintest.Hint(t, f, podOf("p", "memory=2 example.com/device=1").Pod, framework.Node, action, old, apiNode(test.node)); !ok || hint != test.want {
			t.Errorf("%s: %v, registered %t, want %v", test.name, hint, ok, test.want)
		}
	}
}

// bound holds the requests of the node's pods, by priority.
type bound map[int32]string

func (b bound) RequestedOn(string) (sum framework.Resources) {
	for _, requests := range b {
		sum.Add(podOf("x", requests).Requests)
	}
	return sum
}

func (b bound) HasBelow(priority int32) bool {
	for p := range b {
		if p < priority {
			return true
		}
	}
	return false
}

// A pod that leaves or shrinks helps if the pod fits on that node now, or if it
// may preempt others.
func TestFitHintsLookAtTheNode(t *testing.T) {
	never := v1.PreemptNever
	for _, test := range []struct {
		name     string
		pod      string
		priority int32
		policy   *v1.PreemptionPolicy
		node     string // of the pod that leaves
		bound    bound  // what is left on the node
		want     framework.QueueingHint
	}{
		{name: "it fits", pod: "cpu=1", node: "node", bound: bound{0: "cpu=1"}, want: framework.Queue},
		{name: "it does not fit", pod: "cpu=2", node: "node", bound: bound{0: "cpu=1"}, want: framework.QueueSkip},
		{name: "it never fits", pod: "cpu=3", node: "node", bound: bound{}, want: framework.QueueSkip},
		{name: "it may preempt", pod: "cpu=2", priority: 1, node: "node", bound: bound{0: "cpu=1"}, want: framework.Queue},
		{name: "more important pods stay", pod: "cpu=2", priority: 1, node: "node", bound: bound{2: "cpu=1"}, want: framework.QueueSkip},
		{name: "it preempts nobody", pod: "cpu=2", priority: 1, policy: &never, node: "node", bound: bound{0: "cpu=1"}, want: framework.QueueSkip},
		{name: "the places of the node are taken", node: "node", bound: bound{0: "", 1: ""}, want: framework.QueueSkip},
		{name: "a place is free", node: "node", bound: bound{0: ""}, want: framework.Queue},
		{name: "the node is gone", pod: "cpu=1", node: "other", bound: bound{}, want: framework.QueueSkip},
		{name: "the pod had been assumed", pod: "cpu=3", bound: bound{}, want: framework.Queue},
	} {
		t.Run(test.name, func(t *testing.T) {
			nodes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
			if err := nodes.Add(apiNode("cpu=2 pods=2")); err != nil {
				t.Fatal(err)
			}
			f := fitOf(t, kubescheduler.NodeResourcesFitArgs{})
			f.nodes, f.bound = corelisters.NewNodeLister(nodes), test.bound
			events, err := f.EventsToRegister(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			waiting := podOf("p", test.pod).Pod
			waiting.Spec.Priority, waiting.Spec.PreemptionPolicy = &test.priority, test.policy
			gone := podOf("gone", "cpu=2").Pod
			gone.Spec.NodeName = test.node
			got, happened := framework.QueueSkip, framework.ClusterEvent{Resource: framework.AssignedPod, Action: framework.Delete}
			for _, e := range events {
				if e.Event.Matches(happened) {
					got = max(got, e.Hint(framework.NewPodInfo(waiting), gone, nil))
				}
			}
			if got != test.want {
				t.Errorf("hint %d, want %d", got, test.want)
			}
		})
	}
}

func TestFitArguments(t *testing.T) {
	for _, test := range []struct {
		name      string
		arguments kubescheduler.NodeResourcesFitArgs
		want      []string
	}{
		{"nothing", kubescheduler.NodeResourcesFitArgs{}, nil},
		{"a name", kubescheduler.NodeResourcesFitArgs{IgnoredResources: []string{"a b"}}, []string{"ignoredResources[0]: Invalid value"}},
		{"a group with a slash", kubescheduler.NodeResourcesFitArgs{IgnoredResourceGroups: []string{"a/b"}}, []string{"ignoredResourceGroups[0]: Invalid value: \"a/b\": resource group name can't contain '/'"}},
		{"a weight", kubescheduler.NodeResourcesFitArgs{ScoringStrategy: &kubescheduler.ScoringStrategy{Type: kubescheduler.LeastAllocated, Resources: []kubescheduler.ResourceSpec{{Name: "cpu", Weight: 101}}}}, []string{"scoringStrategy.resources[0].weight: Invalid value: 101: resource weight of cpu not in valid range (0, 100]"}},
		{"a type", kubescheduler.NodeResourcesFitArgs{ScoringStrategy: &kubescheduler.ScoringStrategy{Type: "Best"}}, []string{"scoringStrategy.type: Unsupported value: \"Best\""}},
		{
			"a shape", kubescheduler.NodeResourcesFitArgs{ScoringStrategy: &kubescheduler.ScoringStrategy{Type: kubescheduler.RequestedToCapacityRatio, RequestedToCapacityRatio: &kubescheduler.RequestedToCapacityRatioParam{Shape: []kubescheduler.UtilizationShapePoint{point(50, 11), point(50, 1), point(101, 1)}}}},
			[]string{"shape[0].score: Invalid value: 11: not in valid range [0, 10]", "shape[1].utilization: Invalid value: 50: utilization values must be sorted in increasing order", "shape[2].utilization: Invalid value: 101: not in valid range [0, 100]"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			setFitDefaults(&test.arguments)
			err := validateFit(nil, &test.arguments).ToAggregate()
			if (err == nil) != (test.want == nil) {
				t.Fatal(err)
			}
			if i := slices.IndexFunc(test.want, func(want string) bool { return !strings.Contains(err.Error(), want) }); i >= 0 {
				t.Errorf("%v\ndoes not say %s", err, test.want[i])
			}
		})
	}
}

// Only extended resources are ignored, whatever the groups of the arguments are.
func TestIgnoredResources(t *testing.T) {
	f := &fit{resources: []string{"cpu", "example.com/gpu"}, groups: []string{"devices.example.com", "mykubernetes.io"}}
	for name, want := range map[v1.ResourceName]bool{
		"example.com/gpu": true, "devices.example.com/nic": true, "example.com/nic": false,
		"cpu": false, "mykubernetes.io/gpu": false, // upstream looks for kubernetes.io/ anywhere in the name
	} {
		if got := f.ignores(name); got != want {
			t.Errorf("%s is ignored: %v, want %v", name, got, want)
		}
	}
}

// An extended resource that devices satisfy is no shortage of the node's.
func TestExplainLeavesDevicesOut(t *testing.T) {
	name := string(device)
	class := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpus"}, Spec: resourceapi.DeviceClassSpec{ExtendedResourceName: &name}}
	for _, test := range []struct {
		name    string
		objects []runtime.Object
		want    []string // beginnings
	}{
		{"a class", []runtime.Object{class}, []string{"cpu: "}},
		{"no class", nil, []string{"cpu: ", name + ": "}},
	} {
		p, _ := plugintest.New(t, FitFactory(), nil, test.objects...)
		got := p.(*fit).Explain(nil, podOf("p", "cpu=2 "+name+"=1"), nodeOf("cpu=1 pods=1"))
		if !slices.EqualFunc(got, test.want, func(o framework.Obstacle, begin string) bool { return strings.HasPrefix(o.Text, begin) }) {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

// Devices for an extended resource help once their class names it, and once a node
// no longer has the resource itself.
func TestFitHintsOfDevices(t *testing.T) {
	class := func(resource string) *resourceapi.DeviceClass {
		return &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpus"}, Spec: resourceapi.DeviceClassSpec{ExtendedResourceName: &resource}}
	}
	waiting := podOf("p", "cpu=1 "+string(device)+"=2").Pod
	for _, test := range []struct {
		name     string
		resource framework.EventResource
		action   framework.ActionType
		old, new any
		want     framework.QueueingHint
	}{
		{"the class comes", framework.DeviceClass, framework.Add, nil, class(string(device)), framework.Queue},
		{"another class comes", framework.DeviceClass, framework.Add, nil, class("example.com/other"), framework.QueueSkip},
		{"the class gets the resource", framework.DeviceClass, framework.UpdateOther, class("example.com/other"), class(string(device)), framework.Queue},
		{"the class changes otherwise", framework.DeviceClass, framework.UpdateOther, class(string(device)), class(string(device)), framework.QueueSkip},
		{"a node has fewer of it", framework.Node, framework.UpdateNodeAllocatable, apiNode("cpu=1 pods=1 " + string(device) + "=4"), apiNode("cpu=1 pods=1 " + string(device) + "=3"), framework.QueueSkip},
		{"a node leaves it to devices", framework.Node, framework.UpdateNodeAllocatable, apiNode("cpu=1 pods=1 " + string(device) + "=1"), apiNode("cpu=1 pods=1 " + string(device) + "=0"), framework.Queue},
		{"a node has left it to devices before", framework.Node, framework.UpdateNodeAllocatable, apiNode("cpu=1 pods=1"), apiNode("cpu=1 pods=1 memory=1Gi"), framework.QueueSkip},
	} {
		p, _ := plugintest.New(t, FitFactory(), nil, class(string(device)))
		if got, ok := plugintest.Hint(t, p, waiting, test.resource, test.action, test.old, test.new); !ok || got != test.want {
			t.Errorf("%s: %v %t, want %v", test.name, got, ok, test.want)
		}
	}
}
