package dynamicresources_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/yaml"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/dynamicresources"
	"github.com/coracle-io/coracle/internal/resource/resourcetest"
)

type sliceCase struct{ gates, spec, want string }

func TestSliceRules(t *testing.T) {
	checkSlices(t, map[string]sliceCase{
		"good": {},
		"all optional fields": {spec: `{devices: [{name: d, attributes: {a: {int: 1}, x.example/b: {version: 1.2.3-rc.1}},
			allowMultipleAllocations: true,
			capacity: {m: {value: 10, requestPolicy: {default: 2, validRange: {min: 2, max: 8, step: 2}}}},
			taints: [{key: k, effect: NoSchedule}], consumesCounters: [{counterSet: c, counters: {x: {value: 1}}}]}]}`},
		"nodes": {
			spec: `{nodeName: "", allNodes: true, perDeviceNodeSelection: false, nodeSelector: {nodeSelectorTerms: []}}`,
			want: `spec.nodeName: Invalid value: "": must be either unset or set to a non-empty string
spec.nodeSelector.nodeSelectorTerms: Required value: must have at least one node selector term
spec.nodeSelector.nodeSelectorTerms: Invalid value: []: must have exactly one node selector term
spec.perDeviceNodeSelection: Invalid value: false: must be either unset or set to true
spec: Invalid value: "{` + "`nodeSelector`, `allNodes`" + `}": exactly one of`,
		},
		"names": {
			spec: `{devices: [{name: d, attributes: {1: {int: 1}, /b: {int: 1}}, capacity: {a/: {value: 1}}}, {name: d}]}`,
			want: `spec.devices[0].attributes: Invalid value: "": the domain must not be empty
spec.devices[0].attributes: Invalid value: "1": a valid C identifier
spec.devices[0].capacity: Invalid value: "": the name must not be empty
spec.devices[1]: Duplicate value: "d"`,
		},
		"nodes of devices": {
			spec: `{nodeName: null, perDeviceNodeSelection: true, devices: [{name: d}, {name: e, nodeName: n, allNodes: true}]}`,
			want: "spec.devices[0]: Required value: exactly one of `nodeName`\nspec.devices[1]: Invalid value: \"{`nodeName`, `allNodes`}\": exactly one",
		},
	})
}

func TestDeviceRules(t *testing.T) {
	checkSlices(t, map[string]sliceCase{
		"attributes": {
			spec: `{devices: [{name: d, attributes: {a: {}, b: {int: 1, bool: true}, c: {version: "1.02"}}}]}`,
			want: `spec.devices[0].attributes[a]: Invalid value: "": exactly one value must be specified
spec.devices[0].attributes[b]: Invalid value: {"IntValue":1,"BoolValue":true,
spec.devices[0].attributes[c].version: Invalid value: "1.02": must be a string compatible with semver.org spec 2.0.0`,
		},
		"taints": {
			spec: `{devices: [{name: d, taints: [{}, {key: k, effect: Never}]}]}`,
			want: `spec.devices[0].taints[0].key: Invalid value: "": name part must be non-empty
spec.devices[0].taints[0].key: Invalid value: "": name part must consist of
spec.devices[0].taints[0].effect: Required value
spec.devices[0].taints[1].effect: Unsupported value: "Never": supported values: "NoExecute", "NoSchedule", "None"`,
		},
		"capacity": {
			spec: `{devices: [{name: d, capacity: {m: {value: 1, requestPolicy: {default: 1}}}},
				{name: e, allowMultipleAllocations: true, capacity: {
					m: {value: 4, requestPolicy: {default: 3, validValues: [2, 1, 8]}},
					r: {value: 4, requestPolicy: {default: 3, validRange: {min: 2, step: 2}}},
					s: {value: 4, requestPolicy: {validRange: {min: 2}}}}}]}`,
			want: `spec.devices[0].capacity[m].requestPolicy: Forbidden: allowMultipleAllocations must be true
spec.devices[1].capacity[m].requestPolicy.validValues[1]: Invalid value: "1": values must be sorted in ascending order
spec.devices[1].capacity[m].requestPolicy.validValues[2]: Invalid value: "8": option is larger than capacity value: 4
spec.devices[1].capacity[m].requestPolicy.validValues: Invalid value: "3": default value is not valid according to the requestPolicy
spec.devices[1].capacity[r].requestPolicy.validRange.step: Invalid value: "3": value is not a multiple of a given step (2) from (2)
spec.devices[1].capacity[s].requestPolicy.default: Required value: required when validRange is defined`,
		},
		"binding conditions": {
			spec: `{devices: [{name: d, bindingConditions: [a, a]}, {name: e, bindingConditions: [a], bindingFailureConditions: [a]}]}`,
			want: `spec.devices[0].bindingConditions[1]: Duplicate value: "a"
spec.devices[0].bindingFailureConditions: Invalid value: null: bindingFailureConditions are required to use bindingConditions
spec.devices[1].bindingFailureConditions[0]: Invalid value: "a": bindingFailureConditions must not overlap with bindingConditions`,
		},
	})
}

