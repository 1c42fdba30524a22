package dynamicresources

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kubescheduler "k8s.io/kube-scheduler/config/v1"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/leaktest"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Run(m)) }

// A cluster with a plugin and what it decides on.
type fixture struct {
	*controllertest.Cluster
	t *testing.T
	h *framework.Handle
	*plugin
	nodes []*framework.NodeInfo
}

func newFixture(t *testing.T, gates string, arguments *kubescheduler.DynamicResourcesArgs, objects ...runtime.Object) *fixture {
	t.Helper()
	features, err := feature.Parse(strings.Split(gates, ","))
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{Cluster: controllertest.New(t, objects...), t: t}
	f.h = &framework.Handle{Client: f.Fake, Informers: f.Env.Client.Informers, Features: features, Shared: map[string]any{}}
	if arguments == nil {
		arguments = &kubescheduler.DynamicResourcesArgs{}
	}
	setDefaults(arguments)
	made, err := Factory().New(t.Context(), arguments, f.h)
	if err != nil {
		t.Fatal(err)
	}
	f.plugin = made.(*plugin)
	r := f.Env.Client.Informers.Resource().V1()
	controllertest.WaitSynced(t, r.ResourceClaims().Informer(), r.DeviceClasses().Informer(), r.ResourceSlices().Informer(), r.DeviceTaintRules().Informer())
	for _, o := range objects {
		if node, ok := o.(*v1.Node); ok {
			n := framework.NewNodeInfo(node.Name)
			n.SetNode(node)
			f.nodes = append(f.nodes, n)
		}
	}
	return f
}

// filter returns why each node is rejected, "" if it is not.
func (f *fixture) filter(state *framework.CycleState, pod *v1.Pod) string {
	info := framework.NewPodInfo(pod)
	if s := f.PreEnqueue(f.t.Context(), info); !s.IsSuccess() {
		return "gated: " + s.Message()
	}
	if _, s := f.PreFilter(f.t.Context(), state, info, nil); !s.IsSuccess() {
		return s.Code().String() + ": " + s.Message()
	}
	var out []string
	for _, n := range f.nodes {
		why := "fits"
		if s := f.Filter(f.t.Context(), state, info, n); !s.IsSuccess() {
			why = s.Message()
		}
		out = append(out, n.Name+": "+why)
	}
	return strings.Join(out, ", ")
}

// bind runs the points from PreFilter to PreBind.
func (f *fixture) bind(pod *v1.Pod, node string) (*framework.CycleState, error) {
	state, info := framework.NewCycleState(f.h), framework.NewPodInfo(pod)
	if why := f.filter(state, pod); !strings.Contains(why, node+": fits") {
		return state, fmt.Errorf("filter: %s", why)
	}
	if err := f.Reserve(f.t.Context(), state, info, node).AsError(); err != nil {
		return state, err
	}
	if s := f.PreBindPreFlight(f.t.Context(), state, info, node); s.IsSkip() {
		return state, nil
	}
	return state, f.PreBind(f.t.Context(), state, info, node).AsError()
}

// claim describes a claim as the API has it.
func (f *fixture) claim(name string) string {
	c, err := f.Fake.ResourceV1().ResourceClaims("shop").Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	return describe(c)
}

func describe(c *resourceapi.ResourceClaim) string {
	var words []string
	if c.Status.Allocation != nil {
		for _, r := range c.Status.Allocation.Devices.Results {
			words = append(words, r.Pool+"/"+r.Device)
		}
	}
	for _, r := range c.Status.ReservedFor {
		words = append(words, "for "+r.Name)
	}
	if slices.Contains(c.Finalizers, resourceapi.Finalizer) {
		words = append(words, "protected")
	}
	return strings.Join(words, " ")
}

func node(name string, labels ...string) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1.LabelHostname: name}}}
	for _, l := range labels {
		n.Labels[l] = "true"
	}
	return n
}

func class(name, expression string) *resourceapi.DeviceClass {
	c := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if expression != "" {
		c.Spec.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}}
	}
	return c
}

// slice has devices of a node; a device is "name" or "name:model".
func slice(node string, devices ...string) *resourceapi.ResourceSlice {
	s := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: resourceapi.ResourceSliceSpec{
		Driver: "gpu.example.com", NodeName: &node, Pool: resourceapi.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1},
	}}
	for _, d := range devices {
		name, model, _ := strings.Cut(d, ":")
		s.Spec.Devices = append(s.Spec.Devices, resourceapi.Device{
			Name: name, Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"model": {StringValue: &model}},
		})
	}
	return s
}

