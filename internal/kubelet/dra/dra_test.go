package dra

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientfake "k8s.io/client-go/kubernetes/fake"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	healthv1 "k8s.io/kubelet/pkg/apis/dra-health/v1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/kubelet/dra/dratest"
	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/pluginwatcher"
)

const (
	nodeName = "alpha"
	gpus     = "gpu.example.com"
	nics     = "nic.example.com"
)

// bench is a node with DRA drivers, on a file system in memory.
type bench struct {
	*testing.T
	api     *clientfake.Clientset
	metrics *prometheus.Registry // of the newest manager
	files   *files.Memory
	dir     string // of sockets
	drivers map[string]*dratest.Driver
	stops   map[string]func() // of the drivers

	mu     sync.Mutex // guards what follows
	active []*v1.Pod
	woken  []types.UID
	again  []types.UID // refreshed
}

func newBench(t *testing.T, objects ...runtime.Object) *bench {
	t.Helper()
	dir, err := os.MkdirTemp("", "dra") // the path of a socket has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	b := &bench{
		T: t, api: clientfake.NewSimpleClientset(objects...), files: &files.Memory{}, dir: dir,
		drivers: map[string]*dratest.Driver{}, stops: map[string]func(){},
	}
	if err := b.files.MkdirAll("/var/lib/kubelet", 0o750); err != nil {
		t.Fatal(err)
	}
	return b
}

// serve starts a driver. The devices that it gives a claim are named after it.
func (b *bench) serve(name string, services ...string) *dratest.Driver {
	b.Helper()
	if len(services) == 0 {
		services = []string{drapb.DRAPluginService, healthv1.DRAResourceHealthService}
	}
	if b.drivers[name] == nil {
		b.drivers[name] = &dratest.Driver{Name: name, Services: services, Devices: func(_ context.Context, c *drapb.Claim) ([]*drapb.Device, error) {
			return []*drapb.Device{
				{PoolName: nodeName, DeviceName: c.GetName() + "-0", RequestNames: []string{"main"}, CdiDeviceIds: []string{name + "/device=" + c.GetName() + "-0"}},
				{PoolName: nodeName, DeviceName: c.GetName() + "-1", RequestNames: []string{"more/big"}, CdiDeviceIds: []string{name + "/device=" + c.GetName() + "-1"}},
			}, nil
		}}
	}
	stop, err := b.drivers[name].Serve(b.endpoint(name), filepath.Join(b.dir, name+"-reg.sock"))
	if err != nil {
		b.Fatal(err)
	}
	b.stops[name] = sync.OnceFunc(stop)
	b.Cleanup(b.stops[name])
	return b.drivers[name]
}

func (b *bench) endpoint(driver string) string { return filepath.Join(b.dir, driver) }

func (b *bench) plugin(driver string) pluginwatcher.Plugin {
	return pluginwatcher.Plugin{Name: driver, Endpoint: b.endpoint(driver), Versions: b.drivers[driver].Services}
}

// manager returns the manager of a kubelet that starts now and runs until stop is
// called or the test ends, with all drivers.
func (b *bench) manager(fsys files.FS) (m *Manager, stop func()) {
	b.Helper()
	gates, err := feature.Parse(nil)
	if err != nil {
		b.Fatal(err)
	}
	b.metrics = prometheus.NewRegistry()
	m = New(Config{
		Root: "/var/lib/kubelet", NodeName: nodeName, Files: fsys, Client: b.api, Features: gates, Metrics: b.metrics,
		Node:         func() *v1.Node { return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}} },
		Wake:         func(uid types.UID) { b.mu.Lock(); defer b.mu.Unlock(); b.woken = append(b.woken, uid) },
		Refresh:      func(uid types.UID) { b.mu.Lock(); defer b.mu.Unlock(); b.again = append(b.again, uid) },
		SourcesReady: func() bool { return true },
		Active:       func() []*v1.Pod { b.mu.Lock(); defer b.mu.Unlock(); return slices.Clone(b.active) },
	})
	m.Recover(b.Context())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); m.Run(ctx) }()
	stop = func() { cancel(); <-done }
	b.Cleanup(stop)
	for name := range b.drivers {
		if err := m.Drivers().Register(b.Context(), b.plugin(name)); err != nil {
			b.Fatal(err)
		}
	}
	return m, stop
}

