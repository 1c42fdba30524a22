package core_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	podutil "github.com/coracle-io/coracle/internal/pod"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core"
)

// What each endpoint of a pod lets change, and what it says to the rest.
func TestPodUpdates(t *testing.T) {
	for name, test := range map[string]struct{ endpoint, old, next, problem string }{
		"image":             {next: "{containers: [{name: c, image: j}]}"},
		"command":           {next: "{containers: [{name: c, image: i, command: [x]}]}", problem: "spec: Forbidden: pod updates may not change fields other than"},
		"one more":          {next: "{containers: [{name: c, image: i}, {name: d, image: i}]}", problem: "spec.containers: Forbidden: pod updates may not add or remove containers"},
		"tolerates more":    {next: "{tolerations: [{key: k, operator: Exists}]}"},
		"tolerates less":    {old: "{tolerations: [{key: k, operator: Exists}]}", next: "{tolerations: []}", problem: "spec.tolerations: Forbidden: existing toleration can not be modified"},
		"later deadline":    {old: "{activeDeadlineSeconds: 10}", next: "{activeDeadlineSeconds: 20}", problem: "spec.activeDeadlineSeconds: Invalid value: 20: must be less than or equal to previous value"},
		"gate opened":       {old: "{schedulingGates: [{name: g}]}", next: "{schedulingGates: []}"},
		"gate put up":       {next: "{schedulingGates: [{name: g}]}", problem: "spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new scheduling gate 'g'"},
		"stricter selector": {old: "{schedulingGates: [{name: g}]}", next: "{schedulingGates: [{name: g}], nodeSelector: {a: b}}"},
		"looser selector": {old: "{schedulingGates: [{name: g}], nodeSelector: {a: b}}", next: "{schedulingGates: [{name: g}], nodeSelector: {c: d}}",
			problem: `spec.nodeSelector: Invalid value: {"c":"d"}: only additions to spec.nodeSelector are allowed`},

		"resize": {endpoint: "resize",
			old:  "{containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}",
			next: "{containers: [{name: c, image: other, resources: {requests: {cpu: 2}}}]}"},
		"resize to another class": {endpoint: "resize",
			next: "{containers: [{name: c, image: i, resources: {requests: {cpu: 2}}}]}", problem: `spec: Invalid value: "Burstable": Pod QOS Class may not change`},
		"debug": {endpoint: "ephemeralcontainers", next: "{ephemeralContainers: [{name: d, image: i}]}"},
		"debug with a probe": {endpoint: "ephemeralcontainers",
			next:    "{ephemeralContainers: [{name: d, image: i, livenessProbe: {tcpSocket: {port: 1}}}]}",
			problem: "spec.ephemeralContainers[0].livenessProbe: Forbidden: cannot be set for an Ephemeral Container"},
		"debugger taken away": {endpoint: "ephemeralcontainers",
			old: "{ephemeralContainers: [{name: d, image: i}]}", next: "{}",
			problem: `spec.ephemeralContainers: Forbidden: existing ephemeral containers "d" may not be removed`},
	} {
		t.Run(name, func(t *testing.T) {
			old, next := storedPod(t, test.old), storedPod(t, test.next)
			old.Status.QOSClass = podutil.QOSClass(old)
			r := core.Pods()
			request := &resource.Request{Now: noon, Namespace: "default"}
			errs := resource.BeforeUpdate(r, request, next, old)
			if test.endpoint != "" {
				next = storedPod(t, test.next)
				errs = resource.BeforeSubresourceUpdate(r, r.Subresource(test.endpoint), request, next, old)
				if next.Spec.Containers[0].Image != "i" {
					t.Errorf("%s changed the image", test.endpoint)
				}
			}
			switch {
			case test.problem == "" && len(errs) > 0:
				t.Error(errs)
			case test.problem != "" && (len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), test.problem)):
				t.Errorf("want %s\ngot %v", test.problem, errs)
			case len(errs) == 0 && next.Generation != 2:
				t.Errorf("generation %d after a change of the spec", next.Generation)
			}
		})
	}
}

func storedPod(t *testing.T, spec string) *corev1.Pod {
	t.Helper()
	pod := newPod(t, "{}")
	pod.UID, pod.ResourceVersion, pod.Generation = "u", "1", 1
	pod.CreationTimestamp = metav1.NewTime(noon)
	if err := yaml.Unmarshal([]byte(spec), &pod.Spec); err != nil {
		t.Fatal(err)
	}
	core.Pods().Hub().Default(pod)
	return pod
}