func exactly(class string, count int64) *resourceapi.ExactDeviceRequest {
	return &resourceapi.ExactDeviceRequest{DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: count}
}

type claimOption func(*resourceapi.ResourceClaim)

func claim(name, class string, options ...claimOption) *resourceapi.ResourceClaim {
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name)}}
	c.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "gpu", Exactly: exactly(class, 1)}}
	for _, o := range options {
		o(c)
	}
	return c
}

func allocatedOn(node, device string) claimOption {
	return func(c *resourceapi.ResourceClaim) {
		c.Status.Allocation = &resourceapi.AllocationResult{
			NodeSelector: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
				MatchFields: []v1.NodeSelectorRequirement{{Key: "metadata.name", Operator: v1.NodeSelectorOpIn, Values: []string{node}}},
			}}},
			Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{{Request: "gpu", Driver: "gpu.example.com", Pool: node, Device: device}}},
		}
	}
}

func reservedFor(pod string) claimOption {
	return func(c *resourceapi.ResourceClaim) {
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: pod, UID: types.UID(pod)})
	}
}

func deleting(c *resourceapi.ResourceClaim) {
	c.DeletionTimestamp, c.Finalizers = new(metav1.Now()), []string{resourceapi.Finalizer}
}

// pod uses claims by name.
func pod(name string, claims ...string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name)}}
	p.Spec.Containers = []v1.Container{{Name: "main"}}
	for _, c := range claims {
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, v1.PodResourceClaim{Name: c, ResourceClaimName: &c})
	}
	return p
}

// either asks for a large device, or else for any.
func either(c *resourceapi.ResourceClaim) {
	sub := func(class string) resourceapi.DeviceSubRequest {
		return resourceapi.DeviceSubRequest{Name: class, DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1}
	}
	c.Spec.Devices.Requests[0] = resourceapi.DeviceRequest{Name: "gpu", FirstAvailable: []resourceapi.DeviceSubRequest{sub("large"), sub("any")}}
}

// A node whose devices satisfy an earlier alternative is better.
func TestScore(t *testing.T) {
	f := newFixture(t, "", nil, node("a"), node("b"), class("any", ""), class("large", `device.attributes["gpu.example.com"].model == "large"`),
		slice("a", "gpu-0:small"), slice("b", "gpu-0:large"), claim("c", "", either), claim("d", "any"))
	scores := func(pod *v1.Pod) string {
		t.Helper()
		state, info := framework.NewCycleState(f.h), framework.NewPodInfo(pod)
		if got := f.filter(state, pod); got != "a: fits, b: fits" {
			t.Fatal(got)
		}
		if s := f.PreScore(t.Context(), state, info, nil, f.nodes); s.IsSkip() {
			return "skipped"
		}
		var all []int64
		for _, n := range f.nodes {
			score, s := f.Score(t.Context(), state, info, n)
			if !s.IsSuccess() {
				t.Fatal(s.Message())
			}
			all = append(all, score)
		}
		before := fmt.Sprint(all)
		f.NormalizeScore(t.Context(), state, info, all)
		return before + " " + fmt.Sprint(all)
	}
	if got, want := scores(pod("web", "c")), "[7 8] [87 100]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := scores(pod("web", "d")), "skipped"; got != want {
		t.Errorf("without alternatives: %s, want %s", got, want)
	}
}