// newClaim returns a claim that is allocated and reserved for pods.
func newClaim(name string, drivers []string, pods ...*v1.Pod) *resourceapi.ResourceClaim {
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid-" + name)}}
	c.Status.Allocation = &resourceapi.AllocationResult{}
	for _, driver := range drivers {
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results, resourceapi.DeviceRequestAllocationResult{
			Request: "main", Driver: driver, Pool: nodeName, Device: name + "-0"})
	}
	for _, pod := range pods {
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: pod.UID})
	}
	return c
}

// newPod returns a pod with a container that uses claims by their names.
func newPod(name string, claims ...string) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid-" + name)}}
	pod.Spec.Containers = []v1.Container{{Name: "main"}}
	for _, c := range claims {
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, v1.PodResourceClaim{Name: "my-" + c, ResourceClaimName: &c})
		pod.Spec.Containers[0].Resources.Claims = append(pod.Spec.Containers[0].Resources.Claims, v1.ResourceClaim{Name: "my-" + c})
	}
	return pod
}

// devices returns the CDI devices that a container of the pod would get.
func devices(t *testing.T, m *Manager, pod *v1.Pod) string {
	t.Helper()
	config := &runtimeapi.ContainerConfig{}
	if err := m.Configure(pod, &pod.Spec.Containers[0], config); err != nil {
		return err.Error()
	}
	var out []string
	for _, d := range config.GetCDIDevices() {
		out = append(out, d.GetName())
	}
	return strings.Join(out, " ")
}

func expectCalls(t *testing.T, d *dratest.Driver, want ...string) {
	t.Helper()
	if got := d.Calls(); !slices.Equal(got, want) {
		t.Errorf("%s was called for %q, want %q", d.Name, got, want)
	}
}

func (b *bench) checkpoint() string {
	raw, err := b.files.ReadFile("/var/lib/kubelet/dra_manager_state", 1<<20)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

const nothing = `{"Data":"{\"kind\":\"DRACheckpoint\",\"apiVersion\":\"checkpoint.dra.kubelet.k8s.io/v1\",\"Entries\":[]}","Checksum":938788554}`

// Each driver is called once for all claims of a pod, when it starts and when it
// has ended.
func TestClaimsArePreparedAndUnprepared(t *testing.T) {
	pod := newPod("p", "a", "b")
	template := "template"
	pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims,
		v1.PodResourceClaim{Name: "made", ResourceClaimTemplateName: &template}, v1.PodResourceClaim{Name: "none", ResourceClaimTemplateName: &template})
	made := "p-made-x7"
	pod.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "made", ResourceClaimName: &made}, {Name: "none"}}
	generated := newClaim(made, []string{nics}, pod)
	generated.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(pod, v1.SchemeGroupVersion.WithKind("Pod"))}
	b := newBench(t, newClaim("a", []string{gpus, nics}, pod), newClaim("b", []string{gpus}, pod), generated)
	gpu, nic := b.serve(gpus), b.serve(nics)
	m, _ := b.manager(b.files)
	if m.Prepared(pod) {
		t.Error("the claims are prepared before the drivers were called")
	}
	for range 2 { // the second time has no effect
		if err := m.Prepare(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	expectCalls(t, gpu, "prepare default/a default/b")
	expectCalls(t, nic, "prepare default/a default/p-made-x7")
	if !m.Prepared(pod) {
		t.Error("the claims are not prepared")
	}
	if got := devices(t, m, pod); got != gpus+"/device=a-0 "+gpus+"/device=a-1 "+nics+"/device=a-0 "+nics+"/device=a-1 "+gpus+"/device=b-0 "+gpus+"/device=b-1" {
		t.Errorf("the container gets %s", got)
	}
	pod.Spec.Containers[0].Resources.Claims = []v1.ResourceClaim{{Name: "my-a", Request: "more"}, {Name: "none"}, {Name: "made", Request: "main"}}
	if got := devices(t, m, pod); got != gpus+"/device=a-1 "+nics+"/device=a-1 "+nics+"/device=p-made-x7-0" {
		t.Errorf("by request, the container gets %s", got)
	}
	if err := m.Unprepare(t.Context(), pod.UID); err != nil {
		t.Fatal(err)
	}
	expectCalls(t, gpu, "unprepare default/a default/b")
	expectCalls(t, nic, "unprepare default/a default/p-made-x7")
	if got := b.checkpoint(); got != nothing {
		t.Errorf("the checkpoint is %s", got)
	}
	if got := devices(t, m, pod); got != "the ResourceClaim a is not prepared" {
		t.Errorf("after its end, the container gets %s", got)
	}
}

// measured returns the values of the gauges and the counts of the histograms.
func (b *bench) measured() string {
	b.Helper()
	families, err := b.metrics.Gather()
	if err != nil {
		b.Fatal(err)
	}
	var out []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			line := f.GetName()
			for _, l := range m.GetLabel() {
				line += " " + l.GetValue()
			}
			out = append(out, fmt.Sprint(line, ": ", m.GetGauge().GetValue()+float64(m.GetHistogram().GetSampleCount())))
		}
	}
	return strings.Join(out, "\n")
}

