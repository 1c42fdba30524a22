package pod_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core/pod"
	"github.com/coracle-io/coracle/internal/resource/resourcetest"
)

// TestPodUpdates checks what each endpoint of a pod can change, and the errors
// for other changes.
func TestPodUpdates(t *testing.T) {
	checkPodUpdates(t, map[string]updateCase{
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

		"debug": {endpoint: "ephemeralcontainers", next: "{ephemeralContainers: [{name: d, image: i}]}"},
		"debug with a probe": {endpoint: "ephemeralcontainers",
			next:    "{ephemeralContainers: [{name: d, image: i, livenessProbe: {tcpSocket: {port: 1}}}]}",
			problem: "spec.ephemeralContainers[0].livenessProbe: Forbidden: cannot be set for an Ephemeral Container"},
		"debugger taken away": {endpoint: "ephemeralcontainers",
			old: "{ephemeralContainers: [{name: d, image: i}]}", next: "{}",
			problem: `spec.ephemeralContainers: Forbidden: existing ephemeral containers "d" may not be removed`},
	})
}

// TestNegativeGracePeriod checks that a pod has one second to stop, in a create and
// in an update, which is no change then. A template keeps what it says, with a warning.
func TestNegativeGracePeriod(t *testing.T) {
	next := storedPod(t, "{terminationGracePeriodSeconds: -1}")
	if got := next.Spec.TerminationGracePeriodSeconds; *got != 1 {
		t.Errorf("a pod has %d s", *got)
	}
	old := storedPod(t, "{terminationGracePeriodSeconds: 1}")
	if errs := resourcetest.BeforeUpdate(pod.Pods(), &resource.RequestContext{Now: noon, Namespace: "default"}, next, old); len(errs) != 0 {
		t.Error(errs)
	}
	template := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{TerminationGracePeriodSeconds: new(int64(-1))}}
	pod.DefaultTemplate(template)
	want := []string{"template.spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"}
	if got := pod.TemplateWarnings(template, nil, field.NewPath("template")); !slices.Equal(got, want) {
		t.Errorf("a template: %q", got)
	}
}

// TestPodResizes checks what the endpoint resize can change.
func TestPodResizes(t *testing.T) {
	checkPodUpdates(t, map[string]updateCase{
		"resize": {endpoint: "resize",
			old:  "{containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}",
			next: "{containers: [{name: c, image: other, resources: {requests: {cpu: 2}}}]}"},
		"resize of renamed container": {endpoint: "resize",
			old:     "{containers: [{name: c, image: i}, {name: d, image: i, resources: {requests: {cpu: 1}}}]}",
			next:    "{containers: [{name: c, image: i}, {name: e, image: i, resources: {requests: {cpu: 2}}}]}",
			problem: "spec.containers[1].name: Forbidden: containers may not be renamed or reordered on resize"},
		"resize with one more": {endpoint: "resize",
			old:     "{containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}",
			next:    "{containers: [{name: c, image: i, resources: {requests: {cpu: 2}}}, {name: d, image: i}]}",
			problem: "spec.containers: Forbidden: containers may not be added or removed on resize"},
		"resize without init container": {endpoint: "resize",
			old:     "{initContainers: [{name: d, image: i, resources: {requests: {cpu: 1}}}]}",
			problem: "spec.initContainers: Forbidden: initContainers may not be added or removed on resize"},
		"resize of init container": {endpoint: "resize",
			old:  "{initContainers: [{name: d, image: i, resources: {requests: {cpu: 1}}}]}",
			next: "{initContainers: [{name: d, image: i, resources: {requests: {cpu: 2}}}]}"},
		"resize of init container that would restart": {endpoint: "resize",
			old: `{initContainers: [{name: d, image: i, resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}],
			  resources: {requests: {cpu: 1}}}]}`,
			next: `{initContainers: [{name: d, image: i, resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}],
			  resources: {requests: {cpu: 2}}}]}`,
			problem: "spec.initContainers[0]: Forbidden: non-sidecar init containers with a resize policy of RestartContainer cannot be resized"},
		"resize of pod": {endpoint: "resize", old: "{resources: {limits: {cpu: 1}}}", next: "{resources: {limits: {cpu: 1}, requests: {cpu: 500m}}}"},
		"resize adds resources of the pod": {endpoint: "resize",
			old:  "{containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}",
			next: "{containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}], resources: {requests: {cpu: 2}}}"},
		"resize leaves out the resources of the pod": {endpoint: "resize",
			old:  "{containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}], resources: {requests: {cpu: 2}}}",
			next: "{containers: [{name: c, image: i, resources: {requests: {cpu: 1500m}}}]}"},
		"resize removes a request of the pod": {endpoint: "resize",
			old:     "{containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}], resources: {requests: {cpu: 2}}}",
			next:    "{containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}], resources: {}}",
			problem: "spec.resources.requests: Forbidden: pod-level resource requests cannot be removed"},
		"resize removes a limit of the pod": {endpoint: "resize",
			old: "{resources: {requests: {cpu: 1}, limits: {cpu: 1}}}", next: "{resources: {requests: {cpu: 1}}}",
			problem: "spec.resources.limits: Forbidden: pod-level resource limits cannot be removed"},
		"resize to another class": {endpoint: "resize",
			next: "{containers: [{name: c, image: i, resources: {requests: {cpu: 2}}}]}", problem: `spec: Invalid value: "Burstable": Pod QOS Class may not change`},
	})
}

