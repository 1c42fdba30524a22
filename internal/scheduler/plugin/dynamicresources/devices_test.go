package dynamicresources

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// nodeless returns a slice of a pool that does not name its node.
func nodeless(pool string, devices ...string) *resourceapi.ResourceSlice {
	s := slice(pool, devices...)
	s.Spec.NodeName = nil
	return s
}

// A node has the devices that it has access to. Claims count with all that is known
// of their allocations.
func TestCountOfDevices(t *testing.T) {
	changed := func(change func(*resourceapi.DeviceRequestAllocationResult)) claimOption {
		return func(c *resourceapi.ResourceClaim) { change(&c.Status.Allocation.Devices.Results[0]) }
	}
	shared := func(id types.UID) claimOption {
		return changed(func(r *resourceapi.DeviceRequestAllocationResult) { r.ShareID = &id })
	}
	everywhere, selected, each := nodeless("pool", "gpu-0"), nodeless("pool", "gpu-0"), nodeless("pool", "gpu-0", "gpu-1", "gpu-2", "gpu-3")
	everywhere.Spec.AllNodes = new(true)
	selected.Spec.NodeSelector = &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
		MatchExpressions: []v1.NodeSelectorRequirement{{Key: "near", Operator: v1.NodeSelectorOpExists}},
	}}}
	elsewhere := selected.DeepCopy()
	elsewhere.Spec.NodeSelector.NodeSelectorTerms[0].MatchExpressions[0].Key = "far"
	each.Spec.PerDeviceNodeSelection = new(true)
	each.Spec.Devices[0].NodeName, each.Spec.Devices[1].AllNodes = new("a"), new(true)
	each.Spec.Devices[2].NodeName, each.Spec.Devices[3].NodeSelector = new("b"), selected.Spec.NodeSelector
	for _, test := range []struct {
		name             string
		expression       string // of the class
		objects          []runtime.Object
		total, allocated int64
	}{
		{"none", "", nil, 0, 0},
		{"those of the node", "", []runtime.Object{slice("a", "gpu-0", "gpu-1"), slice("b", "gpu-0")}, 2, 0},
		{"those of the class", `device.attributes["gpu.example.com"].model == "large"`, []runtime.Object{slice("a", "gpu-0:large", "gpu-1:small")}, 1, 0},
		{"one is allocated", "", []runtime.Object{slice("a", "gpu-0", "gpu-1"), claim("c", "any", allocatedOn("a", "gpu-0"))}, 2, 1},
		{"one of another node is allocated", "", []runtime.Object{slice("a", "gpu-0"), claim("c", "any", allocatedOn("b", "gpu-0"))}, 1, 0},
		{"one is shared", "", []runtime.Object{
			slice("a", "gpu-0", "gpu-1"), claim("c", "any", allocatedOn("a", "gpu-0"), shared("1")), claim("d", "any", allocatedOn("a", "gpu-0"), shared("2")),
		}, 2, 1},
		{"an administrator looks at one", "", []runtime.Object{
			slice("a", "gpu-0"), claim("c", "any", allocatedOn("a", "gpu-0"), changed(func(r *resourceapi.DeviceRequestAllocationResult) { r.AdminAccess = new(true) })),
		}, 1, 0},
		{"those of all nodes", "", []runtime.Object{everywhere}, 1, 0},
		{"those of selected nodes", "", []runtime.Object{selected}, 1, 0},
		{"those of other nodes", "", []runtime.Object{elsewhere}, 0, 0},
		{"devices select their nodes", "", []runtime.Object{each}, 3, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t, "", nil, test.objects...)
			total, allocated, err := f.count(class("any", test.expression), node("a", "near"))
			if err != nil || total != test.total || allocated != test.allocated {
				t.Errorf("%d of %d are allocated, %v; want %d of %d", allocated, total, err, test.allocated, test.total)
			}
		})
	}
}

func (f *fixture) count(class *resourceapi.DeviceClass, node *v1.Node) (total, allocated int64, err error) {
	f.t.Helper()
	v, err := NewDevices(f.h).View()
	if err != nil {
		f.t.Fatal(err)
	}
	return v.Count(f.t.Context(), class, node)
}

func TestCountOfUnreadableDevices(t *testing.T) {
	f := newFixture(t, "", nil, slice("a", "gpu-0"))
	if _, _, err := f.count(class("any", `device.attributes["gpu.example.com"].size > 1`), node("a")); err == nil {
		t.Error("an attribute that is not there is no error")
	}
}

// Devices count from the decision on, not from when the claim is written.
func TestCountOfReservedDevices(t *testing.T) {
	f := newFixture(t, "", nil, node("a"), class("any", ""), slice("a", "gpu-0", "gpu-1"), claim("c", "any"))
	state, web := framework.NewCycleState(f.h), pod("web", "c")
	if got := f.filter(state, web); got != "a: fits" {
		t.Fatal(got)
	}
	check := func(want int64) {
		t.Helper()
		if total, allocated, err := f.count(class("any", ""), node("a")); err != nil || total != 2 || allocated != want {
			t.Errorf("%d of %d are allocated, %v; want %d of 2", allocated, total, err, want)
		}
	}
	check(0)
	if s := f.Reserve(t.Context(), state, framework.NewPodInfo(web), "a"); !s.IsSuccess() {
		t.Fatal(s.Message())
	}
	check(1)
}