func TestCounterRules(t *testing.T) {
	checkSlices(t, map[string]sliceCase{
		"counters": {
			spec: `{devices: null, sharedCounters: [{}, {name: c, counters: {X: {value: 1}}}, {name: c, counters: {x: {value: 1}}}]}`,
			want: `spec.sharedCounters[0].name: Required value
spec.sharedCounters[0].counters: Required value
spec.sharedCounters[1].counters: Invalid value: "X": a lowercase RFC 1123 label
spec.sharedCounters[2]: Duplicate value: "c"`,
		},
		"counters and devices": {
			spec: `{sharedCounters: [{name: c, counters: {x: {value: 1}}}]}`,
			want: "spec: Invalid value: \"\": only one of `sharedCounters` or `devices` is allowed",
		},
	})
}

func TestGatedSliceRules(t *testing.T) {
	checkSlices(t, map[string]sliceCase{
		"lists": {
			gates: "DRAListTypeAttributes",
			spec:  `{devices: [{name: d, attributes: {a: {strings: []}, b: {ints: [1], bools: [true]}, c: {versions: [1.2.3, v1]}, d: {bools: [false]}}}]}`,
			want: `spec.devices[0].attributes[a].strings: Invalid value: []: must not be empty if specified
spec.devices[0].attributes[b]: Invalid value: {"IntValue":null,
spec.devices[0].attributes[c].versions[1]: Invalid value: "v1": must be a string compatible with semver.org spec 2.0.0`,
		},
		"skipped node operations": {
			gates: "DRAOptionalNodeOperations",
			spec:  `{skipNodeOperations: [NodePrepareResources, NodePrepareResources, Foo]}`,
			want: `spec.skipNodeOperations[2]: Unsupported value: "Foo": supported values: "*", "NodePrepareResources", "NodeUnprepareResources"
spec.skipNodeOperations[1]: Duplicate value: "NodePrepareResources"
spec.skipNodeOperations: Invalid value: ["NodePrepareResources","NodePrepareResources","Foo"]: NodePrepareResources cannot be skipped`,
		},
		"compatibility groups": {
			gates: "DRADeviceCompatibilityGroups",
			spec:  `{devices: [{name: d, consumesCounters: [{counterSet: c, counters: {x: {value: 1}}, compatibilityGroups: [A, A]}]}]}`,
			want: `spec.devices[0].consumesCounters[0].compatibilityGroups[0]: Invalid value: "A": a lowercase RFC 1123 label
spec.devices[0].consumesCounters[0].compatibilityGroups[1]: Invalid value: "A": a lowercase RFC 1123 label
spec.devices[0].consumesCounters[0].compatibilityGroups[1]: Duplicate value: "A"`,
		},
		"partition types": {
			gates: "DRAPartitionableDevicesType DRAResourcePoolStatus",
			spec: `{partitionTypeAttribute: d.example/type, devices: [
				{name: a, attributes: {d.example/type: {string: Full}}, consumesCounters: [{counterSet: c, counters: {x: {value: 2}}}]},
				{name: b, attributes: {d.example/type: {string: Full}}, consumesCounters: [{counterSet: c, counters: {x: {value: 1}}}]},
				{name: c, consumesCounters: [{counterSet: c, counters: {x: {value: 1}}}]}, {name: d},
				{name: e, attributes: {type: {string: Half}}, consumesCounters: [{counterSet: c, counters: {x: {value: 1}}}]},
				{name: f, attributes: {type: {int: 1}}, consumesCounters: [{counterSet: c, counters: {x: {value: 1}}}]}]}`,
			want: `spec.devices[1].consumesCounters: Invalid value: [
spec.devices[2].attributes[d.example/type]: Required value
spec.devices[5].attributes[d.example/type]: Invalid value: {"IntValue":1,`,
		},
		"partition types with a short name": {
			gates: "DRAPartitionableDevicesType DRAResourcePoolStatus",
			spec:  `{partitionTypeAttribute: type, devices: [{name: a, consumesCounters: [{counterSet: c, counters: {x: {value: 2}}}]}]}`,
			want:  `spec.partitionTypeAttribute: Invalid value: "type": a fully qualified name must be`,
		},
		"many values": {
			gates: "DRAListTypeAttributes",
			spec:  `{devices: [{name: d, attributes: {a: {ints: [` + strings.Repeat("1,", 48) + `]}, b: {int: 1}}}]}`,
			want:  `spec.devices[0]: Invalid value: 49: the total number of attribute values must not exceed 48`,
		},
		"node allocatable resources": {
			gates: "DRANodeAllocatableResources",
			spec: `{devices: [{name: d, capacity: {m: {value: 1}}, nodeAllocatableResources: {
				cpu: {}, memory: {mapping: {capacityKey: q, deviceMultiplier: 0}}, d.example/x: {overhead: {}},
				hugepages-2Mi: {mapping: {capacityKey: m, capacityMultiplier: 2}, overhead: {perPod: -1}}}}]}`,
			want: `spec.devices[0].nodeAllocatableResources[cpu]: Required value: at least one of
spec.devices[0].nodeAllocatableResources[d.example/x]: Invalid value: "d.example/x": must be a node allocatable resource name
spec.devices[0].nodeAllocatableResources[d.example/x].overhead: Invalid value: "": at least one of
spec.devices[0].nodeAllocatableResources[hugepages-2Mi].overhead.perPod: Invalid value: "-1": must be non-negative
spec.devices[0].nodeAllocatableResources[memory].mapping: Invalid value: "{` + "`capacityKey`, `deviceMultiplier`" + `}": exactly one of
spec.devices[0].nodeAllocatableResources[memory].mapping.capacityKey: Not found: "q"
spec.devices[0].nodeAllocatableResources[memory].mapping.capacityMultiplier: Required value
spec.devices[0].nodeAllocatableResources[memory].mapping.deviceMultiplier: Invalid value: "0": must be positive`,
		},
		"fields of disabled features": {
			spec: `{partitionTypeAttribute: x, skipNodeOperations: [Foo], devices: [{name: d, nodeAllocatableResources: {x: {}},
				attributes: {a: {int: 1, strings: []}}}]}`,
		},
	})
}

