package pod_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core/pod"
	"github.com/coracle-io/coracle/internal/resource/resourcetest"
)

type statusCase struct{ spec, old, next, want string }

const (
	ended     = `{containerStatuses: [{name: c, state: {terminated: {exitCode: 0}}}]}`
	failed    = `{containerStatuses: [{name: c, state: {terminated: {exitCode: 1}}}]}`
	runs      = `{containerStatuses: [{name: c, state: {running: {}}}]}`
	runsAgain = `status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state`
)

func TestContainerRestarts(t *testing.T) {
	checkStatusUpdates(t, map[string]statusCase{
		"always restarted":     {old: ended, next: runs},
		"never restarted":      {spec: `{restartPolicy: Never}`, old: failed, next: runs, want: runsAgain},
		"restarted on failure": {spec: `{restartPolicy: OnFailure}`, old: failed, next: runs},
		"restarted on success": {spec: `{restartPolicy: OnFailure}`, old: ended, next: runs, want: runsAgain},
		"container that never restarts": {
			spec: `{containers: [{name: c, image: i, restartPolicy: Never}]}`, old: failed, next: runs, want: runsAgain,
		},
		"by a rule": {
			spec: `{containers: [{name: c, image: i, restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [1]}}]}]}`,
			old:  failed, next: runs,
		},
		"ephemeral container": {
			old:  `{ephemeralContainerStatuses: [{name: d, state: {terminated: {exitCode: 1}}}]}`,
			next: `{ephemeralContainerStatuses: [{name: d, state: {running: {}}}]}`,
			want: `status.ephemeralContainerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state`,
		},
	})
}

func TestPodStatusRules(t *testing.T) {
	checkStatusUpdates(t, map[string]statusCase{
		"two families":          {next: `{podIPs: [{ip: 10.0.0.1}, {ip: "fd00::1"}], hostIP: 10.0.0.2, hostIPs: [{ip: 10.0.0.2}, {ip: "fd00::2"}]}`},
		"known invalid address": {old: `{podIPs: [{ip: 010.0.0.1}]}`, next: `{podIPs: [{ip: 010.0.0.1}]}`},
		"new invalid address":   {next: `{podIPs: [{ip: 010.0.0.1}]}`, want: `status.podIPs[0]: Invalid value: "010.0.0.1": must not have leading 0s`},
		"one family":            {next: `{podIPs: [{ip: 10.0.0.1}, {ip: 10.0.0.2}]}`, want: `status.podIPs: Invalid value: [{"IP":"10.0.0.1"},{"IP":"10.0.0.2"}]: may specify no more than one IP for each IP family`},
		"different host IPs":    {next: `{hostIP: 10.0.0.1, hostIPs: [{ip: 10.0.0.2}]}`, want: "status.hostIPs[0].ip: Invalid value: \"10.0.0.2\": must be equal to `hostIP`"},
		"QoS class":             {next: `{qosClass: Guaranteed}`, want: `status.qosClass: Invalid value: "Guaranteed": field is immutable`},
		"condition names": {
			next: `{conditions: [{type: Ready}, {type: example.com/Warm}, {type: a b, observedGeneration: -1}]}`,
			want: `status.conditions[2].observedGeneration: Invalid value: -1: must be a non-negative integer
status.conditions[2].Type: Invalid value: "a b": name part must consist of`,
		},
		"generation":             {next: `{observedGeneration: -1}`, want: `status.observedGeneration: Invalid value: -1: must be a non-negative integer`},
		"invalid nominated node": {next: `{nominatedNodeName: A}`, want: `status.nominatedNodeName: Invalid value: "A": a lowercase RFC 1123 subdomain`},
		"nominated node of a bound pod": {
			spec: `{nodeName: n}`, next: `{nominatedNodeName: m}`,
			want: `status.nominatedNodeName: Forbidden: may not be set on pods that are already bound to a node`,
		},
	})
}

func TestContainerStatusRules(t *testing.T) {
	checkStatusUpdates(t, map[string]statusCase{
		"users": {
			next: `{containerStatuses: [{name: c, user: {linux: {uid: -1, gid: 0, supplementalGroups: [0, -2]}}}]}`,
			want: `status.containerStatuses[0].user.linux.uid: Invalid value: -1: must be between 0 and 4294967295, inclusive
status.containerStatuses[0].user.linux.supplementalGroups[1]: Invalid value: -2: must be between 0 and 2147483647, inclusive`,
		},
		"the last user of Linux": {next: `{containerStatuses: [{name: c, user: {linux: {uid: 4294967295, gid: 2147483647}}}]}`},
		"users and groups beyond the last": {
			next: `{containerStatuses: [{name: c, user: {linux: {uid: 4294967296, gid: 2147483648}}}]}`,
			want: `status.containerStatuses[0].user.linux.uid: Invalid value: 4294967296: must be between 0 and 4294967295, inclusive
status.containerStatuses[0].user.linux.gid: Invalid value: 2147483648: must be between 0 and 2147483647, inclusive`,
		},
		"users of Windows": {
			spec: `{os: {name: windows}}`, next: `{containerStatuses: [{name: c, user: {linux: {uid: 0, gid: 0}}}]}`,
			want: `status.containerStatuses[0].user.linux: Forbidden: cannot be set for a windows pod`,
		},
		"health of devices": {
			spec: `{resourceClaims: [{name: gpu, resourceClaimName: x}], containers: [{name: c, image: i, resources: {claims: [{name: gpu}]}}]}`,
			next: `{containerStatuses: [{name: c, allocatedResourcesStatus: [{name: "claim:gpu", resources: [
			  {resourceID: a, health: Healthy}, {resourceID: a, health: Fine}]}, {name: example.com/tpu}]}]}`,
			want: `status.containerStatuses[0].allocatedResourcesStatus[0].resources[1].health: Unsupported value: "Fine": supported values: "Healthy", "Unhealthy", "Unknown"
status.containerStatuses[0].allocatedResourcesStatus[0].resources[1].resourceID: Duplicate value: "a"
status.containerStatuses[0].allocatedResourcesStatus[1].name: Invalid value: "example.com/tpu": must match one of the container's resource requests`,
		},
	})
}

