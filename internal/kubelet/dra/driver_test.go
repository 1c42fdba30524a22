package dra

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	clienttesting "k8s.io/client-go/testing"
	healthv1 "k8s.io/kubelet/pkg/apis/dra-health/v1"
	healthv1alpha1 "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	drapbv1beta1 "k8s.io/kubelet/pkg/apis/dra/v1beta1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/kubelet/dra/dratest"
	"github.com/coracle-io/coracle/internal/kubelet/pluginwatcher"
)

// isConnected reports whether a driver has a plugin that answers.
func (r *Registry) isConnected(driver string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.drivers[driver] != nil && r.drivers[driver].usable()
}

func TestRefusedPlugins(t *testing.T) {
	b := newBench(t)
	m, _ := b.manager(b.files)
	for _, test := range []struct {
		name     string
		versions []string
		want     string // "": accepted
	}{
		{gpus, []string{drapb.DRAPluginService}, ""},
		{gpus, []string{drapbv1beta1.DRAPluginService, "v7.DRAPlugin"}, ""},
		{gpus, nil, "empty list of supported gRPC services"},
		{gpus, []string{"v1alpha4.DRAPlugin"}, "none of services supported by the plugin"},
		{"a,b", []string{drapb.DRAPluginService}, "invalid name of a DRA driver"},
		{strings.Repeat("a", 64), []string{drapb.DRAPluginService}, "has more than 63 characters"},
	} {
		err := m.Drivers().Validate(pluginwatcher.Plugin{Name: test.name, Endpoint: "/run/x.sock", Versions: test.versions})
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s with %q: %v, want %s", test.name, test.versions, err, test.want)
		}
	}
}