// TestResizeNeedsSupport checks that a pod is resized only if its node reports
// the resources of the containers that run.
func TestResizeNeedsSupport(t *testing.T) {
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	for name, test := range map[string]struct {
		statuses []corev1.ContainerStatus
		problem  string
	}{
		"not started": {statuses: []corev1.ContainerStatus{{Name: "c"}}},
		"reported":    {statuses: []corev1.ContainerStatus{{Name: "c", State: running, Resources: &corev1.ResourceRequirements{}}}},
		"not reported": {statuses: []corev1.ContainerStatus{{Name: "d"}, {Name: "c", State: running}},
			problem: "spec: Forbidden: Pod running on node without support for resize"},
	} {
		old := storedPod(t, "{containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}")
		old.Status = corev1.PodStatus{QOSClass: corev1.PodQOSBurstable, ContainerStatuses: test.statuses}
		next := storedPod(t, "{containers: [{name: c, image: i, resources: {requests: {cpu: 2}}}]}")
		r := pod.Pods()
		errs := resourcetest.BeforeSubresourceUpdate(r, r.Subresource("resize"), &resource.RequestContext{Now: noon, Namespace: "default"}, next, old)
		got := ""
		if err := errs.ToAggregate(); err != nil {
			got = err.Error()
		}
		if got != test.problem {
			t.Errorf("%s: got %q, want %q", name, got, test.problem)
		}
	}
}

// updateCase is a pod before and after an update of an endpoint, and the problem
// with it.
type updateCase struct{ endpoint, old, next, problem string }