func TestFilter(t *testing.T) {
	templated := pod("web")
	templated.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: new("gpu")}}
	generated := templated.DeepCopy()
	generated.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "gpu", ResourceClaimName: new("c")}}
	taint := &resourceapi.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: "broken"}, Spec: resourceapi.DeviceTaintRuleSpec{
		DeviceSelector: &resourceapi.DeviceTaintSelector{Pool: new("a")},
		Taint:          resourceapi.DeviceTaint{Key: "broken", Effect: resourceapi.DeviceTaintEffectNoSchedule},
	}}
	tolerates := func(c *resourceapi.ResourceClaim) {
		c.Spec.Devices.Requests[0].Exactly.Tolerations = []resourceapi.DeviceToleration{{Key: "broken", Operator: resourceapi.DeviceTolerationOpExists}}
	}
	for _, test := range []struct {
		name, gates string
		pod         *v1.Pod
		objects     []runtime.Object
		want        string
	}{
		{name: "no claims", pod: pod("web"), want: "Skip: "},
		{name: "a claim that does not exist", pod: pod("web", "c"), want: `gated: resourceclaim.resource.k8s.io "c" not found`},
		{name: "a claim that is not created yet", pod: templated, want: `gated: pod "shop/web": ResourceClaim not created yet`},
		{
			name: "a claim of another pod", pod: generated, objects: []runtime.Object{claim("c", "any")},
			want: "gated: ResourceClaim shop/c was not created for Pod shop/web (Pod is not owner)",
		},
		{name: "a claim that is being deleted", pod: pod("web", "c"), objects: []runtime.Object{claim("c", "any", deleting)}, want: `gated: resourceclaim "c" is being deleted`},
		{name: "two claims", pod: pod("web", "c", "d"), objects: []runtime.Object{claim("c", "any"), claim("d", "any")}, want: "a: cannot allocate all claims, b: fits, c: cannot allocate all claims"},
		{
			name: "no such class", pod: pod("web", "c"), objects: []runtime.Object{claim("c", "none")},
			want: "UnschedulableAndUnresolvable: request gpu: device class none does not exist",
		},
		{name: "any device", pod: pod("web", "c"), objects: []runtime.Object{claim("c", "any")}, want: "a: fits, b: fits, c: cannot allocate all claims"},
		{name: "a device of a class", pod: pod("web", "c"), objects: []runtime.Object{claim("c", "large")}, want: "a: cannot allocate all claims, b: fits, c: cannot allocate all claims"},
		{name: "one of two classes", pod: pod("web", "c"), objects: []runtime.Object{claim("c", "", either)}, want: "a: fits, b: fits, c: cannot allocate all claims"},
		{
			name: "a device that another claim has", pod: pod("web", "c"), objects: []runtime.Object{claim("c", "any"), claim("d", "any", allocatedOn("a", "gpu-0"))},
			want: "a: cannot allocate all claims, b: fits, c: cannot allocate all claims",
		},
		{
			name: "access of an administrator takes no device", pod: pod("web", "c"),
			objects: []runtime.Object{claim("c", "any"), claim("d", "any", allocatedOn("a", "gpu-0"), func(c *resourceapi.ResourceClaim) {
				c.Status.Allocation.Devices.Results[0].AdminAccess = new(true)
			})},
			want: "a: fits, b: fits, c: cannot allocate all claims",
		},
		{
			name: "a claim that is allocated", pod: pod("web", "c"), objects: []runtime.Object{claim("c", "any", allocatedOn("b", "gpu-0"), reservedFor("other"))},
			want: "a: resourceclaim not available on the node, b: fits, c: resourceclaim not available on the node",
		},
		{
			name: "more devices than a node has", pod: pod("web", "c"), objects: []runtime.Object{claim("c", "any", func(c *resourceapi.ResourceClaim) {
				c.Spec.Devices.Requests[0].Exactly.Count = 2
			})},
			want: "a: cannot allocate all claims, b: fits, c: cannot allocate all claims",
		},
		{
			name: "a tainted device", pod: pod("web", "c"), objects: []runtime.Object{claim("c", "any"), taint},
			want: "a: cannot allocate all claims, b: fits, c: cannot allocate all claims",
		},
		{name: "a tolerated taint", pod: pod("web", "c"), objects: []runtime.Object{claim("c", "any", tolerates), taint}, want: "a: fits, b: fits, c: cannot allocate all claims"},
		{
			name: "rules are disabled", gates: "DRADeviceTaintRules=false", pod: pod("web", "c"), objects: []runtime.Object{claim("c", "any"), taint},
			want: "a: fits, b: fits, c: cannot allocate all claims",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			objects := []runtime.Object{
				node("a"), node("b"), node("c"), class("any", ""), class("large", `device.attributes["gpu.example.com"].model == "large"`),
				slice("a", "gpu-0:small"), slice("b", "gpu-0:large", "gpu-1:small"),
			}
			f := newFixture(t, test.gates, nil, append(objects, test.objects...)...)
			if got := f.filter(framework.NewCycleState(f.h), test.pod); got != test.want {
				t.Errorf("%s\nwant %s", got, test.want)
			}
		})
	}
}

