package noderesources

import (
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	kubescheduler "k8s.io/kube-scheduler/config/v1"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/plugintest"
)

// deviceHandle returns a handle of a scheduler that knows four devices of the node,
// one of which is allocated. They satisfy the resource device.
func deviceHandle(t *testing.T) *framework.Handle {
	t.Helper()
	class := plugintest.Yaml[resourceapi.DeviceClass](t, `{metadata: {name: gpus}, spec: {extendedResourceName: example.com/device}}`)
	slice := plugintest.Yaml[resourceapi.ResourceSlice](t, `
metadata: {name: s}
spec: {driver: gpu.example.com, nodeName: node, pool: {name: p, generation: 1, resourceSliceCount: 1}, devices: [{name: a}, {name: b}, {name: c}, {name: d}]}`)
	claim := plugintest.Yaml[resourceapi.ResourceClaim](t, `
metadata: {namespace: shop, name: c, uid: c}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpus}}]}}
status: {allocation: {devices: {results: [{request: r, driver: gpu.example.com, pool: p, device: a}]}}}`)
	return &framework.Handle{Informers: plugintest.Informers(t, class, slice, claim)}
}

// Devices count in the scores of an extended resource that the node does not have
// itself.
func TestScoresOfDevices(t *testing.T) {
	const name, implicit, other = string(device), "deviceclass.resource.kubernetes.io/gpus", "example.com/other"
	most := ScorerFactory("most", kubescheduler.MostAllocated)
	for _, test := range []struct {
		name, pod, node string
		factory         framework.Factory
		resources       []string
		want            int64
	}{
		{"least allocated", name + "=2", "", FitFactory(), []string{name}, 25},
		{"by the name of the class", implicit + "=2", "", FitFactory(), []string{implicit}, 25},
		{"the node has the resource itself", name + "=2", name + "=8", FitFactory(), []string{name}, 75},
		{"the pod requests none", "cpu=1", "", FitFactory(), []string{name}, 0},
		{"no class", other + "=2", "", FitFactory(), []string{other}, 0},
		{"beside cpu", "cpu=1 " + name + "=2", "cpu=4", FitFactory(), []string{"cpu", name}, 50},
		{"most allocated", name + "=2", "", most, []string{name}, 75},
		{"more than there are", name + "=9", "", most, []string{name}, 100},
		{"balanced", "cpu=1 " + name + "=1", "cpu=4", BalancedFactory(), []string{"cpu", name}, 75},
		{"out of balance", "cpu=1 " + name + "=3", "cpu=4", BalancedFactory(), []string{"cpu", name}, 62},
		{"balanced without a class", "cpu=1 " + other + "=3", "cpu=4", BalancedFactory(), []string{"cpu", other}, 75},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := deviceHandle(t)
			p := scorerOf(t, test.factory, h, test.resources)
			cycle, pod, node := framework.NewCycleState(h), podOf("p", test.pod), nodeOf(test.node)
			for range 2 { // devices are looked at once
				if got, s := p.Score(t.Context(), cycle, pod, node); got != test.want || !s.IsSuccess() {
					t.Errorf("%d %s, want %d", got, s.Message(), test.want)
				}
			}
		})
	}
}

// scorerOf makes a plugin that scores some resources.
func scorerOf(t *testing.T, factory framework.Factory, h *framework.Handle, resources []string) framework.ScorePlugin {
	t.Helper()
	var scored []kubescheduler.ResourceSpec
	for _, name := range resources {
		scored = append(scored, kubescheduler.ResourceSpec{Name: name, Weight: 1})
	}
	arguments := factory.NewArguments()
	switch a := arguments.(type) {
	case *kubescheduler.NodeResourcesFitArgs:
		a.ScoringStrategy = &kubescheduler.ScoringStrategy{Type: kubescheduler.LeastAllocated, Resources: scored}
	case *kubescheduler.NodeResourcesBalancedAllocationArgs:
		a.Resources = scored
	case *kubescheduler.ScoringStrategy:
		a.Resources = scored
	}
	factory.SetDefaults(arguments)
	p, err := factory.New(t.Context(), arguments, h)
	if err != nil {
		t.Fatal(err)
	}
	return p.(framework.ScorePlugin)
}

// Results are not shared between pods whose scores depend on devices: those are
// allocated without a change of the node.
func TestPodsWithDevicesDoNotSign(t *testing.T) {
	for _, test := range []struct {
		pod, resource string
		signs         bool
	}{
		{"cpu=1", string(device), true},
		{"cpu=1 " + string(device) + "=1", string(device), false},
		{"cpu=1 " + string(device) + "=1", "memory", true},
	} {
		p := scorerOf(t, BalancedFactory(), deviceHandle(t), []string{"cpu", test.resource})
		if _, ok := p.(framework.SignPlugin).SignPod(podOf("p", test.pod)); ok != test.signs {
			t.Errorf("%s, scored by %s: signs %t", test.pod, test.resource, ok)
		}
	}
}
