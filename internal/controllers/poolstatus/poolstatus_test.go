package poolstatus

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	resourcealpha "k8s.io/api/resource/v1alpha3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/leaktest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Run(m)) }

const driver = "gpu.example.com"

// slice returns one of several slices of a pool, with devices of these names.
func slice(pool string, generation, of int64, names ...string) *resourceapi.ResourceSlice {
	s := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(pool, generation, "-", strings.Join(names, ""))}}
	s.Spec = resourceapi.ResourceSliceSpec{Driver: driver, NodeName: new("n"), Pool: resourceapi.ResourcePool{Name: pool, Generation: generation, ResourceSliceCount: of}}
	for _, name := range names {
		s.Spec.Devices = append(s.Spec.Devices, resourceapi.Device{Name: name})
	}
	return s
}

// claim returns a claim that has devices of a pool.
func claim(pool string, names ...string) *resourceapi.ResourceClaim {
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: pool + strings.Join(names, "")}}
	c.Status.Allocation = &resourceapi.AllocationResult{}
	for _, name := range names {
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results, resourceapi.DeviceRequestAllocationResult{Driver: driver, Pool: pool, Device: name})
	}
	return c
}

// show returns the status of pools in one line each.
func show(status resourcealpha.ResourcePoolStatusRequestStatus) string {
	var lines []string
	for _, p := range status.Pools {
		line := fmt.Sprintf("%s at %d on %s", p.PoolName, p.Generation, ptr.Deref(p.NodeName, "none"))
		if p.TotalDevices != nil {
			line += fmt.Sprintf(": %d slices, %d = %d used + %d free + %d unavailable", *p.ResourceSliceCount, *p.TotalDevices, *p.AllocatedDevices, *p.AvailableDevices, *p.UnavailableDevices)
		}
		lines = append(lines, strings.TrimSpace(line+" "+ptr.Deref(p.ValidationError, "")))
	}
	return strings.Join(lines, "\n")
}

func TestPools(t *testing.T) {
	tainted := slice("a", 2, 2, "a2", "a3")
	tainted.Spec.Devices[0].Taints = []resourceapi.DeviceTaint{{Key: "k", Effect: resourceapi.DeviceTaintEffectNoSchedule}}
	elsewhere := slice("c", 1, 2, "c2")
	elsewhere.Spec.NodeName = new("m")
	other := slice("a", 3, 1, "x")
	other.Spec.Driver = "other.example.com"
	observer := claim("a", "a3")
	observer.Status.Allocation.Devices.Results[0].AdminAccess = new(true)
	rule := &resourceapi.DeviceTaintRule{Spec: resourceapi.DeviceTaintRuleSpec{
		DeviceSelector: &resourceapi.DeviceTaintSelector{Pool: new("c"), Device: new("c2")}, Taint: resourceapi.DeviceTaint{Effect: resourceapi.DeviceTaintEffectNoExecute},
	}}
	s := snapshot{
		slices: []*resourceapi.ResourceSlice{slice("a", 1, 1, "old"), slice("a", 2, 2, "a1"), tainted, slice("b", 1, 2, "b1"), slice("c", 1, 2, "c1"), elsewhere, other},
		claims: []*resourceapi.ResourceClaim{claim("a", "a1"), claim("c", "c1"), observer, {}},
		rules:  []*resourceapi.DeviceTaintRule{rule},
	}
	now := time.Unix(1e9, 0)
	const a, b, c = "a at 2 on n: 2 slices, 3 = 1 used + 1 free + 1 unavailable",
		"b at 1 on n PoolIncomplete: pool gpu.example.com/b is incomplete: observed 1/2 slices at generation 1",
		"c at 1 on none: 2 slices, 2 = 1 used + 0 free + 1 unavailable"
	for name, test := range map[string]struct {
		spec       resourcealpha.ResourcePoolStatusRequestSpec
		want       string
		count      int32
		message    string
		incomplete bool
	}{
		"all":       {resourcealpha.ResourcePoolStatusRequestSpec{Driver: driver}, a + "\n" + b + "\n" + c, 3, "Calculated status for 3 pools (1 incomplete)", true},
		"one":       {resourcealpha.ResourcePoolStatusRequestSpec{Driver: driver, PoolName: new("c")}, c, 1, "Calculated status for 1 pools", false},
		"the first": {resourcealpha.ResourcePoolStatusRequestSpec{Driver: driver, Limit: new(int32(1))}, a, 3, "Calculated status for 1 pools", false},
		"none":      {resourcealpha.ResourcePoolStatusRequestSpec{Driver: "absent.example.com"}, "", 0, "Calculated status for 0 pools", false},
	} {
		status, incomplete := answer(&test.spec, s, now)
		if got := show(status); got != test.want || *status.PoolCount != test.count || incomplete != test.incomplete {
			t.Errorf("%s: %d pools, incomplete %v:\n%s\nwant %d:\n%s", name, *status.PoolCount, incomplete, got, test.count, test.want)
		}
		if c := status.Conditions[0]; c.Type != "Complete" || c.Reason != "CalculationComplete" || c.Message != test.message {
			t.Errorf("%s: condition %v", name, c)
		}
	}
}

