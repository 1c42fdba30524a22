package dynamicresources_test

import (
	"strings"
	"testing"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/dynamicresources"
	"github.com/coracle-io/coracle/internal/resource/resourcetest"
)

type claimStatusCase struct{ before, status, want string }

const allocated = `allocation: {devices: {results: [{request: r, driver: d.example, pool: p, device: a}]}}`

func TestAllocationStatus(t *testing.T) {
	checkClaimStatus(t, map[string]claimStatusCase{
		"nothing":   {},
		"allocated": {status: "{" + allocated + "}"},
		"allocated alternative": {status: `{allocation: {devices: {results: [{request: f/one, driver: d.example, pool: p, device: a,
			shareID: 3e4a2d5c-7b2f-4d3a-9d1e-1f2a3b4c5d6e}]}}}`},
		"released": {before: "{" + allocated + ", devices: [{driver: d.example, pool: p, device: a}]}",
			status: `{devices: [{driver: d.example, pool: p, device: a}]}`},
		"results": {
			status: `{allocation: {devices: {results: [{request: r/one, pool: "", driver: "", device: A_, shareID: x}, {request: a/b/c, driver: d, pool: p, device: a,
				tolerations: [{operator: Exists, value: v}], bindingConditions: [c]}]}, nodeSelector: {nodeSelectorTerms: []}}}`,
			want: `status.allocation.devices.results[0].request: Invalid value: "r/one": must be the name of a request
status.allocation.devices.results[0].driver: Required value
status.allocation.devices.results[0].pool: Required value
status.allocation.devices.results[0].device: Invalid value: "A_"
status.allocation.devices.results[0].shareID: Invalid value: "x": error validating uid: invalid UUID length: 1
status.allocation.devices.results[1].request: Invalid value: "a/b/c": must be the name of a request
status.allocation.devices.results[1].bindingFailureConditions: Invalid value: null: bindingFailureConditions are required
status.allocation.devices.results[1].tolerations[0].value: Invalid value: "v": must be empty for operator
status.allocation.nodeSelector.nodeSelectorTerms: Required value: must have at least one node selector term`,
		},
		"configurations": {
			status: `{allocation: {devices: {config: [{source: "", requests: [x]}, {source: Nobody, opaque: {driver: d, parameters: 7}}]}}}`,
			want: `status.allocation.devices.config[0].source: Required value
status.allocation.devices.config[0].requests[0]: Invalid value: "x": must be the name of a request
status.allocation.devices.config[0].opaque: Required value
status.allocation.devices.config[1].source: Unsupported value: "Nobody": supported values: "FromClaim", "FromClass"
status.allocation.devices.config[1].opaque.parameters: Invalid value: "<value omitted>": must be a valid JSON object`,
		},
		"changed": {
			before: "{" + allocated + "}", status: strings.Replace("{"+allocated+"}", "device: a", "device: b", 1),
			want: "status.allocation: Invalid value: null: field cannot be modified once set",
		},
	})
}

func TestClaimStatus(t *testing.T) {
	checkClaimStatus(t, map[string]claimStatusCase{
		"consumers": {
			status: `{reservedFor: [{resource: pods, name: a, uid: u}, {uid: u}]}`,
			want: `status.reservedFor[1].resource: Required value
status.reservedFor[1].name: Required value
status.reservedFor[1]: Duplicate value: "u"
status.reservedFor: Forbidden: may not be specified when`,
		},
		"device status": {
			status: "{" + allocated + `, devices: [{driver: d.example, pool: p, device: a, data: 1, conditions: [{type: T, status: Maybe}],
				networkData: {ips: [10.0.0.1/8, 10.0.0.1/8, 10.0.0.1]}}, {driver: d.example, pool: p, device: b}]}`,
			want: `status.devices[0].conditions[0].status: Unsupported value: "Maybe"
status.devices[0].conditions[0].lastTransitionTime: Required value
status.devices[0].conditions[0].reason: Required value
status.devices[0].data: Invalid value: "<value omitted>": must be a valid JSON object
status.devices[0].networkData.ips[2]: Invalid value: "10.0.0.1"
status.devices[0].networkData.ips[1]: Duplicate value: "10.0.0.1/8"
status.devices[1]: Invalid value: {"Driver":"d.example","Pool":"p","Device":"b","ShareID":""}: must be an allocated device in the claim`,
		},
	})
}

// checkClaimStatus writes a status over another one, before, of a claim with
// the request r and the request f, which has the alternative one. It compares
// all errors, in order, with the beginnings in the lines of want.
func checkClaimStatus(t *testing.T, cases map[string]claimStatusCase) {
	t.Helper()
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			old := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "n", ResourceVersion: "1"}}
			old.Spec.Devices.Requests = []resourcev1.DeviceRequest{
				{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "c"}},
				{Name: "f", FirstAvailable: []resourcev1.DeviceSubRequest{{Name: "one", DeviceClassName: "c"}}},
			}
			claim := old.DeepCopy()
			for status, text := range map[*resourcev1.ResourceClaimStatus]string{&old.Status: test.before, &claim.Status: test.status} {
				if err := yaml.Unmarshal([]byte(strings.ReplaceAll(text, "\t", " ")), status); err != nil {
					t.Fatal(err)
				}
			}
			r := dynamicresources.ResourceClaims()
			errs := resourcetest.BeforeSubresourceUpdate(r, r.Subresource("status"), &resource.RequestContext{Now: time.Unix(0, 0)}, claim, old)
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