// checkSlices creates valid slices of one device with the fields of each case
// added to their spec, and compares all errors, in order, with the beginnings
// in the lines of want. gates are feature gates to enable.
func checkSlices(t *testing.T, cases map[string]sliceCase) {
	t.Helper()
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			features := withGates(t, test.gates)
			slice := &resourcev1.ResourceSlice{}
			slice.Name = "s"
			good := `{driver: d.example, nodeName: n, pool: {name: p, resourceSliceCount: 1}, devices: [{name: d}]}`
			for _, spec := range []string{good, test.spec} {
				if err := yaml.Unmarshal([]byte(strings.ReplaceAll(spec, "\t", " ")), &slice.Spec); err != nil {
					t.Fatal(err)
				}
			}
			r := dynamicresources.ResourceSlices()
			r.Hub().Default(slice)
			errs := resourcetest.BeforeCreate(r, &resource.RequestContext{Now: time.Unix(0, 0), Features: features}, slice)
			var want []string
			if test.want != "" {
				want = strings.Split(test.want, "\n")
			}
			for i, err := range errs {
				if i >= len(want) || !strings.HasPrefix(err.Error(), want[i]) {
					t.Errorf("unexpected: %s", err)
				}
			}
			if len(errs) != len(want) {
				t.Errorf("%d errors, want %d", len(errs), len(want))
			}
		})
	}
}