// typed returns devices of a type that take memory of a counter.
func typed(value, memory string, names ...string) (devices []resourceapi.Device) {
	for _, name := range names {
		d := resourceapi.Device{Name: name, Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"profile": {StringValue: &value}}}
		d.ConsumesCounters = []resourceapi.DeviceCounterConsumption{{CounterSet: "gpu", Counters: map[string]resourceapi.Counter{"memory": {Value: resource.MustParse(memory)}}}}
		devices = append(devices, d)
	}
	return devices
}

func TestPartitions(t *testing.T) {
	counters := slice("p", 1, 2)
	counters.Spec.SharedCounters = []resourceapi.CounterSet{{Name: "gpu", Counters: map[string]resourceapi.Counter{"memory": {Value: resource.MustParse("80Gi")}}}}
	half, full := typed("Half", "40Gi", "h0", "h1"), typed("Full", "80Gi", "f0")
	untyped := typed("", "1Gi", "u")
	untyped[0].Attributes = nil
	plain := []resourceapi.Device{{Name: "plain"}}
	attribute := resourceapi.FullyQualifiedName(driver + "/profile")
	for name, test := range map[string]struct {
		devices   [][]resourceapi.Device
		uncounted bool
		named     *resourceapi.FullyQualifiedName
		byDefault *string
		used      []string
		want      string
	}{
		"all free":         {[][]resourceapi.Device{half, full}, false, &attribute, nil, nil, "Full 1/1, Half 2/2"},
		"one used":         {[][]resourceapi.Device{half, full}, false, &attribute, nil, []string{"h0"}, "Full 0/1, Half 1/2"},
		"by default":       {[][]resourceapi.Device{half, plain}, false, nil, new(string(attribute)), nil, "Half 2/2"},
		"no attribute":     {[][]resourceapi.Device{half, full}, false, nil, nil, nil, ""},
		"without a type":   {[][]resourceapi.Device{half, untyped}, false, &attribute, nil, nil, "PartitionTypeMissing"},
		"without counters": {[][]resourceapi.Device{half}, true, &attribute, nil, nil, "PartitionTypeMissing"},
		"different costs":  {[][]resourceapi.Device{half, typed("Half", "30Gi", "h2")}, false, &attribute, nil, nil, "PartitionCostMismatch"},
	} {
		devices := slice("p", 1, 2)
		devices.Spec.PartitionTypeAttribute = test.named
		for _, some := range test.devices {
			devices.Spec.Devices = append(devices.Spec.Devices, some...)
		}
		s := snapshot{slices: []*resourceapi.ResourceSlice{devices, counters}, claims: []*resourceapi.ResourceClaim{claim("p", test.used...)}, partitionTypes: true}
		if test.uncounted {
			s.slices[1] = slice("p", 1, 2)
		}
		status, _ := answer(&resourcealpha.ResourcePoolStatusRequestSpec{Driver: driver, DefaultPartitionTypeAttribute: test.byDefault}, s, time.Now())
		var got []string
		for _, p := range status.Pools[0].PartitionSummary {
			got = append(got, fmt.Sprintf("%s %d/%d", p.Type, *p.Allocatable, *p.Total))
			if p.Attribute != string(attribute) {
				t.Errorf("%s: attribute %s", name, p.Attribute)
			}
		}
		reason, _, _ := strings.Cut(ptr.Deref(status.Pools[0].ValidationError, ""), ":")
		if text := strings.Join(got, ", ") + reason; text != test.want {
			t.Errorf("%s: %s, want %s; %s", name, text, test.want, ptr.Deref(status.Pools[0].ValidationError, ""))
		}
	}
}

