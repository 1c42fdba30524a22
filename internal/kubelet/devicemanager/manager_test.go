package devicemanager

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/coracle-io/coracle/internal/kubelet/checksum"
	"github.com/coracle-io/coracle/internal/kubelet/devicemanager/checkpoint"
	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/hostpath"
	"github.com/coracle-io/coracle/internal/kubelet/topologymanager"
	"github.com/coracle-io/coracle/internal/supervise"
)

// ids returns the devices of a container.
func (n *node) ids(pod *v1.Pod, container string) []string {
	all := sets.Set[string]{}
	for _, d := range n.ContainerDevices(pod.UID, container) {
		for _, ids := range d.IDs {
			all.Insert(ids...)
		}
	}
	return sets.List(all)
}

// A container gets what the plugin answers, after the plugin has prepared the
// devices.
func TestContainerGetsDevices(t *testing.T) {
	n := newNode(t)
	p := n.register("plugin.sock", &pluginapi.DevicePluginOptions{PreStartRequired: true}, healthy("one", "two")...)
	pod := n.pod("p", 0, 1)
	if err := n.admit(pod); err != nil {
		t.Fatal(err)
	}
	config := &runtimeapi.ContainerConfig{Envs: []*runtimeapi.KeyValue{{Key: "DEVICE", Value: []byte("own")}}}
	if err := n.Start(t.Context(), pod, &pod.Spec.Containers[0], config); err != nil {
		t.Fatal(err)
	}
	want := &runtimeapi.ContainerConfig{
		Envs:        []*runtimeapi.KeyValue{{Key: "DEVICE", Value: []byte("one")}, {Key: "DEVICE", Value: []byte("own")}},
		Mounts:      []*runtimeapi.Mount{{ContainerPath: "/opt/driver", HostPath: "/usr/lib/driver", Readonly: true}},
		Devices:     []*runtimeapi.Device{{ContainerPath: "/dev/one", HostPath: "/dev/null", Permissions: "rw"}},
		Annotations: map[string]string{"example.com/device": "one"},
		CDIDevices:  []*runtimeapi.CDIDevice{{Name: "example.com/class=one"}},
	}
	if config.String() != want.String() {
		t.Errorf("the configuration is\n%v, want\n%v", config, want)
	}
	allocated, prepared := p.calls()
	if one := [][]string{{"one"}}; !reflect.DeepEqual(allocated, one) || !reflect.DeepEqual(prepared, one) {
		t.Errorf("allocated %v, prepared %v", allocated, prepared)
	}
	if err := n.admit(pod); err != nil { // once more, as after a restart of the kubelet
		t.Error(err)
	}
	if allocated, _ := p.calls(); len(allocated) != 1 {
		t.Errorf("allocated again: %v", allocated)
	}
	if m, ok := n.Manages(devices), n.Manages("example.com/other"); !m || ok {
		t.Errorf("manages %t, another one %t", m, ok)
	}
}

// What a plugin names by the usual directory of the kubelet is in the real one.
func TestPathsOfDevices(t *testing.T) {
	config := &runtimeapi.ContainerConfig{}
	configure(config, []*pluginapi.ContainerAllocateResponse{{
		Mounts:  []*pluginapi.Mount{{ContainerPath: "/a", HostPath: "/var/lib/kubelet/plugins/a"}, {ContainerPath: "/b", HostPath: "/usr/lib/b"}},
		Devices: []*pluginapi.DeviceSpec{{ContainerPath: "/dev/a", HostPath: "/var/lib/kubelet/device-plugins/a"}, {ContainerPath: "/dev/b", HostPath: "/dev/null"}},
	}}, hostpath.New("/data/kubelet", hostpath.PodLogs, hostpath.LogLinks))
	want := &runtimeapi.ContainerConfig{
		Mounts:  []*runtimeapi.Mount{{ContainerPath: "/a", HostPath: "/data/kubelet/plugins/a"}, {ContainerPath: "/b", HostPath: "/usr/lib/b"}},
		Devices: []*runtimeapi.Device{{ContainerPath: "/dev/a", HostPath: "/data/kubelet/device-plugins/a"}, {ContainerPath: "/dev/b", HostPath: "/dev/null"}},
	}
	if config.String() != want.String() {
		t.Errorf("the configuration is\n%v, want\n%v", config, want)
	}
}

