package pod_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core/pod"
	"github.com/coracle-io/coracle/internal/resource/resourcetest"
)

type gatedCase struct {
	status string
	want   []string // the beginnings of the errors
}

// TestGatedStatus checks what a pod reports of a node's resources that it has
// by claims.
func TestGatedStatus(t *testing.T) {
	checkGatedStatuses(t, map[string]gatedCase{
		"claim": {
			status: `{nodeAllocatableResourceClaimStatuses: [{resourceClaimName: a, containers: [c], mapping: [{name: cpu, quantity: "1"}], overhead: [{name: memory, perPod: 1Mi}]}]}`,
		},
		"incomplete claim": {
			status: `{nodeAllocatableResourceClaimStatuses: [{containers: [c, c], mapping: [{}], overhead: [{perContainer: "-1"}, {name: cpu}]}]}`,
			want: []string{
				`status.nodeAllocatableResourceClaimStatuses[0].resourceClaimName: Required value`,
				`status.nodeAllocatableResourceClaimStatuses[0].containers[1]: Duplicate value: "c"`,
				`status.nodeAllocatableResourceClaimStatuses[0].mapping[0].name: Required value`,
				`status.nodeAllocatableResourceClaimStatuses[0].mapping[0].quantity: Required value`,
				`status.nodeAllocatableResourceClaimStatuses[0].overhead[0].name: Required value`,
				`status.nodeAllocatableResourceClaimStatuses[0].overhead[0].perContainer: Invalid value: "-1": must be non-negative`,
				`status.nodeAllocatableResourceClaimStatuses[0].overhead[1]: Invalid value: "": at least one of perPod or perContainer must be set`,
			},
		},
		"claim twice": {
			status: `{nodeAllocatableResourceClaimStatuses: [{resourceClaimName: a}, {resourceClaimName: a}]}`,
			want:   []string{`status.nodeAllocatableResourceClaimStatuses[1]: Duplicate value`},
		},
	})
}

func TestVolumeHealth(t *testing.T) {
	checkGatedStatuses(t, map[string]gatedCase{
		"health": {
			status: `{volumeHealth: [{name: v}, {name: w, healthConditions: [{status: Degraded, reason: Slow}, {status: Degraded, reason: Old}]}]}`,
		},
		"unknown health": {
			status: `{volumeHealth: [{healthConditions: [{status: Gone, reason: Lost}, {message: m}]}]}`,
			want: []string{
				`status.volumeHealth[0].name: Required value`,
				`status.volumeHealth[0].healthConditions[0].status: Unsupported value: "Gone"`,
				`status.volumeHealth[0].healthConditions[1].status: Required value`,
				`status.volumeHealth[0].healthConditions[1].reason: Required value`,
			},
		},
		"long texts": {
			status: `{volumeHealth: [{name: v, healthConditions: [{status: Degraded, reason: ` + strings.Repeat("R", 257) + `, message: ` + strings.Repeat("ü", 513) + `}]}]}`,
			want: []string{
				`status.volumeHealth[0].healthConditions[0].reason: Too long`,
				`status.volumeHealth[0].healthConditions[0].message: Too long`,
			},
		},
		"twice the same": {
			status: `{volumeHealth: [{name: v, healthConditions: [{status: DataLoss, reason: R}, {status: DataLoss, reason: R}]}, {name: v}]}`,
			want: []string{
				`status.volumeHealth[0].healthConditions[1]: Duplicate value`,
				`status.volumeHealth[1]: Duplicate value`,
			},
		},
		"too many": {
			status: `{volumeHealth: [{name: v, healthConditions: [` + strings.Repeat(`{status: DataLoss, reason: R},`, 17) + `]}]}`,
			want:   []string{`status.volumeHealth[0].healthConditions: Too many: 17: must have at most 16 items`},
		},
	})
}

// checkGatedStatuses writes each status while the features are on, and while
// they are off, when the fields are dropped.
func checkGatedStatuses(t *testing.T, cases map[string]gatedCase) {
	t.Helper()
	on, err := feature.Parse([]string{"CSIVolumeHealth=true", "DRANodeAllocatableResources=true"})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			r, old := pod.Pods(), storedPod(t, "{}")
			old.Status.QOSClass = podquery.QOSClass(old)
			next := old.DeepCopy()
			if err := yaml.Unmarshal([]byte(test.status), &next.Status); err != nil {
				t.Fatal(err)
			}
			dropped := next.DeepCopy()
			var got []string
			for _, err := range resourcetest.BeforeSubresourceUpdate(r, r.Subresource("status"), &resource.RequestContext{Now: noon, Namespace: "default", Features: on}, next, old) {
				got = append(got, err.Error())
			}
			if !slices.EqualFunc(got, test.want, strings.HasPrefix) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
			errs := resourcetest.BeforeSubresourceUpdate(r, r.Subresource("status"), &resource.RequestContext{Now: noon, Namespace: "default"}, dropped, old)
			if len(errs) > 0 || dropped.Status.VolumeHealth != nil || dropped.Status.NodeAllocatableResourceClaimStatuses != nil {
				t.Errorf("off: %v, %v", errs, dropped.Status)
			}
		})
	}
}

// TestStatusOfDisabledFeatures checks which fields of a status are dropped
// while their features are off, and which are kept because the pod has them.
func TestStatusOfDisabledFeatures(t *testing.T) {
	const full = `{resources: {requests: {cpu: "1"}}, allocatedResources: {cpu: "1"}, initContainerStatuses: [{name: i,
		allocatedResourcesStatus: [{name: example.com/gpu}], volumeMounts: [{name: v, mountPath: /v, volumeStatus: {image: {imageRef: r}}}]}]}`
	for name, test := range map[string]struct {
		gates, old, want string
	}{
		"on":           {"ImageVolumeWithDigest=true", `{}`, full},
		"digests off":  {"", `{}`, strings.ReplaceAll(full, ", volumeStatus: {image: {imageRef: r}}", "")},
		"digests kept": {"", full, full},
		"resources off": {"InPlacePodLevelResourcesVerticalScaling=false,ImageVolumeWithDigest=true", `{}`,
			strings.ReplaceAll(full, `resources: {requests: {cpu: "1"}}, allocatedResources: {cpu: "1"}, `, "")},
		"health off": {"ResourceHealthStatus=false,ResourceHealthStatusMessage=false", full, strings.ReplaceAll(full, "allocatedResourcesStatus: [{name: example.com/gpu}], ", "")},
	} {
		t.Run(name, func(t *testing.T) {
			features, err := feature.Parse(strings.Split(test.gates, ","))
			if err != nil {
				t.Fatal(err)
			}
			status := func(text string) *corev1.Pod {
				p := storedPod(t, `{initContainers: [{name: i, image: i, resources: {limits: {example.com/gpu: 1}}}]}`)
				p.Status.QOSClass = podquery.QOSClass(p)
				if err := yaml.Unmarshal([]byte(strings.ReplaceAll(text, "\t", " ")), &p.Status); err != nil {
					t.Fatal(err)
				}
				return p
			}
			r, next, want := pod.Pods(), status(full), status(test.want)
			request := &resource.RequestContext{Now: noon, Namespace: "default", Features: features}
			if errs := resourcetest.BeforeSubresourceUpdate(r, r.Subresource("status"), request, next, status(test.old)); len(errs) > 0 {
				t.Fatal(errs)
			}
			if diff := cmp.Diff(want.Status, next.Status); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