func TestFilterTimeout(t *testing.T) {
	f := newFixture(t, "", &kubescheduler.DynamicResourcesArgs{FilterTimeout: &metav1.Duration{Duration: 1}}, node("a"), class("any", ""), slice("a", "gpu-0"), claim("c", "any"))
	if got, want := f.filter(framework.NewCycleState(f.h), pod("web", "c")), "a: timed out trying to allocate devices"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// The timeout is for all nodes together, and a node with a long search leaves
// time for others.
func TestFilterTimeoutOfManyNodes(t *testing.T) {
	var devices []string
	for i := range 24 {
		devices = append(devices, fmt.Sprintf("gpu-%d:small", i))
	}
	devices[0] = "gpu-0:large"
	large := func(name string) resourceapi.DeviceRequest {
		return resourceapi.DeviceRequest{Name: name, Exactly: exactly("large", 1)}
	}
	objects := []runtime.Object{
		class("any", ""), class("large", `device.attributes["gpu.example.com"].model == "large"`),
		claim("c", "any", func(c *resourceapi.ResourceClaim) {
			c.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "many", Exactly: exactly("any", 12)}, large("b"), large("c")}
		}),
	}
	for i := range 10 {
		name := fmt.Sprintf("hard-%d", i)
		objects = append(objects, node(name), slice(name, devices...))
	}
	objects = slices.Insert(objects, 5, runtime.Object(node("easy")))
	objects = append(objects, slice("easy", easyDevices()...))
	// A machine that stops, or does other work, spends the time of some attempts.
	for timeout := 300 * time.Millisecond; ; timeout *= 2 {
		f := newFixture(t, "", &kubescheduler.DynamicResourcesArgs{FilterTimeout: &metav1.Duration{Duration: timeout}}, objects...)
		began := time.Now()
		got := f.filter(framework.NewCycleState(f.h), pod("web", "c"))
		took := time.Since(began)
		if took <= 3*timeout && strings.HasPrefix(got, "hard-0: timed out trying to allocate devices, easy: fits, hard-1: timed out") {
			return
		}
		t.Logf("10 nodes took %v with a timeout of %v: %s", took, timeout, got)
		if timeout > 10*time.Second {
			t.Fatal("no timeout is shared by the nodes")
		}
	}
}

// easyDevices are as many as TestFilterTimeoutOfManyNodes needs, where the
// first choice is right.
func easyDevices() []string {
	var devices []string
	for i := range 12 {
		devices = append(devices, fmt.Sprintf("gpu-%d:small", i))
	}
	return append(devices, "gpu-12:large", "gpu-13:large")
}

// A device is not given away twice, even before the informer shows the first
// allocation, and it is free again if the first pod is not bound.
func TestReservedDevicesAreTaken(t *testing.T) {
	f := newFixture(t, "", nil, node("a"), class("any", ""), slice("a", "gpu-0"), claim("c", "any"), claim("d", "any"))
	first, second := pod("first", "c"), pod("second", "d")
	state := framework.NewCycleState(f.h)
	want := func(pod *v1.Pod, want string) {
		t.Helper()
		if got := f.filter(framework.NewCycleState(f.h), pod); got != want {
			t.Errorf("%s: %s, want %s", pod.Name, got, want)
		}
	}
	if got := f.filter(state, first); got != "a: fits" {
		t.Fatal(got)
	}
	if err := f.Reserve(t.Context(), state, framework.NewPodInfo(first), "a").AsError(); err != nil {
		t.Fatal(err)
	}
	want(second, "a: cannot allocate all claims")
	want(pod("sharing", "c"), "UnschedulableAndUnresolvable: resource claim shop/c is in the process of being allocated")
	other, err := Factory().New(t.Context(), Factory().DefaultArguments(), f.h) // of another profile
	if err != nil {
		t.Fatal(err)
	}
	if other.(*plugin).claims != f.claims {
		t.Error("profiles do not share what they have reserved")
	}
	f.Unreserve(t.Context(), state, framework.NewPodInfo(first), "a")
	want(second, "a: fits")
	if _, err := f.bind(first, "a"); err != nil {
		t.Fatal(err)
	}
	want(second, "a: cannot allocate all claims")
	want(pod("sharing", "c"), "a: fits")
}