// A node has the devices that the plugin reports, until the plugin is gone for
// too long.
func TestCapacityFollowsThePlugin(t *testing.T) {
	n := newNode(t)
	p := n.register("a.sock", &pluginapi.DevicePluginOptions{}, healthy("one", "two", "three")...)
	pod := n.pod("p", 0, 2)
	if err := n.admit(pod); err != nil {
		t.Fatal(err)
	}
	n.set(p, &pluginapi.Device{ID: "one", Health: pluginapi.Unhealthy}, &pluginapi.Device{ID: "two", Health: pluginapi.Healthy}, &pluginapi.Device{ID: "three", Health: pluginapi.Healthy})
	if uid := <-n.woken; uid != pod.UID {
		t.Errorf("woken is %s", uid)
	}
	want := []v1.ResourceStatus{{Name: devices, Resources: []v1.ResourceHealth{
		{ResourceID: "one", Health: v1.ResourceHealthStatusUnhealthy}, {ResourceID: "three", Health: v1.ResourceHealthStatusHealthy}}}}
	if got := n.ResourcesStatus(pod.UID, "a"); !reflect.DeepEqual(got, want) {
		t.Errorf("the health of the devices is %v, want %v", got, want)
	}
	p.server.Stop() // killed
	n.await(3, 0)
	first := n.register("b.sock", &pluginapi.DevicePluginOptions{}, healthy("two", "three")...)
	if err := n.admit(n.pod("q", 0, 1)); err != nil {
		t.Error(err)
	}
	if got := n.ids(n.active[1], "a"); !slices.Equal(got, []string{"two"}) {
		t.Errorf("the second pod has %v", got)
	}
	second := n.register("c.sock", &pluginapi.DevicePluginOptions{}, healthy("three")...) // takes the place of the one before
	second.server.Stop()
	n.await(2, 2) // which is still there
	first.server.Stop()
	n.await(2, 0)
	n.Manager.mu.Lock()
	n.resources[devices].stopped = n.resources[devices].stopped.Add(-stopGracePeriod)
	n.Manager.mu.Unlock()
	n.expire(t.Context())
	n.await(0, 0)
	if capacity, _ := n.Capacity(); len(capacity) != 1 { // the zero overwrites what the Node object has
		t.Errorf("the capacity is %v", capacity)
	}
}

// What a plugin reports takes the place of what it has reported before: devices go, come
// and change their health.
func TestDevicesOfAnUpdate(t *testing.T) {
	n := newNode(t)
	unhealthy := func(id string) *pluginapi.Device { return &pluginapi.Device{ID: id, Health: pluginapi.Unhealthy} }
	p := n.register("plugin.sock", &pluginapi.DevicePluginOptions{}, append(healthy("one", "two"), unhealthy("three"))...)
	n.set(p, append(healthy("three", "four", "five"), unhealthy("one"))...)
	if err := n.admit(n.pod("large", 0, 4)); err == nil {
		t.Error("a pod has an unhealthy device, or one that is gone")
	}
	pod := n.pod("p", 0, 3)
	if err := n.admit(pod); err != nil {
		t.Fatal(err)
	}
	if got := n.ids(pod, "a"); !slices.Equal(got, []string{"five", "four", "three"}) {
		t.Errorf("the pod has %v", got)
	}
}

// A plugin that has registered before serves its resource again when the last one
// ends, as while a DaemonSet replaces its pods.
func TestPluginsOfOneResource(t *testing.T) {
	n := newNode(t)
	old := n.register("old.sock", &pluginapi.DevicePluginOptions{}, healthy("one", "two")...)
	last := n.register("new.sock", &pluginapi.DevicePluginOptions{}, healthy("one", "two", "three")...)
	if err := n.admit(n.pod("p", 0, 1)); err != nil {
		t.Fatal(err)
	}
	last.server.Stop()
	n.await(2, 2)
	if err := n.admit(n.pod("q", 0, 1)); err != nil {
		t.Error(err)
	}
	before, _ := last.calls()
	after, _ := old.calls()
	if one, two := [][]string{{"one"}}, [][]string{{"two"}}; !reflect.DeepEqual(before, one) || !reflect.DeepEqual(after, two) {
		t.Errorf("the plugins have allocated %v and %v", before, after)
	}
}