// The metrics have upstream's names and labels.
func TestMetrics(t *testing.T) {
	pod, refused := newPod("p", "a", "b"), newPod("refused", "a")
	b := newBench(t, newClaim("a", []string{gpus, nics}, pod), newClaim("b", []string{gpus}, pod))
	b.serve(gpus)
	b.serve(nics)
	m, _ := b.manager(b.files)
	if err := errors.Join(m.Prepare(t.Context(), newPod("without")), m.Prepare(t.Context(), pod)); err != nil {
		t.Fatal(err)
	}
	if m.Prepare(t.Context(), refused) == nil {
		t.Error("a claim of another is prepared")
	}
	const want = `dra_grpc_operations_duration_seconds gpu.example.com OK /k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources: 1
dra_grpc_operations_duration_seconds nic.example.com OK /k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources: 1
dra_operations_duration_seconds false PrepareResources: 1
dra_operations_duration_seconds true PrepareResources: 1
dra_resource_claims_in_use <any>: 2
dra_resource_claims_in_use gpu.example.com: 2
dra_resource_claims_in_use nic.example.com: 1`
	if got := b.measured(); got != want {
		t.Errorf("measured is\n%s\nwant\n%s", got, want)
	}
}

// The claim of a pod's extended resources has a request for each container.
func TestExtendedResources(t *testing.T) {
	pod := newPod("p")
	pod.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{ResourceClaimName: "extended", RequestMappings: []v1.ContainerExtendedResourceRequest{
		{ContainerName: "other", ResourceName: "example.com/gpu", RequestName: "main"},
		{ContainerName: "main", ResourceName: "example.com/gpu", RequestName: "more"},
		{ContainerName: "main", ResourceName: "example.com/nic", RequestName: "main"},
	}}
	pod.Spec.Containers[0].Resources.Requests = v1.ResourceList{"example.com/gpu": quantity("1")}
	b := newBench(t, newClaim("extended", []string{gpus}, pod))
	b.serve(gpus)
	m, _ := b.manager(b.files)
	if err := m.Prepare(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if got := devices(t, m, pod); got != gpus+"/device=extended-1" {
		t.Errorf("the container gets %s", got)
	}
}

// A pod whose claims are not for it on this node does not start, and can be
// deleted at once: no driver has anything to undo.
func TestRefusedClaims(t *testing.T) {
	pod, other := newPod("p", "a"), newPod("other")
	templated := newPod("p")
	name := "template"
	templated.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "made", ResourceClaimTemplateName: &name}}
	without, with := templated.DeepCopy(), templated
	with.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "made", ResourceClaimName: &name}}
	elsewhere := newClaim("a", []string{gpus}, pod)
	elsewhere.Status.Allocation.NodeSelector = &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchFields: []v1.NodeSelectorRequirement{
		{Key: "metadata.name", Operator: v1.NodeSelectorOpIn, Values: []string{"beta"}}}}}}
	pending := newClaim("a", nil, pod)
	pending.Status.Allocation = nil
	for _, test := range []struct {
		name  string
		pod   *v1.Pod
		claim *resourceapi.ResourceClaim
		want  string
	}{
		{"missing", pod, nil, `fetch ResourceClaim a: resourceclaims.resource.k8s.io "a" not found`},
		{"reserved for another", pod, newClaim("a", []string{gpus}, other), "pod p (uid-p) is not allowed to use ResourceClaim a (uid-a)"},
		{"pending", pod, pending, "ResourceClaim a: not allocated"},
		{"elsewhere", pod, elsewhere, "ResourceClaim a: its devices are not available on node alpha"},
		{"not generated", without, nil, `pod "default/p": ResourceClaim not created yet`},
		{"of another", with, newClaim(name, []string{gpus}, with), "ResourceClaim default/template was not created for Pod default/p (Pod is not owner)"},
		{"no driver", pod, newClaim("a", []string{nics}, pod), "DRA driver nic.example.com is not registered"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBench(t)
			if test.claim != nil {
				b = newBench(t, test.claim)
			}
			gpu := b.serve(gpus)
			m, _ := b.manager(b.files)
			if err := m.Prepare(t.Context(), test.pod); err == nil || !strings.HasPrefix(err.Error(), "prepare dynamic resources: "+test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
			if err := m.Unprepare(t.Context(), test.pod.UID); err != nil {
				t.Error(err)
			}
			expectCalls(t, gpu)
		})
	}
}