func TestClaimStatusRules(t *testing.T) {
	checkStatusUpdates(t, map[string]statusCase{
		"claims": {
			spec: `{resourceClaims: [{name: a, resourceClaimTemplateName: t}]}`,
			next: `{resourceClaimStatuses: [{name: a, resourceClaimName: p-a-1}, {name: a}, {name: b}]}`,
			want: "status.resourceClaimStatuses[1].name: Duplicate value: \"a\"\n" +
				"status.resourceClaimStatuses[2].name: Invalid value: \"b\": must match the name of an entry in `spec.resourceClaims`",
		},
		"name of a claim": {
			spec: `{resourceClaims: [{name: a, resourceClaimTemplateName: t}]}`,
			next: `{resourceClaimStatuses: [{name: a, resourceClaimName: A}]}`,
			want: `status.resourceClaimStatuses[0].resourceClaimName: Invalid value: "A": a lowercase RFC 1123 subdomain`,
		},
		"claim of extended resources": {
			next: `{extendedResourceClaimStatus: {requestMappings: [{containerName: d, resourceName: example.com/gpu, requestName: r}]}}`,
			want: `status.extendedResourceClaimStatus.requestMappings[0].containerName: Invalid value: "d": must match the name of an entry in spec.initContainers.name or spec.containers.name
status.extendedResourceClaimStatus.resourceClaimName: Required value`,
		},
	})
}

// TestClaimStatusesAreKept checks that a client that does not know the fields
// about ResourceClaims does not clear them.
func TestClaimStatusesAreKept(t *testing.T) {
	r, old := pod.Pods(), storedPod(t, `{resourceClaims: [{name: a, resourceClaimTemplateName: t}],
	  containers: [{name: c, image: i, resources: {requests: {example.com/gpu: 1}, limits: {example.com/gpu: 1}}}]}`)
	next := old.DeepCopy()
	old.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "a", ResourceClaimName: new("p-a-1")}}
	old.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{
		ResourceClaimName: "p-x", RequestMappings: []corev1.ContainerExtendedResourceRequest{{ContainerName: "c", ResourceName: "example.com/gpu", RequestName: "r"}},
	}
	old.Status.NodeAllocatableResourceClaimStatuses = []corev1.NodeAllocatableResourceClaimStatus{{ResourceClaimName: "p-a-1"}}
	next.Status.Message = "changed"
	if errs := resourcetest.BeforeSubresourceUpdate(r, r.Subresource("status"), &resource.RequestContext{Now: noon, Namespace: "default"}, next, old); len(errs) > 0 {
		t.Fatal(errs)
	}
	want := old.Status
	want.Message = "changed"
	if diff := cmp.Diff(want, next.Status); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestObservedGenerationsAreKept checks the same of the observed generations. A
// new condition has none.
func TestObservedGenerationsAreKept(t *testing.T) {
	r, old := pod.Pods(), storedPod(t, "{}")
	next := old.DeepCopy()
	condition := func(kind corev1.PodConditionType, generation int64) corev1.PodCondition {
		return corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, ObservedGeneration: generation}
	}
	old.Status.ObservedGeneration = 3
	old.Status.Conditions = []corev1.PodCondition{condition("Ready", 2), condition("example.com/a", 1), condition("example.com/a", 3)}
	next.Status.Conditions = []corev1.PodCondition{condition("example.com/a", 0), condition("Ready", 3), condition("example.com/a", 0), condition("PodScheduled", 0)}
	if errs := resourcetest.BeforeSubresourceUpdate(r, r.Subresource("status"), &resource.RequestContext{Now: noon, Namespace: "default"}, next, old); len(errs) > 0 {
		t.Fatal(errs)
	}
	want := []corev1.PodCondition{condition("example.com/a", 1), condition("Ready", 3), condition("example.com/a", 3), condition("PodScheduled", 0)}
	if diff := cmp.Diff(want, next.Status.Conditions); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if next.Status.ObservedGeneration != 3 {
		t.Errorf("generation %d", next.Status.ObservedGeneration)
	}
}

// checkStatusUpdates writes the status next over the status old of a pod with
// the fields in spec, and compares all errors, in order, with the beginnings
// in the lines of want.
func checkStatusUpdates(t *testing.T, cases map[string]statusCase) {
	t.Helper()
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			old, next := storedPod(t, test.spec), storedPod(t, test.spec)
			for p, status := range map[*corev1.Pod]string{old: test.old, next: test.next} {
				if err := yaml.Unmarshal([]byte(strings.ReplaceAll(status, "\t", " ")), &p.Status); err != nil {
					t.Fatal(err)
				}
			}
			old.Status.QOSClass = podquery.QOSClass(old)
			r := pod.Pods()
			errs := resourcetest.BeforeSubresourceUpdate(r, r.Subresource("status"), &resource.RequestContext{Now: noon, Namespace: "default"}, next, old)
			var got []string
			for _, err := range errs {
				got = append(got, err.Error())
			}
			var want []string
			if test.want != "" {
				want = strings.Split(test.want, "\n")
			}
			for i := range max(len(got), len(want)) {
				if i >= len(got) || i >= len(want) || !strings.HasPrefix(got[i], want[i]) {
					t.Fatalf("want\n%s\ngot\n%s", test.want, strings.Join(got, "\n"))
				}
			}
		})
	}
}