// The last plugins of a resource stand by, each socket once.
func TestPluginsThatStandBy(t *testing.T) {
	r := &resource{}
	var replaced, standby []string
	for _, endpoint := range strings.Fields("a b a c d e f g") {
		for _, p := range r.put(&plugin{endpoint: endpoint}) {
			replaced = append(replaced, p.endpoint)
		}
	}
	for _, p := range r.standby {
		standby = append(standby, p.endpoint)
	}
	if got, want := fmt.Sprint(r.plugin.endpoint, standby, replaced), "g[c d e f] [a b a]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A resource that a container has by a claim is none of the plugin's.
func TestDevicesOfClaims(t *testing.T) {
	n := newNode(t)
	n.register("a.sock", &pluginapi.DevicePluginOptions{}, onNode("one", 0))
	pod := n.pod("p", 0, 2, 1)
	pod.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{
		RequestMappings: []v1.ContainerExtendedResourceRequest{{ContainerName: "a", ResourceName: devices}},
	}
	if hints := n.PodHints(pod)[devices]; len(hints) != 1 || hints[0].Affinity.String() != "0" {
		t.Errorf("the hints are %v", hints)
	}
	if err := n.admit(pod); err != nil {
		t.Fatal(err)
	}
	if a, b := n.ids(pod, "a"), n.ids(pod, "b"); len(a) != 0 || !slices.Equal(b, []string{"one"}) {
		t.Errorf("the containers have %v and %v", a, b)
	}
}

// The devices of containers survive kill -9 of the kubelet.
func TestCheckpoint(t *testing.T) {
	n := newNode(t)
	n.register("a.sock", &pluginapi.DevicePluginOptions{}, onNode("one", 0), onNode("two", 1))
	pod := n.pod("p", 0, 1)
	if err := n.admit(pod); err != nil {
		t.Fatal(err)
	}
	before := n.ids(pod, "a")
	n.stop()
	n.start()
	if got := n.ids(pod, "a"); len(got) != 1 || !slices.Equal(got, before) {
		t.Errorf("after a restart the container has %v, before %v", got, before)
	}
	capacity, _ := n.Capacity()
	if q, known := capacity[devices]; !known || !q.IsZero() {
		t.Errorf("before the plugin has registered again the capacity is %v", capacity)
	}
	reason, message := topologymanager.Rejection(n.admit(n.pod("q", 0, 1)))
	if want := "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices example.com/device, which is unexpected"; reason != "UnexpectedAdmissionError" || message != want {
		t.Errorf("%s: %s, want %s", reason, message, want)
	}
	p := n.register("b.sock", &pluginapi.DevicePluginOptions{}, onNode("one", 0), onNode("two", 1))
	if err := n.admit(pod); err != nil {
		t.Error(err)
	}
	if allocated, _ := p.calls(); len(allocated) != 0 {
		t.Errorf("allocated again: %v", allocated)
	}
	config := &runtimeapi.ContainerConfig{}
	if err := n.Start(t.Context(), pod, &pod.Spec.Containers[0], config); err != nil || len(config.GetDevices()) != 1 {
		t.Errorf("%v: %v", config, err)
	}
}

// A checkpoint that has been changed is named, and does not end the kubelet.
func TestDamagedCheckpoint(t *testing.T) {
	n := newNode(t)
	n.register("a.sock", &pluginapi.DevicePluginOptions{}, healthy("one")...)
	pod := n.pod("p", 0, 1)
	if err := n.admit(pod); err != nil {
		t.Fatal(err)
	}
	n.stop()
	raw, err := os.ReadFile(n.checkpointFile())
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"changed": strings.Replace(string(raw), `"one"`, `"two"`, 1), "cut": string(raw[:len(raw)/2]), "empty": "", "foreign": "[]",
	} {
		if err := os.WriteFile(n.checkpointFile(), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		n.start()
		err := n.restore()
		if err == nil || !strings.Contains(err.Error(), n.checkpointFile()) {
			t.Errorf("%s: %v", name, err)
		}
		if got := n.ids(pod, "a"); len(got) > 0 {
			t.Errorf("%s: the container has %v", name, got)
		}
		n.stop()
	}
	n.start()
}

// The files of upstream's kubelets are read, and written the same.
func TestCheckpointFormat(t *testing.T) {
	for _, written := range []string{
		`{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{"nvidia.com/gpu":["GPU-0650a168-e770-3ea8-8ac3-8a1d419763e0"]}},"Checksum":3952659280}`,
		`{"Data":{"PodDeviceEntries":[{"PodUID":"bf52b2cd-b611-4e79-86b1-280b283185c3","ContainerName":"check","ResourceName":"nvidia.com/gpu","DeviceIDs":{"-1":["tegra"]},"AllocResp":"Ch8KFk5WSURJQV9WSVNJQkxFX0RFVklDRVMSBXRlZ3Jh"}],"RegisteredDevices":{"nvidia.com/gpu":["tegra"]}},"Checksum":3660592824}`,
	} {
		entries, registered, err := checkpoint.Unmarshal([]byte(written))
		if err != nil {
			t.Errorf("%s: %v", written, err)
			continue
		}
		if raw, err := checkpoint.Marshal(entries, registered); err != nil || string(raw) != written {
			t.Errorf("%s (%v), want %s", raw, err, written)
		}
		if _, _, err := checkpoint.Unmarshal([]byte(strings.Replace(written, "nvidia", "amd", 1))); !errors.Is(err, checksum.ErrCorrupt) {
			t.Errorf("changed: %v", err)
		}
	}
}

// A failed allocation returns upstream's error and leaves nothing allocated.
func TestAllocationFails(t *testing.T) {
	n := newNode(t)
	p := n.register("a.sock", &pluginapi.DevicePluginOptions{}, healthy("one", "two")...)
	first := n.pod("first", 0, 1)
	if err := n.admit(first); err != nil {
		t.Fatal(err)
	}
	if _, message := topologymanager.Rejection(n.admit(n.pod("more", 0, 2))); message != "Allocate failed due to requested number of devices unavailable for example.com/device. Requested: 2, Available: 1, which is unexpected" {
		t.Error(message)
	}
	changed := first.DeepCopy()
	changed.Spec.Containers[0] = n.pod("x", 0, 2).Spec.Containers[0]
	err := n.Allocate(t.Context(), topologymanager.Request{Pod: changed, Container: &changed.Spec.Containers[0]})
	if want := `pod "uid-first" container "a" changed request for resource "example.com/device" from 1 to 2`; err == nil || err.Error() != want {
		t.Error(err)
	}
	p.mu.Lock()
	p.fails = errors.New("the device is on fire")
	p.mu.Unlock()
	second := n.pod("second", 0, 1)
	if err := n.admit(second); err == nil || !strings.Contains(err.Error(), "the device is on fire") {
		t.Error(err)
	}
	if got := n.ids(second, "a"); len(got) > 0 {
		t.Errorf("the container has %v", got)
	}
	p.mu.Lock()
	p.fails = nil
	p.mu.Unlock()
	n.set(p, &pluginapi.Device{ID: "one", Health: pluginapi.Unhealthy}, &pluginapi.Device{ID: "two", Health: pluginapi.Healthy})
	err = n.Allocate(t.Context(), topologymanager.Request{Pod: first, Container: &first.Spec.Containers[0]})
	if want := "previously allocated devices are no longer healthy; cannot allocate unhealthy devices example.com/device"; err == nil || err.Error() != want {
		t.Error(err)
	}
}

// The devices of an init container go to the containers after it.
func TestInitContainersPassDevicesOn(t *testing.T) {
	n := newNode(t)
	n.register("a.sock", &pluginapi.DevicePluginOptions{}, healthy("one", "two", "three")...)
	pod := n.pod("p", 2, 2, 1, 1, 1) // init containers a and b, containers c and d
	always := v1.ContainerRestartPolicyAlways
	if err := n.admit(pod); err != nil {
		t.Fatal(err)
	}
	got := [][]string{n.ids(pod, "a"), n.ids(pod, "b"), n.ids(pod, "c"), n.ids(pod, "d")}
	if want := [][]string{{"one", "three"}, {"one"}, {"one"}, {"three"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("the containers have %v, want %v", got, want)
	}
	n.Release(pod.UID)
	pod.Spec.InitContainers[1].RestartPolicy = &always // a sidecar keeps its device
	if err := n.admit(pod); err != nil {
		t.Fatal(err)
	}
	got = [][]string{n.ids(pod, "b"), n.ids(pod, "c"), n.ids(pod, "d")}
	if want := [][]string{{"one"}, {"three"}, {"two"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("the containers have %v, want %v", got, want)
	}
}

// The plugin chooses among the devices of the right NUMA node.
func TestPreferredDevices(t *testing.T) {
	n := newNode(t)
	p := n.register("a.sock", &pluginapi.DevicePluginOptions{GetPreferredAllocationAvailable: true}, onNode("a", 0), onNode("b", 0), onNode("c", 0), onNode("d", 1))
	var offered []string
	p.mu.Lock()
	p.prefer = func(available []string, n int) []string {
		offered = available
		return available[len(available)-n:]
	}
	p.mu.Unlock()
	pod := n.pod("p", 0, 2)
	if err := n.admit(pod); err != nil {
		t.Fatal(err)
	}
	if want := []string{"a", "b", "c"}; !slices.Equal(offered, want) {
		t.Errorf("offered are %v, want %v", offered, want)
	}
	if got, want := n.ids(pod, "a"), []string{"b", "c"}; !slices.Equal(got, want) {
		t.Errorf("the container has %v, want %v", got, want)
	}
	second := n.pod("q", 0, 2) // no node has two devices left
	if err := n.admit(second); err != nil {
		t.Fatal(err)
	}
	if got, want := n.ids(second, "a"), []string{"a", "d"}; !slices.Equal(got, want) {
		t.Errorf("the second container has %v, want %v", got, want)
	}
}

// Hints combine the NUMA nodes that have devices of the resource, whatever other
// nodes the machine has.
func TestHintsOfAMachineWithManyNodes(t *testing.T) {
	n := newNode(t)
	for id := 2; id < 40; id++ {
		n.config.Nodes = append(n.config.Nodes, id)
	}
	n.register("a.sock", &pluginapi.DevicePluginOptions{}, onNode("a", 0), onNode("b", 36))
	pod := n.pod("p", 0, 1)
	var got []string
	for _, hint := range n.Hints(topologymanager.Request{Pod: pod, Container: &pod.Spec.Containers[0]})[devices] {
		got = append(got, fmt.Sprint(hint.Affinity.String(), " ", hint.Preferred))
	}
	if want := []string{"0 true", "36 true", "0,36 false"}; !slices.Equal(got, want) {
		t.Errorf("the hints are %q, want %q", got, want)
	}
}

// Devices of pods that are gone are free again, also if the kubelet did not see
// them end.
func TestDevicesOfGonePodsAreFree(t *testing.T) {
	n := newNode(t)
	n.register("a.sock", &pluginapi.DevicePluginOptions{}, healthy("one")...)
	for _, name := range []string{"first", "second"} {
		if err := n.admit(n.pod(name, 0, 1)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		n.mu.Lock()
		n.active = nil
		n.mu.Unlock()
	}
}

// A pod that is admitted while the manager looks for pods that are gone keeps its
// devices.
func TestPodsThatAreAdmittedMeanwhileKeepDevices(t *testing.T) {
	n := newNode(t)
	n.register("a.sock", &pluginapi.DevicePluginOptions{}, healthy("one", "two")...)
	if err := n.admit(n.pod("gone", 0, 1)); err != nil {
		t.Fatal(err)
	}
	n.mu.Lock()
	n.active = nil
	n.mu.Unlock()
	added, active := n.pod("added", 0, 1), n.config.Active
	n.config.Active = func() []*v1.Pod { // answers just before the pod is admitted
		n.config.Active = active
		if err := n.admit(added); err != nil {
			t.Error(err)
		}
		return nil
	}
	n.releaseInactive()
	if got := n.ids(added, "a"); len(got) != 1 {
		t.Errorf("the pod has the devices %q", got)
	}
}

// A plugin cannot take a name that is not its own, nor a socket elsewhere.
func TestRefusedRegistrations(t *testing.T) {
	n := newNode(t)
	for want, r := range map[string]*pluginapi.RegisterRequest{
		`requested API version "v1alpha" is not supported by kubelet`: {Version: "v1alpha", Endpoint: "a.sock", ResourceName: devices},
		`the ResourceName "cpu" is invalid`:                           {Version: "v1beta1", Endpoint: "a.sock", ResourceName: "cpu"},
		`the ResourceName "kubernetes.io/x" is invalid`:               {Version: "v1beta1", Endpoint: "a.sock", ResourceName: "kubernetes.io/x"},
		`the ResourceName "requests.example.com/x" is invalid`:        {Version: "v1beta1", Endpoint: "a.sock", ResourceName: "requests.example.com/x"},
		`the endpoint "../a.sock" is not the name of a socket`:        {Version: "v1beta1", Endpoint: "../a.sock", ResourceName: devices},
		`the endpoint "kubelet.sock" is not the name of a socket`:     {Version: "v1beta1", Endpoint: "kubelet.sock", ResourceName: devices},
	} {
		if err := n.call(r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if capacity, _ := n.Capacity(); len(capacity) != 0 {
		t.Errorf("the capacity is %v", capacity)
	}
}

// Containers that run keep their devices when the kubelet starts before their
// plugin, and so do init containers that have ended.
func TestRunningContainersKeepDevices(t *testing.T) {
	n := newNode(t)
	n.register("a.sock", &pluginapi.DevicePluginOptions{}, healthy("one", "two")...)
	pod := n.pod("p", 1, 2, 1)
	if err := n.admit(pod); err != nil {
		t.Fatal(err)
	}
	n.stop()
	n.start()
	check := func() {
		t.Helper()
		if err := n.admit(pod, "b"); err != nil {
			t.Error(err)
		}
		if a, b := n.ids(pod, "a"), n.ids(pod, "b"); !slices.Equal(a, []string{"one", "two"}) || len(b) != 1 {
			t.Errorf("the containers have %v and %v", a, b)
		}
	}
	check()
	p := n.register("b.sock", &pluginapi.DevicePluginOptions{}, healthy("three")...) // the others are gone
	check()
	if allocated, _ := p.calls(); len(allocated) != 0 {
		t.Errorf("allocated again: %v", allocated)
	}
	changed := pod.DeepCopy()
	changed.Spec.Containers[0].Resources = pod.Spec.InitContainers[0].Resources
	if err := n.admit(changed, "b"); err == nil || !strings.Contains(err.Error(), "changed request for resource") {
		t.Error(err)
	}
	if got := n.ids(pod, "b"); len(got) != 1 {
		t.Errorf("after a failure the container that runs has %v", got)
	}
}

// Devices are not allocated if the checkpoint would be too large for the next
// kubelet to read.
func TestCheckpointThatIsTooLarge(t *testing.T) {
	n := newNode(t)
	n.register("a.sock", &pluginapi.DevicePluginOptions{}, healthy("one", "two")...)
	first, second := n.pod("first", 0, 1), n.pod("second", 0, 1)
	if err := n.admit(first); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(n.checkpointFile())
	if err != nil {
		t.Fatal(err)
	}
	n.limit = len(before)
	if err := n.admit(second); err == nil || !strings.Contains(err.Error(), "bytes, more than") {
		t.Error(err)
	}
	now, err := os.ReadFile(n.checkpointFile())
	if got := n.ids(second, "a"); err != nil || len(got) > 0 || string(now) != string(before) {
		t.Errorf("the pod has %v, the checkpoint is %s (%v), before %s", got, now, err, before)
	}
}

// A plugin that reports devices beyond the bounds ends.
func TestDevicesBeyondBounds(t *testing.T) {
	for want, list := range map[string][]*pluginapi.Device{
		"":                             {{ID: strings.Repeat("x", maxDeviceID)}},
		"the id of a device has":       {{ID: "one"}, {ID: strings.Repeat("x", maxDeviceID+1)}},
		`the device "one" is on`:       {{ID: "one", Topology: &pluginapi.TopologyInfo{Nodes: make([]*pluginapi.NUMANode, maxDeviceNodes+1)}}},
		"the plugin has 65537 devices": make([]*pluginapi.Device, maxDevices+1),
	} {
		if err := checkDevices(list); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// The check of whether plugins can register fails while the socket cannot be made.
func TestRegistrationFails(t *testing.T) {
	dir, err := os.MkdirTemp("", "device-plugins")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	n := &node{t: t, dir: filepath.Join(dir, "sockets")}
	if err := os.WriteFile(n.dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	m := New(Config{Dir: n.dir, Files: files.OS{}})
	var plugins supervise.WaitGroup
	if err := m.serve(t.Context(), &plugins); err == nil || m.Registers() == nil {
		t.Errorf("beside a file of this name: %v, %v", err, m.Registers())
	}
	if err := os.Remove(n.dir); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.serve(ctx, &plugins) }()
	_ = n.call(&pluginapi.RegisterRequest{}) // it is refused once the socket is there
	if err := m.Registers(); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