// Pods that share a claim have it prepared once, and unprepared after the last.
func TestSharedClaim(t *testing.T) {
	first, second := newPod("first", "a"), newPod("second", "a", "b")
	b := newBench(t, newClaim("a", []string{gpus}, first, second), newClaim("b", []string{gpus}, second))
	gpu := b.serve(gpus)
	m, _ := b.manager(b.files)
	prepared := make(chan error)
	for _, pod := range []*v1.Pod{first, second} {
		go func() { prepared <- m.Prepare(context.Background(), pod) }()
	}
	for range 2 {
		if err := <-prepared; err != nil {
			t.Fatal(err)
		}
	}
	if calls := strings.Join(gpu.Calls(), ", "); strings.Count(calls, "default/a") != 1 || strings.Count(calls, "default/b") != 1 {
		t.Errorf("the driver was called for %s", calls)
	}
	if err := m.Unprepare(t.Context(), second.UID); err != nil {
		t.Fatal(err)
	}
	expectCalls(t, gpu, "unprepare default/b")
	if got := devices(t, m, first); got != gpus+"/device=a-0 "+gpus+"/device=a-1" {
		t.Errorf("the container that still runs gets %s", got)
	}
	if got := devices(t, m, second); got != "the ResourceClaim a is not prepared" {
		t.Errorf("the container of the pod that has ended gets %s", got)
	}
	if err := m.Unprepare(t.Context(), first.UID); err != nil {
		t.Fatal(err)
	}
	expectCalls(t, gpu, "unprepare default/a")
}

