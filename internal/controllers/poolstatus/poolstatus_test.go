package poolstatus

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	resourceapi "k8s.io/api/resource/v1"
	resourcealpha "k8s.io/api/resource/v1alpha3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
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
	counters := slice("p", 1, 3)
	counters.Spec.SharedCounters = []resourceapi.CounterSet{{Name: "gpu", Counters: map[string]resourceapi.Counter{"memory": {Value: resource.MustParse("80Gi")}}}}
	half, full := typed("Half", "40Gi", "h0", "h1"), typed("Full", "80Gi", "f0")
	untyped := typed("", "1Gi", "u")
	untyped[0].Attributes = nil
	whole := typed("Half", "40Gi", "w")
	whole[0].ConsumesCounters = nil
	attribute := resourceapi.FullyQualifiedName(driver + "/profile")
	byDefault := new(string(attribute))
	for name, test := range map[string]struct {
		named      *resourceapi.FullyQualifiedName // by the slice of the devices
		devices    []resourceapi.Device
		undeclared []resourceapi.Device // of a slice that names no attribute
		uncounted  bool
		byDefault  *string
		used       []string
		want       string
	}{
		"all free":                     {&attribute, slices.Concat(half, full), nil, false, nil, nil, "Full 1/1, Half 2/2"},
		"one used":                     {&attribute, slices.Concat(half, full), nil, false, nil, []string{"h0"}, "Full 0/1, Half 1/2"},
		"no partition":                 {&attribute, slices.Concat(half, whole), nil, false, nil, nil, "Half 2/2"},
		"by default":                   {nil, half, full, false, byDefault, nil, "Full 1/1, Half 2/2"},
		"a declaration excludes those": {&attribute, half, full, false, byDefault, nil, "Half 2/2"},
		"no attribute":                 {nil, half, full, false, nil, nil, ""},
		"without a type": {&attribute, slices.Concat(half, untyped), nil, false, nil, nil,
			`PartitionTypeMissing: device "u" in pool gpu.example.com/p does not carry partition type attribute "gpu.example.com/profile"`},
		"without counters": {&attribute, half, nil, true, nil, nil,
			"PartitionTypeMissing: pool gpu.example.com/p declares partitionTypeAttribute but publishes no sharedCounters"},
		"different costs": {&attribute, slices.Concat(half, typed("Half", "30Gi", "h2")), nil, false, nil, nil,
			`PartitionCostMismatch: devices of partition type "Half" in pool gpu.example.com/p consume different counters`},
	} {
		devices, undeclared := slice("p", 1, 3), slice("p", 1, 3)
		devices.Spec.PartitionTypeAttribute = test.named
		devices.Spec.Devices, undeclared.Spec.Devices = test.devices, test.undeclared
		s := snapshot{slices: []*resourceapi.ResourceSlice{devices, undeclared, counters}, claims: []*resourceapi.ResourceClaim{claim("p", test.used...)}, partitionTypes: true}
		if test.uncounted {
			s.slices[2] = slice("p", 1, 3)
		}
		status, _ := answer(&resourcealpha.ResourcePoolStatusRequestSpec{Driver: driver, DefaultPartitionTypeAttribute: test.byDefault}, s, time.Now())
		var got []string
		for _, p := range status.Pools[0].PartitionSummary {
			got = append(got, fmt.Sprintf("%s %d/%d", p.Type, *p.Allocatable, *p.Total))
			if p.Attribute != string(attribute) {
				t.Errorf("%s: attribute %s", name, p.Attribute)
			}
		}
		if text := strings.Join(got, ", ") + ptr.Deref(status.Pools[0].ValidationError, ""); text != test.want {
			t.Errorf("%s: %s, want %s", name, text, test.want)
		}
	}
}

// The attribute of a device may be without its domain, if that is the driver. One with it counts first.
func TestAttributeOfADevice(t *testing.T) {
	text := func(s string) resourceapi.DeviceAttribute { return resourceapi.DeviceAttribute{StringValue: &s} }
	for name, test := range map[string]struct {
		attributes map[resourceapi.QualifiedName]resourceapi.DeviceAttribute
		want       string // "": it has none
	}{
		"without a domain":   {map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"profile": text("bare")}, "bare"},
		"with a domain":      {map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"gpu.example.com/profile": text("full")}, "full"},
		"both":               {map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"profile": text("bare"), "gpu.example.com/profile": text("full")}, "full"},
		"of another domain":  {map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"other.example.com/profile": text("other")}, ""},
		"of another type":    {map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"profile": {IntValue: new(int64(1))}}, ""},
		"without attributes": {nil, ""},
	} {
		if got, ok := stringOf(driver, &resourceapi.Device{Attributes: test.attributes}, driver+"/profile"); got != test.want || ok != (test.want != "") {
			t.Errorf("%s: %q, %v; want %q", name, got, ok, test.want)
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

// newCluster returns a cluster with a request about a pool of one slice of several, and the feature
// gate on or off.
func newCluster(t *testing.T, of int64, gate string) *controllertest.Cluster {
	t.Helper()
	c := controllertest.New(t, slice("p", 1, of, "d"), &resourcealpha.ResourcePoolStatusRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "r"}, Spec: resourcealpha.ResourcePoolStatusRequestSpec{Driver: driver},
	})
	c.Fake.Resources = []*metav1.APIResourceList{{
		GroupVersion: resourcealpha.SchemeGroupVersion.String(), APIResources: []metav1.APIResource{{Name: "resourcepoolstatusrequests"}},
	}, {GroupVersion: resourceapi.SchemeGroupVersion.String(), APIResources: []metav1.APIResource{{Name: "devicetaintrules"}}}}
	gates, err := feature.Parse([]string{string(feature.DRAResourcePoolStatus) + "=" + gate})
	if err != nil {
		t.Fatal(err)
	}
	c.Env.Features = gates
	return c
}

// An answer that could not be written is an error, and counts as processed like the next one.
func TestRefusedAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, "true")
		refused := false
		c.Fake.PrependReactor("update", "resourcepoolstatusrequests", func(clienttesting.Action) (bool, runtime.Object, error) {
			if refused {
				return false, nil, nil
			}
			refused = true
			return true, nil, apierrors.NewInternalError(errors.New("refused"))
		})
		registry := prometheus.NewRegistry()
		c.Env.Metrics = registry
		c.Run(Descriptor())
		time.Sleep(time.Minute)
		synctest.Wait()
		const want = `
# HELP resourcepoolstatusrequest_controller_request_processing_errors_total [ALPHA] Total number of errors encountered while processing ResourcePoolStatusRequests
# TYPE resourcepoolstatusrequest_controller_request_processing_errors_total counter
resourcepoolstatusrequest_controller_request_processing_errors_total{driver_name="gpu.example.com"} 1
# HELP resourcepoolstatusrequest_controller_requests_processed_total [ALPHA] Total number of ResourcePoolStatusRequests processed
# TYPE resourcepoolstatusrequest_controller_requests_processed_total counter
resourcepoolstatusrequest_controller_requests_processed_total{driver_name="gpu.example.com"} 2
`
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want),
			"resourcepoolstatusrequest_controller_request_processing_errors_total", "resourcepoolstatusrequest_controller_requests_processed_total"); err != nil {
			t.Error(err)
		}
	})
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
				c := newCluster(t, test.slices, test.gate)
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