// Drivers of the older API work as well.
func TestOlderDriver(t *testing.T) {
	pod := newPod("p", "a")
	b := newBench(t, newClaim("a", []string{gpus}, pod))
	gpu := b.serve(gpus, drapbv1beta1.DRAPluginService, healthv1alpha1.DRAResourceHealthService)
	m, _ := b.manager(b.files)
	if err := m.Prepare(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if got := devices(t, m, pod); got != gpus+"/device=a-0 "+gpus+"/device=a-1" {
		t.Errorf("the container gets %s", got)
	}
	gpu.Report(&healthv1.DeviceHealth{Device: &healthv1.DeviceIdentifier{PoolName: nodeName, DeviceName: "a-0"}, Health: healthv1.HealthStatus_HEALTHY})
	controllertest.Eventually(t, func() v1.ResourceHealthStatus {
		return m.ResourcesStatus(pod, &pod.Spec.Containers[0])[0].Resources[0].Health
	}, v1.ResourceHealthStatusHealthy)
	if err := m.Unprepare(t.Context(), pod.UID); err != nil {
		t.Fatal(err)
	}
	expectCalls(t, gpu, "prepare default/a", "unprepare default/a")
}

// While a driver is replaced, the plugin that answers is called.
func TestReplacedDriver(t *testing.T) {
	pod := newPod("p", "a")
	b := newBench(t, newClaim("a", []string{gpus}, pod))
	before := b.serve(gpus)
	m, _ := b.manager(b.files)
	old := b.plugin(gpus)
	after := &dratest.Driver{Name: gpus, Services: before.Services, Devices: before.Devices}
	stop, err := after.Serve(b.endpoint("new"), b.endpoint("new-reg.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	replacement := old
	replacement.Endpoint = b.endpoint("new")
	for range 2 { // registered twice, such as by two sockets
		if err := m.Drivers().Register(t.Context(), replacement); err != nil {
			t.Fatal(err)
		}
	}
	m.Drivers().Deregister(t.Context(), old)
	m.Drivers().Deregister(t.Context(), replacement)
	if err := m.Prepare(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	expectCalls(t, before)
	expectCalls(t, after, "prepare default/a")
	m.Drivers().Deregister(t.Context(), replacement)
	if err := m.Unprepare(t.Context(), pod.UID); err == nil || err.Error() != "unprepare dynamic resources: DRA driver gpu.example.com is not registered" {
		t.Errorf("without a driver: %v", err)
	}
}

// A driver whose registration is given up stays registered by another socket. It
// is deregistered once, by the watcher of plugins.
func TestRegistrationThatIsGivenUp(t *testing.T) {
	b := newBench(t)
	b.serve(gpus)
	gates, err := feature.Parse(nil)
	if err != nil {
		t.Fatal(err)
	}
	m := New(Config{Root: "/var/lib/kubelet", NodeName: nodeName, Files: b.files, Features: gates, Metrics: prometheus.NewRegistry()})
	defer m.drivers.close()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.Drivers().Register(ended, b.plugin(gpus)); err == nil { // nobody runs the plugin
		t.Fatal("registered")
	}
	if err := m.Drivers().Register(ended, b.plugin(gpus)); err != nil { // it is known, so that this waits for nobody
		t.Fatal(err)
	}
	m.Drivers().Deregister(t.Context(), b.plugin(gpus)) // of the first
	if _, err := m.drivers.plugin(gpus); err != nil {
		t.Error(err)
	}
}

// The connection to a driver that was started again is opened again.
func TestRestartedDriver(t *testing.T) {
	pod := newPod("p", "a")
	b := newBench(t, newClaim("a", []string{gpus}, pod))
	b.serve(gpus)
	m, _ := b.manager(b.files)
	connected := func() bool { return m.drivers.isConnected(gpus) }
	controllertest.Eventually(t, connected, true)
	b.stops[gpus]()
	controllertest.Eventually(t, connected, false)
	gpu := b.serve(gpus)
	controllertest.Eventually(t, connected, true)
	if err := m.Prepare(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	expectCalls(t, gpu, "prepare default/a")
}

// A pod that waits for a driver goes on once the driver is there.
func TestPodGoesOnWithItsDriver(t *testing.T) {
	pod := newPod("p", "a")
	b := newBench(t, newClaim("a", []string{gpus}, pod))
	m, _ := b.manager(b.files)
	if err := m.Prepare(t.Context(), pod); err == nil {
		t.Fatal("the claim is prepared without a driver")
	}
	b.serve(gpus)
	if err := m.Drivers().Register(t.Context(), b.plugin(gpus)); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, func() []types.UID {
		b.mu.Lock()
		defer b.mu.Unlock()
		return slices.Clone(b.again)
	}, []types.UID{pod.UID})
	if err := m.Prepare(t.Context(), pod); err != nil {
		t.Error(err)
	}
	if m.retry(); len(b.again) != 1 {
		t.Errorf("the pods %q go on", b.again)
	}
}

// The ResourceSlices of the node are deleted when the kubelet starts, and those
// of a driver once it is away for some time.
func TestResourceSlicesOfLostDrivers(t *testing.T) {
	b := newBench(t)
	var deleted []string
	b.api.PrependReactor("delete-collection", "resourceslices", func(action clienttesting.Action) (bool, runtime.Object, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		deleted = append(deleted, action.(clienttesting.DeleteCollectionAction).GetListRestrictions().Fields.String())
		return true, nil, nil
	})
	expect := func(want string) {
		t.Helper()
		controllertest.Eventually(t, func() string {
			b.mu.Lock()
			defer b.mu.Unlock()
			return strings.Join(deleted, " ")
		}, want)
	}
	b.serve(gpus)
	b.serve(nics)
	m, stop := b.manager(b.files)
	const all = resourceapi.ResourceSliceSelectorNodeName + "=" + nodeName
	expect(all)
	for _, name := range []string{gpus, nics} {
		controllertest.Eventually(t, func() bool { return m.drivers.isConnected(name) }, true)
	}
	b.stops[gpus]()                                     // it crashes
	m.Drivers().Deregister(t.Context(), b.plugin(nics)) // it is removed
	controllertest.Eventually(t, func() bool { return m.drivers.isConnected(gpus) }, false)
	stop() // from here on, this test looks for lost drivers
	later := func() []string {
		m.drivers.mu.Lock()
		for _, d := range m.drivers.drivers {
			if !d.lost.IsZero() {
				d.lost = d.lost.Add(-wipeDelay)
			}
		}
		m.drivers.mu.Unlock()
		return m.drivers.lost()
	}
	if lost := m.drivers.lost(); len(lost) > 0 {
		t.Errorf("%q are lost at once", lost)
	}
	if lost := later(); len(lost) != 2 {
		t.Errorf("%q are lost", lost)
	}
	m.drivers.wipeLost(t.Context())
	expect(all + " spec.driver=" + gpus + "," + all + " spec.driver=" + nics + "," + all)
	if lost := later(); len(lost) > 0 {
		t.Errorf("%q are lost again", lost)
	}
	m.drivers.mu.Lock()
	defer m.drivers.mu.Unlock()
	if _, known := m.drivers.drivers[nics]; known || len(m.drivers.drivers) != 1 {
		t.Errorf("the drivers are %v", m.drivers.drivers)
	}
}

// shownHealth returns the health of the devices of a container.
func shownHealth(m *Manager, pod *v1.Pod) string {
	var out []string
	for _, st := range m.ResourcesStatus(pod, &pod.Spec.Containers[0]) {
		for _, r := range st.Resources {
			text := string(st.Name) + " " + string(r.ResourceID) + " " + string(r.Health)
			if r.Message != nil {
				text += " " + *r.Message
			}
			out = append(out, text)
		}
	}
	return strings.Join(out, ", ")
}

// The status of containers has the health of devices that drivers report. It
// becomes Unknown when a driver stops reporting.
func TestHealth(t *testing.T) {
	pod := newPod("p", "a", "b")
	pod.Spec.Containers[0].Resources.Claims[0].Request = "main"
	b := newBench(t, newClaim("a", []string{gpus}, pod), newClaim("b", []string{nics}, pod))
	gpu, nic := b.serve(gpus), b.serve(nics)
	nic.Devices = func(context.Context, *drapb.Claim) ([]*drapb.Device, error) {
		return []*drapb.Device{{PoolName: nodeName, DeviceName: "eth0"}, {PoolName: nodeName, DeviceName: "eth0"}}, nil
	}
	m, _ := b.manager(b.files)
	if err := m.Prepare(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	expect := func(want string) {
		t.Helper()
		controllertest.Eventually(t, func() string { return shownHealth(m, pod) }, want)
	}
	const a, eth = "claim:my-a/main gpu.example.com/device=a-0 ", "claim:my-b nic.example.com/alpha/eth0 "
	expect(a + "Unknown, " + eth + "Unknown")
	id := &healthv1.DeviceIdentifier{PoolName: nodeName, DeviceName: "a-0"}
	gpu.Report(&healthv1.DeviceHealth{Device: id, Health: healthv1.HealthStatus_UNHEALTHY, Message: "too\x1b hot"})
	expect(a + "Unhealthy too hot, " + eth + "Unknown")
	gpu.Report(&healthv1.DeviceHealth{Device: id, Health: healthv1.HealthStatus_HEALTHY, HealthCheckTimeoutSeconds: 60})
	expect(a + "Healthy, " + eth + "Unknown")
	controllertest.Eventually(t, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.woken) == 2 && b.woken[0] == pod.UID
	}, true)
	if changed := m.health.expire(time.Now().Add(59 * time.Second)); changed.Len() > 0 {
		t.Errorf("%v have expired too early", changed)
	}
	if changed := m.health.expire(time.Now().Add(61 * time.Second)); !changed.Equal(sets.New(device{gpus, nodeName, "a-0"})) {
		t.Errorf("%v have expired", changed)
	}
	expect(a + "Unknown, " + eth + "Unknown")
	gpu.Report(&healthv1.DeviceHealth{Device: id, Health: healthv1.HealthStatus_HEALTHY, Message: strings.Repeat("m", 2000)})
	expect(a + "Healthy " + strings.Repeat("m", 1021) + "..., " + eth + "Unknown")
	b.stops[gpus]()
	expect(a + "Unknown, " + eth + "Unknown")
}

// The reports of a driver about its devices take a bounded amount of memory.
func TestHealthIsBounded(t *testing.T) {
	b := newBench(t)
	m, _ := b.manager(b.files)
	driver := gpus
	report := func(n int, prefix string) {
		var devices []*healthv1.DeviceHealth
		for i := range n {
			devices = append(devices, &healthv1.DeviceHealth{Device: &healthv1.DeviceIdentifier{DeviceName: prefix + strconv.Itoa(i)}})
		}
		m.health.set(&plugin{driver: driver}, devices, time.Now())
	}
	report(10, strings.Repeat("long", maxDeviceName/4))
	if n := len(m.health.devices); n > 0 {
		t.Errorf("%d devices with long names are known", n)
	}
	report(maxDevices, "a")
	report(10, "b")
	if _, known := m.health.devices[device{gpus, "", "b0"}]; known || len(m.health.devices) != maxDevices {
		t.Errorf("%d devices are known, want %d; the last one is: %v", len(m.health.devices), maxDevices, known)
	}
	driver = nics
	report(10, "n") // one driver leaves room for the others
	if n := m.health.places.GroupLen(nics); n != 10 || len(m.health.devices) != maxDevices || m.health.places.Len() != maxDevices {
		t.Errorf("%d devices are known, want %d; of the second driver %d", len(m.health.devices), maxDevices, n)
	}
	m.health.expire(time.Now().Add(time.Hour))
	if n := m.health.places.Len(); n > 0 || len(m.health.devices) > 0 {
		t.Errorf("%d devices have expired and are known", n)
	}
}

// After a restart of the kubelet, what is shown stays until the driver had time
// to report.
func TestHealthAfterRestart(t *testing.T) {
	pod := newPod("p", "a")
	b := newBench(t, newClaim("a", []string{gpus}, pod))
	gpu := b.serve(gpus)
	m, _ := b.manager(b.files)
	if err := m.Prepare(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	pod.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "main", AllocatedResourcesStatus: []v1.ResourceStatus{{Name: "claim:my-a", Resources: []v1.ResourceHealth{
		{ResourceID: gpus + "/device=a-1", Health: v1.ResourceHealthStatusHealthy}}}}}}
	const first = "claim:my-a gpu.example.com/device=a-0 Unknown, claim:my-a gpu.example.com/device=a-1 "
	if got := shownHealth(m, pod); got != first+"Healthy" {
		t.Errorf("at first: %s", got)
	}
	m.health.began = time.Now().Add(-healthTimeout)
	if got := shownHealth(m, pod); got != first+"Unknown" {
		t.Errorf("later: %s", got)
	}
	m.health.began = time.Now().Add(time.Hour)
	gpu.Report(&healthv1.DeviceHealth{Device: &healthv1.DeviceIdentifier{PoolName: nodeName, DeviceName: "other"}})
	controllertest.Eventually(t, func() string { return shownHealth(m, pod) }, first+"Unknown")
}

func TestPodResources(t *testing.T) {
	pod := newPod("p", "a")
	b := newBench(t, newClaim("a", []string{gpus}, pod))
	share := "share-1"
	b.serve(gpus).Devices = func(context.Context, *drapb.Claim) ([]*drapb.Device, error) {
		return []*drapb.Device{{PoolName: nodeName, DeviceName: "d0", CdiDeviceIds: []string{"x/y=1", "x/y=2"}, ShareId: &share}}, nil
	}
	m, _ := b.manager(b.files)
	c := &pod.Spec.Containers[0]
	if got := m.DynamicResources(pod, c); len(got) > 0 {
		t.Errorf("before: %v", got)
	}
	if err := m.Prepare(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	c.Resources.Claims = append(c.Resources.Claims, c.Resources.Claims[0])
	got := (&podresources.ContainerResources{DynamicResources: m.DynamicResources(pod, c)}).GetDynamicResources()
	if len(got) != 1 || got[0].GetClaimName() != "a" || got[0].GetClaimNamespace() != "default" || len(got[0].GetClaimResources()) != 1 {
		t.Fatalf("got %v", got)
	}
	if r := got[0].GetClaimResources()[0]; r.GetDriverName() != gpus || r.GetPoolName() != nodeName || r.GetDeviceName() != "d0" || r.GetShareId() != share || len(r.GetCdiDevices()) != 2 {
		t.Errorf("got %v", r)
	}
}