// Another claim of the same name waits until the former one is unprepared.
func TestClaimOfTheSameName(t *testing.T) {
	former, pod := newPod("former", "a"), newPod("p", "a")
	b := newBench(t, newClaim("a", []string{gpus}, former))
	gpu := b.serve(gpus)
	m, _ := b.manager(b.files)
	if err := m.Prepare(t.Context(), former); err != nil {
		t.Fatal(err)
	}
	again := newClaim("a", []string{gpus}, pod)
	again.UID = "uid-again"
	if _, err := b.api.ResourceV1().ResourceClaims("default").Update(t.Context(), again, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	const want = "prepare dynamic resources: old ResourceClaim with same name a and different UID uid-a still exists (previous pod force-deleted?!)"
	if err := m.Prepare(t.Context(), pod); err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
	if err := m.Unprepare(t.Context(), former.UID); err != nil {
		t.Fatal(err)
	}
	if err := m.Prepare(t.Context(), pod); err != nil {
		t.Error(err)
	}
	if got := gpu.Prepared(); !slices.Equal(got, []string{"uid-again"}) {
		t.Errorf("prepared are %q", got)
	}
}

// Failed claims are prepared again, and prepared claims are not.
func TestFailingDrivers(t *testing.T) {
	pod := newPod("p", "a", "b")
	for _, test := range []struct {
		name string
		fail func(d *dratest.Driver)
		want string
		then string // the calls of the next attempt
	}{
		{"all", func(d *dratest.Driver) {
			d.Before = func(context.Context, string) error { return errors.New("no power") }
		}, "NodePrepareResources: rpc error: code = Unknown desc = no power", "prepare default/a default/b"},
		{"one claim", func(d *dratest.Driver) {
			devices := d.Devices
			d.Devices = func(ctx context.Context, c *drapb.Claim) ([]*drapb.Device, error) {
				if c.GetName() == "b" {
					return nil, errors.New("no\npower")
				}
				return devices(ctx, c)
			}
		}, `NodePrepareResources failed for ResourceClaim b: no`, "prepare default/b"},
		{"skips", func(d *dratest.Driver) {
			d.Answer = func(r *drapb.NodePrepareResourcesResponse) { delete(r.Claims, "uid-a") }
		}, "NodePrepareResources skipped 1 ResourceClaims", "prepare default/a"},
		{"unknown", func(d *dratest.Driver) {
			d.Answer = func(r *drapb.NodePrepareResourcesResponse) { r.Claims["uid-x"] = r.Claims["uid-a"] }
		}, "NodePrepareResources returned result for unknown claim UID uid-x", "prepare default/a default/b"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBench(t, newClaim("a", []string{gpus}, pod), newClaim("b", []string{gpus}, pod))
			gpu := b.serve(gpus)
			devices := gpu.Devices
			m, _ := b.manager(b.files)
			test.fail(gpu)
			if err := m.Prepare(t.Context(), pod); err == nil || !strings.HasPrefix(err.Error(), "prepare dynamic resources: "+test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
			if m.Prepared(pod) {
				t.Error("the claims are prepared")
			}
			gpu.Before, gpu.Devices, gpu.Answer = nil, devices, nil
			gpu.Calls()
			if err := m.Prepare(t.Context(), pod); err != nil || !m.Prepared(pod) {
				t.Error(err)
			}
			expectCalls(t, gpu, test.then)
		})
	}
}

// A driver that does not unprepare claims keeps neither the others' nor other
// claims prepared.
func TestFailingUnprepare(t *testing.T) {
	pod := newPod("p", "a", "b", "c")
	b := newBench(t, newClaim("a", []string{gpus, nics}, pod), newClaim("b", []string{gpus}, pod), newClaim("c", []string{nics}, pod))
	gpu, nic := b.serve(gpus), b.serve(nics)
	m, _ := b.manager(b.files)
	if err := m.Prepare(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	gpu.Released = func(*drapb.Claim) error { return errors.New("no power") }
	if err := m.Unprepare(t.Context(), pod.UID); err == nil || !strings.HasPrefix(err.Error(), "unprepare dynamic resources: NodeUnprepareResources: rpc error: code = Unknown desc = release claim a: no power") {
		t.Errorf("got %v", err)
	}
	gpu.Released = nil
	gpu.Calls()
	nic.Calls()
	if err := m.Unprepare(t.Context(), pod.UID); err != nil {
		t.Error(err)
	}
	expectCalls(t, gpu, "unprepare default/a default/b")
	expectCalls(t, nic, "unprepare default/a")
	if got := b.checkpoint(); got != nothing {
		t.Errorf("the checkpoint is %s", got)
	}
}

// A driver that hangs delays no pod that is deleted, and nobody for longer than
// a call may take.
func TestSlowDriver(t *testing.T) {
	pod := newPod("p", "a")
	b := newBench(t, newClaim("a", []string{gpus}, pod))
	gpu := b.serve(gpus)
	m, _ := b.manager(b.files)
	called := make(chan struct{}, 10)
	gpu.Before = func(ctx context.Context, method string) error {
		if method != dratest.Prepare {
			return nil
		}
		called <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-called; cancel() }()
	if err := m.Prepare(ctx, pod); err == nil || !strings.Contains(err.Error(), "NodePrepareResources: rpc error: code = Canceled") {
		t.Errorf("deleted meanwhile: %v", err)
	}
	m.drivers.timeout = 10 * time.Millisecond
	if err := m.Prepare(t.Context(), pod); err == nil || !strings.Contains(err.Error(), "NodePrepareResources: rpc error: code = DeadlineExceeded") {
		t.Errorf("slow: %v", err)
	}
	m.drivers.timeout = callTimeout
	if err := m.Unprepare(t.Context(), pod.UID); err != nil { // the driver may have prepared something
		t.Error(err)
	}
	if calls := gpu.Calls(); !slices.Contains(calls, "unprepare default/a") { // the slow call may reach the driver late
		t.Errorf("the driver was called for %q", calls)
	}
}

// A pod that waits for a claim of another is not held up when it is deleted.
func TestWaitingForAnotherPod(t *testing.T) {
	first, second := newPod("first", "a"), newPod("second", "a")
	b := newBench(t, newClaim("a", []string{gpus}, first, second))
	gpu := b.serve(gpus)
	m, _ := b.manager(b.files)
	called, goOn := make(chan struct{}), make(chan struct{})
	gpu.Before = func(context.Context, string) error { close(called); <-goOn; return nil }
	done := make(chan error, 1)
	go func() { done <- m.Prepare(context.Background(), first) }()
	select {
	case <-called:
	case err := <-done:
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.Prepare(ctx, second); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	close(goOn)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func quantity(text string) resource.Quantity { return resource.MustParse(text) }

// A driver may have nothing to give to the containers. What was prepared for a pod does
// not depend on its status afterwards, which others can overwrite.
func TestPodThatLostItsClaimStatus(t *testing.T) {
	pod, template, made := newPod("p"), "template", "p-made-x7"
	pod.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "made", ResourceClaimTemplateName: &template}}
	pod.Spec.Containers[0].Resources.Claims = []v1.ResourceClaim{{Name: "made"}}
	pod.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "made", ResourceClaimName: &made}}
	generated := newClaim(made, []string{gpus}, pod)
	generated.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(pod, v1.SchemeGroupVersion.WithKind("Pod"))}
	b := newBench(t, generated)
	gpu := b.serve(gpus)
	gpu.Answer = func(r *drapb.NodePrepareResourcesResponse) {
		r.Claims[string(generated.UID)] = &drapb.NodePrepareResourceResponse{}
	}
	m, _ := b.manager(b.files)
	if err := m.Prepare(t.Context(), pod); err != nil || !m.Prepared(pod) {
		t.Fatal(err)
	}
	if got := devices(t, m, pod); got != "" {
		t.Errorf("the container gets %s", got)
	}
	pod.Status.ResourceClaimStatuses = nil
	gpu.Calls()
	if err := m.Unprepare(t.Context(), pod.UID); err != nil {
		t.Fatal(err)
	}
	expectCalls(t, gpu, "unprepare default/p-made-x7")
	if got := b.checkpoint(); got != nothing {
		t.Errorf("the checkpoint is %s", got)
	}
}

func TestMessagesOfHealthAreCut(t *testing.T) {
	const most = v1.ResourceHealthMessageMaxLength
	for in, want := range map[string]string{
		"":                          "",
		"two\nerrors":               "two errors",
		strings.Repeat("x", most):   strings.Repeat("x", most),
		strings.Repeat("x", most+1): strings.Repeat("x", most-3) + "...",
		strings.Repeat("ö", most):   strings.Repeat("ö", (most-3)/2) + "...",
	} {
		if got := truncated(in); got != want {
			t.Errorf("%q becomes %q", in, got)
		}
	}
}