func TestBind(t *testing.T) {
	f := newFixture(t, "", nil, node("a"), class("any", ""), slice("a", "gpu-0"), claim("c", "any"), claim("d", "any"))
	first := pod("first", "c")
	state, err := f.bind(first, "a")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := f.claim("c"), "a/gpu-0 for first protected"; got != want {
		t.Errorf("after the first pod: %s, want %s", got, want)
	}
	if _, err := f.bind(pod("sharing", "c"), "a"); err != nil {
		t.Fatal(err)
	}
	if got, want := f.claim("c"), "a/gpu-0 for first for sharing protected"; got != want {
		t.Errorf("shared: %s, want %s", got, want)
	}
	f.Unreserve(t.Context(), state, framework.NewPodInfo(first), "a")
	f.Unreserve(t.Context(), state, framework.NewPodInfo(first), "a")
	if got, want := f.claim("c"), "a/gpu-0 for sharing protected"; got != want {
		t.Errorf("after the first pod was not bound: %s, want %s", got, want)
	}
}

// PreBind writes the allocation only if the claim has not changed in a way that
// matters since the node was chosen.
func TestBindOfChangedClaim(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*resourceapi.ResourceClaim)
		want   string
	}{
		{"another change", func(c *resourceapi.ResourceClaim) { c.Labels = map[string]string{"a": "b"} }, ""},
		{"allocated", func(c *resourceapi.ResourceClaim) { allocatedOn("a", "gpu-1")(c) }, "reserve resourceclaim shop/c: claim c got allocated elsewhere in the meantime"},
		{"replaced", func(c *resourceapi.ResourceClaim) { c.UID = "other" }, "reserve resourceclaim shop/c: claim c got deleted in the meantime"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t, "", nil, node("a"), class("any", ""), slice("a", "gpu-0", "gpu-1"), claim("c", "any"))
			state, info := framework.NewCycleState(f.h), framework.NewPodInfo(pod("web", "c"))
			if got := f.filter(state, info.Pod); got != "a: fits" {
				t.Fatal(got)
			}
			if err := f.Reserve(t.Context(), state, info, "a").AsError(); err != nil {
				t.Fatal(err)
			}
			changed := claim("c", "any", test.change)
			changed.ResourceVersion = "1000"
			if err := f.Fake.Tracker().Update(resourceapi.SchemeGroupVersion.WithResource("resourceclaims"), changed, "shop"); err != nil {
				t.Fatal(err)
			}
			got := ""
			if err := f.PreBind(t.Context(), state, info, "a").AsError(); err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

func TestPostFilter(t *testing.T) {
	for _, test := range []struct {
		name  string
		claim []claimOption
		why   string
		want  string // the claim
	}{
		{"nobody uses the claim", nil, "deallocation of ResourceClaim completed", "protected"},
		{"only the pod uses it", []claimOption{reservedFor("web")}, "deallocation of ResourceClaim completed", "protected"},
		{"another pod uses it", []claimOption{reservedFor("other")}, "still not schedulable", "b/gpu-0 for other protected"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := claim("c", "any", append(test.claim, allocatedOn("b", "gpu-0"))...)
			c.Finalizers = []string{resourceapi.Finalizer}
			f := newFixture(t, "", nil, node("a"), class("any", ""), c)
			state, web := framework.NewCycleState(f.h), pod("web", "c")
			if got := f.filter(state, web); got != "a: resourceclaim not available on the node" {
				t.Fatal(got)
			}
			_, s := f.PostFilter(t.Context(), state, framework.NewPodInfo(web), nil, nil)
			if got := f.claim("c"); s.Message() != test.why || got != test.want {
				t.Errorf("%s: %s; want %s: %s", s.Message(), got, test.why, test.want)
			}
		})
	}
	f := newFixture(t, "", nil)
	if _, s := f.PostFilter(t.Context(), framework.NewCycleState(f.h), framework.NewPodInfo(pod("web")), nil, nil); s.Message() != "no new claims to deallocate" {
		t.Error(s.Message())
	}
	f = newFixture(t, "", nil, node("a"), claim("c", "none"))
	state := framework.NewCycleState(f.h)
	if got := f.filter(state, pod("web", "c")); got != "UnschedulableAndUnresolvable: request gpu: device class none does not exist" {
		t.Fatal(got)
	}
	if _, s := f.PostFilter(t.Context(), state, framework.NewPodInfo(pod("web", "c")), nil, nil); s.Message() != "no new claims to deallocate" {
		t.Errorf("without a class: %s", s.Message())
	}
}

