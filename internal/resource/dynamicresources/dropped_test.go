package dynamicresources_test

import (
	"strings"
	"testing"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/dynamicresources"
	"github.com/coracle-io/coracle/internal/resource/resourcetest"
)

// TestDropped checks that the fields of disabled features are dropped on
// create.
func TestDropped(t *testing.T) {
	const slice = `{driver: d.example, pool: {name: p, resourceSliceCount: 1}, perDeviceNodeSelection: true, devices: [{name: d, allNodes: true,
		bindsToNode: true, bindingConditions: [a], bindingFailureConditions: [b], taints: [{key: k, effect: NoSchedule}],
		allowMultipleAllocations: true, capacity: {m: {value: 4, requestPolicy: {default: 1, validValues: [1]}}},
		consumesCounters: [{counterSet: c, counters: {x: {value: 1}}}]}]}`
	for gates, gone := range map[string]string{
		"":                                      "",
		"-DRAPartitionableDevices":              "perDeviceNodeSelection allNodes consumesCounters",
		"-DRADeviceTaints -DRADeviceTaintRules": "taints",
		"-DRADeviceBindingConditions":           "bindsToNode bindingConditions bindingFailureConditions",
		"-DRAConsumableCapacity -DRAFractionalCapacityRange": "allowMultipleAllocations requestPolicy",
	} {
		s := &resourcev1.ResourceSlice{}
		s.Name = "s"
		if err := yaml.Unmarshal([]byte(strings.ReplaceAll(slice, "\t", " ")), &s.Spec); err != nil {
			t.Fatal(err)
		}
		resourcetest.BeforeCreate(dynamicresources.ResourceSlices(), &resource.RequestContext{Now: time.Unix(0, 0), Features: withGates(t, gates)}, s)
		raw, err := yaml.Marshal(s.Spec)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range strings.Fields("perDeviceNodeSelection allNodes consumesCounters taints bindsToNode bindingConditions bindingFailureConditions allowMultipleAllocations requestPolicy") {
			there, want := strings.Contains(string(raw), name+":"), !strings.Contains(" "+gone+" ", " "+name+" ")
			if there != want {
				t.Errorf("with %s, %s is there: %t", gates, name, there)
			}
		}
	}
}

// TestDroppedFromSlices checks that each field of a disabled feature is dropped from new slices
// and from updates, and that a slice which has it can be updated.
func TestDroppedFromSlices(t *testing.T) {
	const start = `driver: d.example, pool: {name: p, resourceSliceCount: 1}`
	for field, test := range map[string]struct {
		gates, rest string
		fails       bool // without the field
	}{
		"taints":                 {"-DRADeviceTaints -DRADeviceTaintRules", `nodeName: n, devices: [{name: d, taints: [{key: k, effect: NoSchedule}]}]`, false},
		"consumesCounters":       {"-DRAPartitionableDevices", `nodeName: n, devices: [{name: d, consumesCounters: [{counterSet: c, counters: {x: {value: 1}}}]}]`, false},
		"sharedCounters":         {"-DRAPartitionableDevices", `nodeName: n, sharedCounters: [{name: c, counters: {x: {value: 1}}}]`, false},
		"perDeviceNodeSelection": {"-DRAPartitionableDevices", `perDeviceNodeSelection: true, devices: [{name: d, nodeName: n}]`, true},
		"bindingConditions": {
			"-DRADeviceBindingConditions", `nodeName: n, devices: [{name: d, bindsToNode: true, bindingConditions: [a], bindingFailureConditions: [b]}]`, false,
		},
		"requestPolicy": {
			"-DRAConsumableCapacity -DRAFractionalCapacityRange",
			`nodeName: n, devices: [{name: d, allowMultipleAllocations: true, capacity: {m: {value: 4, requestPolicy: {default: 1, validRange: {min: 1}}}}}]`, false,
		},
		"strings":                  {"", `nodeName: n, devices: [{name: d, attributes: {a: {strings: [x, z]}}}]`, true},
		"partitionTypeAttribute":   {"", `nodeName: n, partitionTypeAttribute: d.example/type, sharedCounters: [{name: c, counters: {x: {value: 1}}}]`, false},
		"nodeAllocatableResources": {"", `nodeName: n, devices: [{name: d, nodeAllocatableResources: {cpu: {mapping: {deviceMultiplier: 1}}}}]`, false},
	} {
		t.Run(field, func(t *testing.T) {
			parse := func(spec string) *resourcev1.ResourceSlice {
				s := &resourcev1.ResourceSlice{}
				s.Name, s.ResourceVersion = "s", "1"
				if err := yaml.Unmarshal([]byte(`{`+start+`, `+spec+`}`), &s.Spec); err != nil {
					t.Fatal(err)
				}
				return s
			}
			has := func(s *resourcev1.ResourceSlice) bool {
				raw, err := yaml.Marshal(s.Spec)
				if err != nil {
					t.Fatal(err)
				}
				return strings.Contains(string(raw), field+":")
			}
			r, request := dynamicresources.ResourceSlices(), &resource.RequestContext{Now: time.Unix(0, 0), Features: withGates(t, test.gates)}
			fresh := parse(test.rest)
			fresh.ResourceVersion = ""
			if errs := resourcetest.BeforeCreate(r, request, fresh); has(fresh) || (len(errs) > 0) != test.fails {
				t.Errorf("a new slice has it: %t, %v", has(fresh), errs)
			}
			changed := parse(test.rest)
			if errs := resourcetest.BeforeUpdate(r, request, changed, parse(`nodeName: n, devices: [{name: d}]`)); has(changed) || (len(errs) > 0) != test.fails {
				t.Errorf("an update that sets it has it: %t, %v", has(changed), errs)
			}
			kept := parse(test.rest)
			if errs := resourcetest.BeforeUpdate(r, request, kept, parse(test.rest)); !has(kept) || len(errs) > 0 {
				t.Errorf("an update that keeps it has it: %t, %v", has(kept), errs)
			}
		})
	}
}