func checkPodUpdates(t *testing.T, cases map[string]updateCase) {
	t.Helper()
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			old, next := storedPod(t, test.old), storedPod(t, test.next)
			old.Status.QOSClass = podquery.QOSClass(old)
			r := pod.Pods()
			request := &resource.RequestContext{Now: noon, Namespace: "default"}
			errs := resourcetest.BeforeUpdate(r, request, next, old)
			if test.endpoint != "" {
				next = storedPod(t, test.next)
				errs = resourcetest.BeforeSubresourceUpdate(r, r.Subresource(test.endpoint), request, next, old)
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

// TestDisabledFieldsOfEndpoints checks that no endpoint of a pod stores fields of
// disabled features.
func TestDisabledFieldsOfEndpoints(t *testing.T) {
	features, err := feature.Parse([]string{"PodLevelResources=false", "PodLevelResourcesFixDefaulting=false", "PodLevelResourcesFixKubeletQOSClass=false", "InPlacePodLevelResourcesVerticalScaling=false"})
	if err != nil {
		t.Fatal(err)
	}
	old := storedPod(t, "{volumes: [{name: v, emptyDir: {}}], containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}")
	old.Status.QOSClass = corev1.PodQOSBurstable
	next := storedPod(t, `{volumes: [{name: v, emptyDir: {}}], containers: [{name: c, image: i, resources: {requests: {cpu: 2}}}], resources: {requests: {cpu: 4}},
	  ephemeralContainers: [{name: d, image: i, volumeMounts: [{name: v, mountPath: /v, bindMountOptions: [noexec]}]}]}`)
	r := pod.Pods()
	request := &resource.RequestContext{Now: noon, Namespace: "default", Features: features}
	for _, endpoint := range []string{"resize", "ephemeralcontainers"} {
		p := next.DeepCopy()
		if errs := resourcetest.BeforeSubresourceUpdate(r, r.Subresource(endpoint), request, p, old); len(errs) > 0 {
			t.Errorf("%s: %v", endpoint, errs)
		}
		if p.Spec.Resources != nil {
			t.Errorf("%s sets pod-level resources %v", endpoint, p.Spec.Resources)
		}
		for _, c := range p.Spec.EphemeralContainers {
			if c.VolumeMounts[0].BindMountOptions != nil {
				t.Errorf("%s sets options of mounts %v", endpoint, c.VolumeMounts)
			}
		}
		if p.Generation != 2 {
			t.Errorf("%s: generation %d", endpoint, p.Generation)
		}
	}
}

// TestResizesWithoutPodLevelResize checks that with the feature gate off, resizes
// neither give a pod resources as a whole nor change those that it has.
func TestResizesWithoutPodLevelResize(t *testing.T) {
	features, err := feature.Parse([]string{"InPlacePodLevelResourcesVerticalScaling=false"})
	if err != nil {
		t.Fatal(err)
	}
	const containers = "containers: [{name: c, image: i, resources: {requests: {cpu: %s}}}]"
	const refused = "resize of pods with pod-level resources is forbidden when InPlacePodLevelResourcesVerticalScalingEnabled feature gate is disabled"
	for name, test := range map[string]struct{ old, next, limit, problem string }{
		"none":            {limit: "0"},
		"added":           {next: "resources: {limits: {cpu: 4}}, ", limit: "0"},
		"changed":         {"resources: {limits: {cpu: 2}}, ", "resources: {limits: {cpu: 4}}, ", "2", refused},
		"of a container":  {"resources: {limits: {cpu: 2}}, ", "resources: {limits: {cpu: 2}}, ", "2", refused},
		"no longer named": {"resources: {limits: {cpu: 2}}, ", "", "2", refused},
	} {
		old := storedPod(t, fmt.Sprintf("{"+test.old+containers+"}", "500m"))
		old.Status.QOSClass = podquery.QOSClass(old)
		next := storedPod(t, fmt.Sprintf("{"+test.next+containers+"}", "250m"))
		r := pod.Pods()
		errs := resourcetest.BeforeSubresourceUpdate(r, r.Subresource("resize"), &resource.RequestContext{Now: noon, Namespace: "default", Features: features}, next, old)
		var problem string
		if len(errs) == 1 {
			problem = errs[0].Detail
		}
		if len(errs) > 1 || problem != test.problem {
			t.Errorf("%s: %v, want %q", name, errs, test.problem)
		}
		var whole corev1.ResourceRequirements
		if next.Spec.Resources != nil {
			whole = *next.Spec.Resources
		}
		if got := whole.Limits.Cpu().String(); got != test.limit {
			t.Errorf("%s: the pod has the limit %s, want %s", name, got, test.limit)
		}
		if got := next.Spec.Containers[0].Resources.Requests.Cpu().String(); got != "250m" {
			t.Errorf("%s: the container requests %s", name, got)
		}
	}
}

func storedPod(t *testing.T, spec string) *corev1.Pod {
	t.Helper()
	p := newPod(t, "{}")
	p.UID, p.ResourceVersion, p.Generation = "u", "1", 1
	p.CreationTimestamp = metav1.NewTime(noon)
	if err := yaml.Unmarshal([]byte(spec), &p.Spec); err != nil {
		t.Fatal(err)
	}
	pod.Pods().Hub().Default(p)
	return p
}
