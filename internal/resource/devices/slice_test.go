package devices_test

import (
	"strings"
	"testing"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/devices"
)

// Each case adds to the spec of a good slice of one device. What is wrong with
// it must be said, all of it, and by the right names.
func TestSliceRules(t *testing.T) {
	for name, test := range map[string]struct{ spec, want string }{
		"good": {},
		"good in every way": {spec: `{devices: [{name: d, attributes: {a: {int: 1}, x.example/b: {version: 1.2.3-rc.1}},
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
		"counters": {
			spec: `{devices: null, sharedCounters: [{}, {name: c, counters: {X: {value: 1}}}, {name: c, counters: {x: {value: 1}}}]}`,
			want: `spec.sharedCounters[0].name: Required value
spec.sharedCounters[0].counters: Required value
spec.sharedCounters[1].counters: Invalid value: "X": a lowercase RFC 1123 label
spec.sharedCounters[2]: Duplicate value: "c"`,
		},
		"counters beside devices": {
			spec: `{sharedCounters: [{name: c, counters: {x: {value: 1}}}]}`,
			want: "spec: Invalid value: \"\": only one of `sharedCounters` or `devices` is allowed",
		},
		"nodes of devices": {
			spec: `{nodeName: null, perDeviceNodeSelection: true, devices: [{name: d}, {name: e, nodeName: n, allNodes: true}]}`,
			want: "spec.devices[0]: Required value: exactly one of `nodeName`\nspec.devices[1]: Invalid value: \"{`nodeName`, `allNodes`}\": exactly one",
		},
		"binding conditions": {
			spec: `{devices: [{name: d, bindingConditions: [a, a]}, {name: e, bindingConditions: [a], bindingFailureConditions: [a]}]}`,
			want: `spec.devices[0].bindingConditions[1]: Duplicate value: "a"
spec.devices[0].bindingFailureConditions: Invalid value: null: bindingFailureConditions are required to use bindingConditions
spec.devices[1].bindingFailureConditions[0]: Invalid value: "a": bindingFailureConditions must not overlap with bindingConditions`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			slice := &resourcev1.ResourceSlice{}
			slice.Name = "s"
			good := `{driver: d.example, nodeName: n, pool: {name: p, resourceSliceCount: 1}, devices: [{name: d}]}`
			for _, spec := range []string{good, test.spec} {
				if err := yaml.Unmarshal([]byte(strings.ReplaceAll(spec, "\t", " ")), &slice.Spec); err != nil {
					t.Fatal(err)
				}
			}
			r := devices.ResourceSlices()
			r.Hub().Default(slice)
			errs := resource.BeforeCreate(r, &resource.Request{Now: time.Unix(0, 0)}, slice)
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