const derivedClaim = `{devices: {requests: [{name: r, exactly: {deviceClassName: c, tolerations: [{key: k, operator: Exists}], capacity: {requests: {m: 1}},
	derivedAttributes: [{name: x.example/a, expression: "device.driver"}, {name: x.example/b, expression: "1 +"}, {name: a, expression: "{1: 2}"}, {}]}}],
	constraints: [{matchAttribute: x.example/a}, {matchAttribute: x.example/b}, {distinctAttribute: x.example/c}]}}`

// TestDerivedAttributes checks that derived attributes are validated if the
// feature is enabled and dropped otherwise, and that an update which only adds
// dropped fields changes nothing.
func TestDerivedAttributes(t *testing.T) {
	fresh := func() *resourcev1.ResourceClaim {
		c := &resourcev1.ResourceClaim{}
		c.Name, c.Namespace = "c", "n"
		if err := yaml.Unmarshal([]byte(strings.ReplaceAll(derivedClaim, "\t", " ")), &c.Spec); err != nil {
			t.Fatal(err)
		}
		r := dynamicresources.ResourceClaims()
		r.Hub().Default(c)
		return c
	}
	request := func(gates string) *resource.RequestContext {
		return &resource.RequestContext{Now: time.Unix(0, 0), Features: withGates(t, gates)}
	}
	r := dynamicresources.ResourceClaims()
	errs := resourcetest.BeforeCreate(r, request("DRADerivedAttributes"), fresh())
	p := "spec.devices.requests[0].exactly.derivedAttributes"
	want := []string{
		p + `[1].expression: Invalid value: "1 +": compilation failed`,
		p + `[2].name: Invalid value: "a": a fully qualified name must be`,
		p + `[2].name: Invalid value: "a": must be referenced by at least one matchAttribute or distinctAttribute constraint targeting this request`,
		p + `[2].expression: Invalid value: "{1: 2}": must evaluate to a primitive scalar`,
		p + `[3].name: Required value`,
		p + `[3].expression: Required value`,
	}
	for i, err := range errs {
		if i >= len(want) || !strings.HasPrefix(err.Error(), want[i]) {
			t.Errorf("unexpected: %v", err)
		}
	}
	if len(errs) != len(want) {
		t.Errorf("%d errors, want %d", len(errs), len(want))
	}

	c := fresh()
	if errs := resourcetest.BeforeCreate(r, request("-DRAConsumableCapacity -DRAFractionalCapacityRange -DRADeviceTaints -DRADeviceTaintRules"), c); len(errs) != 1 || errs[0].Field != "spec.devices.constraints[2].matchAttribute" {
		t.Errorf("%v, want what the third constraint compares to be missing", errs)
	}
	exactly := c.Spec.Devices.Requests[0].Exactly
	if exactly.DerivedAttributes != nil || exactly.Tolerations != nil || exactly.Capacity != nil {
		t.Errorf("%v is kept", exactly)
	}
	old := fresh()
	old.ResourceVersion = "1"
	old.Spec.Devices.Requests[0].Exactly.DerivedAttributes = nil
	c = fresh()
	c.ResourceVersion = "1"
	if errs := resourcetest.BeforeUpdate(r, request(""), c, old); len(errs) > 0 {
		t.Error(errs)
	}
}