func TestShareable(t *testing.T) {
	devices := slice("p", 1, 1, "d0", "d1", "exclusive")
	for i := range 2 {
		devices.Spec.Devices[i].AllowMultipleAllocations = new(true)
		devices.Spec.Devices[i].Capacity = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"memory": {Value: resource.MustParse("10Gi")}}
	}
	shared := claim("p", "d0", "exclusive")
	shared.Status.Allocation.Devices.Results[0].ConsumedCapacity = map[resourceapi.QualifiedName]resource.Quantity{"memory": resource.MustParse("4Gi")}
	status, _ := answer(&resourcealpha.ResourcePoolStatusRequestSpec{Driver: driver}, snapshot{slices: []*resourceapi.ResourceSlice{devices}, claims: []*resourceapi.ResourceClaim{shared}}, time.Now())
	got, err := json.Marshal(status.Pools[0].ShareableSummary)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"fullyAvailableDevices":1,"partiallyAvailableDevices":1,"capacity":[{"name":"memory","total":"20Gi","consumed":"4Gi","available":"16Gi"}]}`
	if string(got) != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A request is answered once: at once, or for a pool that stays incomplete after some time. It is
// deleted after an hour.
func TestRequests(t *testing.T) {
	for name, test := range map[string]struct {
		slices   int64
		gate     string
		answered time.Duration // 0: never
	}{
		"complete":   {1, "true", time.Second},
		"incomplete": {2, "true", time.Minute},
		"off":        {1, "false", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := controllertest.New(t, slice("p", 1, test.slices, "d"), &resourcealpha.ResourcePoolStatusRequest{
					ObjectMeta: metav1.ObjectMeta{Name: "r"}, Spec: resourcealpha.ResourcePoolStatusRequestSpec{Driver: driver},
				})
				c.Fake.Resources = []*metav1.APIResourceList{{
					GroupVersion: resourcealpha.SchemeGroupVersion.String(), APIResources: []metav1.APIResource{{Name: "resourcepoolstatusrequests"}},
				}, {GroupVersion: resourceapi.SchemeGroupVersion.String(), APIResources: []metav1.APIResource{{Name: "devicetaintrules"}}}}
				gates, err := feature.Parse([]string{string(feature.DRAResourcePoolStatus) + "=" + test.gate})
				if err != nil {
					t.Fatal(err)
				}
				c.Env.Features = gates
				c.Run(Descriptor())
				state := func() string {
					synctest.Wait()
					r, err := c.Fake.ResourceV1alpha3().ResourcePoolStatusRequests().Get(t.Context(), "r", metav1.GetOptions{})
					switch {
					case apierrors.IsNotFound(err):
						return "gone"
					case err != nil:
						t.Fatal(err)
					case r.Status == nil:
						return "pending"
					}
					return "answered"
				}
				time.Sleep(max(test.answered, time.Minute))
				want := "answered"
				if test.answered == 0 {
					want = "pending"
				}
				if got := state(); got != want {
					t.Errorf("the request is %s, want %s", got, want)
				}
				time.Sleep(2 * time.Hour)
				if want == "answered" {
					want = "gone"
				}
				if got := state(); got != want {
					t.Errorf("after two hours, the request is %s, want %s", got, want)
				}
			})
		})
	}
}
