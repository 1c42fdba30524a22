package pod_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core/pod"
	"github.com/coracle-io/coracle/internal/resource/resourcetest"
)

// warningCase is a pod, as the fields of its spec, and the warnings about it.
type warningCase struct {
	spec string
	want []string
}

func checkWarnings(t *testing.T, cases map[string]warningCase) {
	t.Helper()
	for name, test := range cases {
		got := pod.Pods().Strategy.Warnings(&resource.RequestContext{}, newPod(t, test.spec), nil)
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestPodWarnings(t *testing.T) {
	checkWarnings(t, map[string]warningCase{
		"nothing odd": {},
		"old node label": {
			spec: "{nodeSelector: {beta.kubernetes.io/os: linux}}",
			want: []string{`spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "kubernetes.io/os" instead`},
		},
		"a name twice in the environment": {
			spec: `{containers: [{name: c, image: i, env: [{name: A, value: "1"}, {name: A, value: "2"}]}]}`,
			want: []string{`spec.containers[0].env[1]: hides previous definition of "A", which may be dropped when using apply`},
		},
		"half a byte": {
			spec: "{containers: [{name: c, image: i, resources: {limits: {memory: 500m}, requests: {memory: 1}}}]}",
			want: []string{`spec.containers[0].resources.limits[memory]: fractional byte value "500m" is invalid, must be an integer`},
		},
		"selects nothing": {
			spec: "{topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]}",
			want: []string{"spec.topologySpreadConstraints[0].labelSelector: a null labelSelector results in matching no pod"},
		},
		"a name that is built upon": {
			spec: `{containers: [{name: c, image: i, env: [{name: A, value: "1"}, {name: A, value: "$(A)2"}, {name: B}, {name: B, value: $(B)}]}]}`,
			want: []string{`spec.containers[0].env[3]: hides previous definition of "B", which may be dropped when using apply`},
		},
		"ports": {
			spec: `{containers: [{name: c, image: i, ports: [{containerPort: 80, name: web}, {containerPort: 80, hostIP: 10.0.0.1}, {containerPort: 81, hostPort: 81}]},
			  {name: d, image: i, ports: [{containerPort: 80, name: web}, {containerPort: 81, hostPort: 81, hostIP: 10.0.0.1}]}]}`,
			want: []string{
				"spec.containers[0].ports[1]: hostIP set without hostPort: {Name: HostPort:0 ContainerPort:80 Protocol:TCP HostIP:10.0.0.1}",
				"spec.containers[0].ports[1]: overlapping port definition with spec.containers[0].ports[0]",
				"spec.containers[1].ports[0]: duplicate port definition with spec.containers[0].ports[0]",
				"spec.containers[1].ports[0]: overlapping port definition with spec.containers[0].ports[1]",
				"spec.containers[1].ports[1]: dangerously ambiguous port definition with spec.containers[0].ports[2]",
				`spec.containers[1].ports[0]: duplicate port name "web" with spec.containers[0].ports[0], services and probes that select ports by name will use spec.containers[0].ports[0]`,
			},
		},
		"files in each other's place": {
			spec: `{volumes: [{name: c, configMap: {name: m, items: [{key: a, path: d/}, {key: b, path: d/e}]}},
			  {name: p, projected: {sources: [{secret: {name: s, items: [{key: a, path: token}]}}, {serviceAccountToken: {path: token}}, {}]}}]}`,
			want: []string{
				`volume "c" (ConfigMap "m"): overlapping paths: "d/e" with "d"`,
				`volume "p" (Projected) has no sources provided`,
				`volume "p" (Projected): overlapping paths: "token" (ServiceAccountToken) with "token" (Secret "s")`,
			},
		},
		"addresses": {
			spec: `{hostAliases: [{ip: "::ffff:1.2.3.4"}], dnsConfig: {nameservers: ["FD00::1"]}}`,
			want: []string{
				`spec.dnsConfig.nameservers[0]: IPv6 address "FD00::1" should be in RFC 5952 canonical format ("fd00::1")`,
				`spec.hostAliases[0].ip: non-standard IP address "::ffff:1.2.3.4" is invalid: use "1.2.3.4"`,
			},
		},
		"repeated names": {
			spec: `{hostAliases: [{ip: 1.1.1.1}, {ip: 1.1.1.1}], imagePullSecrets: [{name: a}, {name: a}, {name: ""}]}`,
			want: []string{
				`spec.hostAliases[1].ip: duplicate ip "1.1.1.1"`,
				`spec.imagePullSecrets[1].name: duplicate name "a"`,
				`spec.imagePullSecrets[2].name: invalid empty name ""`,
			},
		},
	})
}

func TestPodWarningsAboutPlaces(t *testing.T) {
	checkWarnings(t, map[string]warningCase{
		"old node labels in affinity and spreading": {
			spec: `{affinity: {nodeAffinity: {
			  requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}, {key: beta.kubernetes.io/arch, operator: Exists}]}]},
			  preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: failure-domain.beta.kubernetes.io/zone, operator: Exists}]}}]}},
			  topologySpreadConstraints: [{maxSkew: 1, topologyKey: beta.kubernetes.io/instance-type, whenUnsatisfiable: DoNotSchedule, labelSelector: {}}]}`,
			want: []string{
				`spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[1].key: beta.kubernetes.io/arch is deprecated since v1.14; use "kubernetes.io/arch" instead`,
				`spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[0].key: failure-domain.beta.kubernetes.io/zone is deprecated since v1.17; use "topology.kubernetes.io/zone" instead`,
				`spec.topologySpreadConstraints[0].topologyKey: beta.kubernetes.io/instance-type is deprecated since v1.17; use "node.kubernetes.io/instance-type" instead`,
			},
		},
		"neighbours that select nothing": {
			spec: `{affinity: {
			  podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: z, labelSelector: {}}, {topologyKey: z}],
			    preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {topologyKey: z}}]},
			  podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: z}],
			    preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {topologyKey: z, labelSelector: {}}}]}}}`,
			want: []string{
				"spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[1].labelSelector: a null labelSelector results in matching no pod",
				"spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm.labelSelector: a null labelSelector results in matching no pod",
				"spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector: a null labelSelector results in matching no pod",
			},
		},
	})
}

func TestPodWarningsAboutNumbersAndNames(t *testing.T) {
	checkWarnings(t, map[string]warningCase{
		"half a byte of a claim and of the overhead": {
			spec: `{overhead: {memory: 4m}, volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 200m}}}}}}]}`,
			want: []string{
				`spec.volumes[0].ephemeral.volumeClaimTemplate.spec.resources.requests[storage]: fractional byte value "200m" is invalid, must be an integer`,
				`spec.overhead[memory]: fractional byte value "4m" is invalid, must be an integer`,
			},
		},
		"ports that differ": {
			spec: `{containers: [{name: c, image: i, ports: [{containerPort: 80, hostPort: 80, hostIP: 10.0.0.1}, {containerPort: 80, hostPort: 80, hostIP: 10.0.0.2},
			  {containerPort: 80, hostPort: 81, hostIP: 10.0.0.1}, {containerPort: 80, protocol: UDP}, {containerPort: 82}]}]}`,
		},
		"a port name of a sidecar": {
			spec: `{initContainers: [{name: s, image: i, restartPolicy: Always, ports: [{containerPort: 80, name: web}]}],
			  containers: [{name: c, image: i, ports: [{containerPort: 81, name: web}]}]}`,
			want: []string{
				`spec.containers[0].ports[0]: duplicate port name "web" with spec.initContainers[0].ports[0], services and probes that select ports by name will use spec.initContainers[0].ports[0]`,
			},
		},
		"files of all kinds in each other's place": {
			spec: `{volumes: [{name: p, projected: {sources: [{clusterTrustBundle: {signerName: s, path: d/e}}, {downwardAPI: {items: [{path: d, fieldRef: {fieldPath: metadata.name}}]}},
			  {configMap: {name: m, items: [{key: a, path: d12}]}}, {serviceAccountToken: {path: d}}]}}]}`,
			want: []string{
				`volume "p" (Projected): overlapping paths: "d" (DownwardAPI) with "d/e" (ClusterTrustBundle "s")`,
				`volume "p" (Projected): overlapping paths: "d" (ServiceAccountToken) with "d/e" (ClusterTrustBundle "s")`,
				`volume "p" (Projected): overlapping paths: "d" (ServiceAccountToken) with "d" (DownwardAPI)`,
			},
		},
		"a volume of the past": {
			spec: "{volumes: [{name: v, gitRepo: {repository: r}}]}",
			want: []string{"spec.volumes[0].gitRepo: deprecated in v1.11, and disabled by default in v1.33+"},
		},
	})
}

// TestNoWarningsOfUpdates checks that an update of a pod repeats no warning.
func TestNoWarningsOfUpdates(t *testing.T) {
	old := storedPod(t, "{nodeSelector: {beta.kubernetes.io/os: linux}}")
	next := old.DeepCopy()
	next.Spec.Containers[0].Image, next.Generation = "j", 2
	if got := pod.Pods().Strategy.Warnings(&resource.RequestContext{}, next, old); len(got) > 0 {
		t.Errorf("%q", got)
	}
}

// TestAppArmorAnnotations checks that the profile in an annotation of a new pod is
// copied to its field, if it is valid, and that the client is warned of it.
func TestAppArmorAnnotations(t *testing.T) {
	const key = corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + "c"
	const warning = "metadata.annotations[" + key + `]: deprecated since v1.30; use the "appArmorProfile" field instead`
	for _, test := range []struct {
		annotation, spec string
		copied           bool
		want             []string
	}{
		{"unconfined", "{}", true, []string{warning}},
		{"localhost/mine", "{}", true, []string{warning}},
		{"localhost/ padded", "{}", false, []string{warning}},
		{"localhost/", "{}", false, []string{warning}},
		{"", "{}", false, []string{warning}},
		{"unconfined", "{securityContext: {appArmorProfile: {type: Unconfined}}}", false, nil},
		{"unconfined", "{securityContext: {appArmorProfile: {type: RuntimeDefault}}}", true, []string{warning}},
		{"unconfined", "{containers: [{name: c, image: i, securityContext: {appArmorProfile: {type: Unconfined}}}]}", true, nil},
		{"unconfined", "{os: {name: windows}}", false, nil},
	} {
		p := newPod(t, test.spec)
		p.Annotations = map[string]string{key: test.annotation}
		template := &corev1.PodTemplateSpec{ObjectMeta: *p.ObjectMeta.DeepCopy(), Spec: *p.Spec.DeepCopy()}
		var got []string
		request := &resource.RequestContext{Now: noon, Namespace: "default", Warn: func(text string) { got = append(got, text) }}
		if errs := resourcetest.BeforeCreate(pod.Pods(), request, p); len(errs) > 0 {
			t.Errorf("%q in %s: %v", test.annotation, test.spec, errs)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%q in %s: (-want +got)\n%s", test.annotation, test.spec, diff)
		}
		c := p.Spec.Containers[0].SecurityContext
		if copied := c != nil && c.AppArmorProfile != nil; copied != test.copied {
			t.Errorf("%q in %s: copied %t, want %t", test.annotation, test.spec, copied, test.copied)
		}
		profiled := strings.Contains(test.spec, "appArmorProfile")
		if warned := len(pod.TemplateWarnings(template, nil, field.NewPath("template"))) > 0; warned == profiled {
			t.Errorf("template with %q in %s: warned %t", test.annotation, test.spec, warned)
		}
	}
}

// TestPodWarningsWithoutEnd checks that the search for colliding files and
// ports ends for any number of them, and finds the first ones.
func TestPodWarningsWithoutEnd(t *testing.T) {
	p := &corev1.Pod{}
	items := make([]corev1.KeyToPath, 100_000)
	for i := range items {
		items[i].Path = "same"
	}
	p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{Items: items}}}}
	p.Spec.Containers = []corev1.Container{{Name: "c", Image: "i", Ports: make([]corev1.ContainerPort, 100_000)}}
	warnings := pod.Pods().Strategy.Warnings(&resource.RequestContext{}, p, nil)
	for _, want := range []string{
		`volume "v" (ConfigMap ""): overlapping paths: "same" with "same"`,
		"spec.containers[0].ports[1]: duplicate port definition with spec.containers[0].ports[0]",
	} {
		if !slices.Contains(warnings, want) {
			t.Errorf("no warning %s", want)
		}
	}
	if len(warnings) > 20_000 {
		t.Errorf("%d warnings", len(warnings))
	}
}