// TestTaintsAreDated checks that a taint without a time gets the time of the
// request.
func TestTaintsAreDated(t *testing.T) {
	r, now := dynamicresources.ResourceSlices(), time.Unix(1_800_000_000, 500)
	since := metav1.NewTime(now.AddDate(0, -1, 0))
	slice := &resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{Devices: []resourcev1.Device{{Name: "d", Taints: []resourcev1.DeviceTaint{
		{Key: "new", Effect: "NoSchedule"}, {Key: "old", Effect: "NoSchedule", TimeAdded: &since},
	}}}}}
	resourcetest.BeforeCreate(r, &resource.RequestContext{Now: now, Features: withGates(t, "DRADeviceTaints")}, slice)
	taints := slice.Spec.Devices[0].Taints
	if len(taints) != 2 || !taints[0].TimeAdded.Time.Equal(now.Truncate(time.Second)) || !taints[1].TimeAdded.Equal(&since) {
		t.Errorf("%+v", taints)
	}
}

// TestTimeOfARule checks that an update of the effect of a rule also sets its
// time, unless the user sets another time.
func TestTimeOfARule(t *testing.T) {
	r, now := dynamicresources.DeviceTaintRules(), time.Unix(1_800_000_000, 0)
	since, chosen := metav1.NewTime(now.AddDate(0, -1, 0)), metav1.NewTime(now.AddDate(0, -2, 0))
	rule := func(effect resourcev1.DeviceTaintEffect, added *metav1.Time) *resourcev1.DeviceTaintRule {
		return &resourcev1.DeviceTaintRule{Spec: resourcev1.DeviceTaintRuleSpec{Taint: resourcev1.DeviceTaint{Key: "k", Effect: effect, TimeAdded: added}}}
	}
	for name, test := range map[string]struct {
		next *resourcev1.DeviceTaintRule
		want time.Time
	}{
		"no change":    {rule("None", &since), since.Time},
		"no time":      {rule("None", nil), now},
		"effect":       {rule("NoExecute", &since), now},
		"both":         {rule("NoExecute", &chosen), chosen.Time},
		"another time": {rule("None", &chosen), chosen.Time},
	} {
		resourcetest.BeforeUpdate(r, &resource.RequestContext{Now: now}, test.next, rule("None", &since))
		if got := test.next.Spec.Taint.TimeAdded; !got.Time.Equal(test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// TestSlicesByPool checks that slices can be listed and watched by their pool.
func TestSlicesByPool(t *testing.T) {
	selectors := dynamicresources.ResourceSlices().FieldSelectors
	slice := &resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{Driver: "d.example", NodeName: new("n"), Pool: resourcev1.ResourcePool{Name: "p"}}}
	want := fields.Set{"spec.driver": "d.example", "spec.nodeName": "n", "spec.pool.name": "p"}
	if got := selectors.SelectableFields(slice); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := slices.Sorted(slices.Values(selectors.Fields)); !slices.Equal(got, slices.Sorted(maps.Keys(want))) {
		t.Errorf("%v are supported", got)
	}
}

// withGates returns the default features with some enabled or, after a minus
// sign, disabled.
func withGates(t *testing.T, gates string) *feature.Set {
	t.Helper()
	var entries []string
	for _, gate := range strings.Fields(gates) {
		name, off := strings.CutPrefix(gate, "-")
		entries = append(entries, fmt.Sprintf("%s=%t", name, !off))
	}
	features, err := feature.Parse(entries)
	if err != nil {
		t.Fatal(err)
	}
	return features
}

// TestWideBindingConditions checks that each condition is not compared with each.
func TestWideBindingConditions(t *testing.T) {
	d := resourcev1.Device{Name: "d"}
	for i := range 150_000 {
		d.BindingConditions = append(d.BindingConditions, "a"+strconv.Itoa(i))
		d.BindingFailureConditions = append(d.BindingFailureConditions, "b"+strconv.Itoa(i))
	}
	s := &resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{Driver: "d.example.com", AllNodes: new(true),
		Pool: resourcev1.ResourcePool{Name: "p", ResourceSliceCount: 1}, Devices: []resourcev1.Device{d}}}
	s.Name = "s"
	errs := resourcetest.BeforeCreate(dynamicresources.ResourceSlices(), &resource.RequestContext{}, s)
	if len(errs) != 2 { // too many of both
		t.Errorf("%d errors, want 2", len(errs))
	}
}