// PreBind waits for the conditions that a device needs before pods use it.
func TestBindingConditions(t *testing.T) {
	for _, test := range []struct {
		name, condition string
		timeout         time.Duration
		bound, filtered string
		observed        string
		deleted         bool // the pod
	}{
		{"ready", "Attached", time.Minute, "", "a: fits", "success", false},
		{"failed", "Broken", time.Minute, `claim c binding failed: reason=Test, message=""`, "a: resourceclaim not available on the node", "failure", false},
		{"neither in time", "", time.Millisecond, "device binding timeout after 1ms", "a: resourceclaim not available on the node", "timeout", false},
		{"the pod is deleted", "", time.Minute, "pod shop/web got deleted in the meantime", "a: fits", "error", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := slice("a", "gpu-0")
				s.Spec.Devices[0].BindingConditions, s.Spec.Devices[0].BindingFailureConditions = []string{"Attached"}, []string{"Broken"}
				f := newFixture(t, "", &kubescheduler.DynamicResourcesArgs{BindingTimeout: &metav1.Duration{Duration: test.timeout}}, node("a"), class("any", ""), s, claim("c", "any"))
				f.h.IsWanted = func(types.UID) bool { return !test.deleted }
				var observed []string
				f.h.ObserveBindingConditions = func(driver, result string, _ time.Duration) { observed = append(observed, driver+" "+result) }
				state, web := framework.NewCycleState(f.h), pod("web", "c")
				if got := f.filter(state, web); got != "a: fits" {
					t.Fatal(got)
				}
				info := framework.NewPodInfo(web)
				if err := f.Reserve(t.Context(), state, info, "a").AsError(); err != nil {
					t.Fatal(err)
				}
				ended := make(chan string, 1)
				go func() { ended <- f.PreBind(context.Background(), state, info, "a").Message() }()
				if test.condition != "" {
					controllertest.Eventually(t, func() string { return f.claim("c") }, "a/gpu-0 for web protected")
					f.setCondition("c", test.condition)
				}
				if got := <-ended; got != test.bound {
					t.Errorf("PreBind: %q, want %q", got, test.bound)
				}
				if want := []string{"gpu.example.com " + test.observed}; !slices.Equal(observed, want) {
					t.Errorf("observed %q, want %q", observed, want)
				}
				controllertest.Eventually(t, func() string { return f.filter(framework.NewCycleState(f.h), web) }, test.filtered)
			})
		})
	}
}

// The time that devices are given begins with their allocation, which may have been
// for an earlier attempt.
func TestBindingTimeoutOfAnOldAllocation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := claim("c", "any", allocatedOn("a", "gpu-0"))
		c.Status.Allocation.Devices.Results[0].BindingConditions = []string{"Attached"}
		c.Status.Allocation.AllocationTimestamp = new(metav1.NewTime(time.Now().Add(-50 * time.Second)))
		f := newFixture(t, "", &kubescheduler.DynamicResourcesArgs{BindingTimeout: &metav1.Duration{Duration: time.Minute}}, node("a"), class("any", ""), slice("a", "gpu-0"), c)
		if _, err := f.bind(pod("web", "c"), "a"); err == nil || err.Error() != "claim c binding timeout" {
			t.Errorf("PreBind: %v", err)
		}
	})
}

func (f *fixture) setCondition(name, condition string) {
	f.t.Helper()
	api := f.Fake.ResourceV1().ResourceClaims("shop")
	c, err := api.Get(f.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	c.Status.Devices = []resourceapi.AllocatedDeviceStatus{{
		Driver: "gpu.example.com", Pool: "a", Device: "gpu-0", Conditions: []metav1.Condition{{Type: condition, Status: metav1.ConditionTrue, Reason: "Test"}},
	}}
	if _, err := api.UpdateStatus(f.t.Context(), c, metav1.UpdateOptions{}); err != nil {
		f.t.Fatal(err)
	}
}

func quantity(n string) v1.ResourceList {
	return v1.ResourceList{"example.com/gpu": resource.MustParse(n)}
}