// TestDroppedFromStatus checks that fields of disabled features are dropped
// from a claim's status unless the stored claim has them.
func TestDroppedFromStatus(t *testing.T) {
	const status = `{allocation: {allocationTimestamp: "2026-01-01T00:00:00Z", devices: {results: [{request: r, driver: d.example, pool: p, device: a,
		shareID: 3e4a2d5c-7b2f-4d3a-9d1e-1f2a3b4c5d6e, consumedCapacity: {m: 1}, tolerations: [{operator: Exists}],
		bindingConditions: [a], bindingFailureConditions: [b]}]}}, devices: [{driver: d.example, pool: p, device: a,
		shareID: 3e4a2d5c-7b2f-4d3a-9d1e-1f2a3b4c5d6e}]}`
	const off = "-DRAConsumableCapacity -DRAFractionalCapacityRange -DRADeviceTaints -DRADeviceTaintRules -DRADeviceBindingConditions"
	for name, test := range map[string]struct {
		gates string
		again bool // the stored claim has the same status
		want  int  // how many of the fields are kept
	}{
		"on":            {want: 7},
		"off":           {gates: off},
		"as before":     {gates: off, again: true, want: 7},
		"taints alone":  {gates: "-DRADeviceTaints -DRADeviceTaintRules", want: 6},
		"sharing alone": {gates: "-DRAConsumableCapacity -DRAFractionalCapacityRange", want: 4},
	} {
		old := &resourcev1.ResourceClaim{}
		old.Name, old.Namespace, old.ResourceVersion = "c", "n", "1"
		old.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "c"}}}
		claim := old.DeepCopy()
		for _, s := range map[bool][]*resourcev1.ResourceClaimStatus{false: {&claim.Status}, true: {&claim.Status, &old.Status}}[test.again] {
			if err := yaml.Unmarshal([]byte(strings.ReplaceAll(status, "\t", " ")), s); err != nil {
				t.Fatal(err)
			}
		}
		r := dynamicresources.ResourceClaims()
		resourcetest.BeforeSubresourceUpdate(r, r.Subresource("status"), &resource.RequestContext{Now: time.Unix(0, 0), Features: withGates(t, test.gates)}, claim, old)
		raw, err := yaml.Marshal(claim.Status)
		if err != nil {
			t.Fatal(err)
		}
		got := 0
		for _, field := range []string{"allocationTimestamp", "shareID", "consumedCapacity", "tolerations", "bindingConditions", "bindingFailureConditions"} {
			got += strings.Count(string(raw), field+":")
		}
		if got != test.want {
			t.Errorf("%s: %d fields, want %d in %s", name, got, test.want, raw)
		}
	}
}

// TestShareOfAStoredClaim checks that a driver can say something of a device whose share was
// allocated before the feature was disabled.
func TestShareOfAStoredClaim(t *testing.T) {
	const plain = `{devices: {requests: [{name: r, exactly: {deviceClassName: c}}]}}`
	const share = `driver: d.example, pool: p, device: a, shareID: 3e4a2d5c-7b2f-4d3a-9d1e-1f2a3b4c5d6e`
	const allocation = `allocation: {devices: {results: [{request: r, ` + share + `}]}}`
	for name, test := range map[string]struct {
		spec, before string
		want         int // how many shares the new status names
	}{
		"no share":              {plain, `{}`, 0},
		"asks for one":          {`{devices: {requests: [{name: r, exactly: {deviceClassName: c, capacity: {requests: {m: 1}}}}]}}`, `{}`, 2},
		"asks by alternatives":  {`{devices: {requests: [{name: r, firstAvailable: [{name: s, deviceClassName: c, capacity: {requests: {m: 1}}}]}]}}`, `{}`, 2},
		"asks for several ones": {`{devices: {requests: [{name: r, exactly: {deviceClassName: c}}], constraints: [{distinctAttribute: x.example/a}]}}`, `{}`, 2},
		"has one":               {plain, `{` + allocation + `}`, 2},
		"has told of one":       {plain, `{devices: [{` + share + `}]}`, 2},
	} {
		old := &resourcev1.ResourceClaim{}
		old.Name, old.Namespace, old.ResourceVersion = "c", "n", "1"
		if err := yaml.Unmarshal([]byte(test.spec), &old.Spec); err != nil {
			t.Fatal(err)
		}
		claim := old.DeepCopy()
		for raw, s := range map[string]*resourcev1.ResourceClaimStatus{test.before: &old.Status, `{` + allocation + `, devices: [{` + share + `}]}`: &claim.Status} {
			if err := yaml.Unmarshal([]byte(raw), s); err != nil {
				t.Fatal(err)
			}
		}
		r := dynamicresources.ResourceClaims()
		request := &resource.RequestContext{Now: time.Unix(0, 0), Features: withGates(t, "-DRAConsumableCapacity -DRAFractionalCapacityRange")}
		resourcetest.BeforeSubresourceUpdate(r, r.Subresource("status"), request, claim, old)
		raw, err := yaml.Marshal(claim.Status)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(string(raw), "shareID:"); got != test.want {
			t.Errorf("%s: %d shares, want %d in %s", name, got, test.want, raw)
		}
	}
}
