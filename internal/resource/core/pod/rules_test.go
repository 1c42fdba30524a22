package pod_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core/pod"
	"github.com/coracle-io/coracle/internal/resource/resourcetest"
)

type specCase struct{ spec, want string }

func TestPodRules(t *testing.T) {
	checkSpecs(t, map[string]specCase{
		"good": {},
		"unknown operating system": {
			spec: `{os: {name: plan9}}`,
			want: `spec.os: Unsupported value: "plan9": supported values: "linux", "windows"`,
		},
		"Windows pod": {
			spec: `{os: {name: windows}, securityContext: {runAsUser: 1}}`,
			want: `spec.securityContext.runAsUser: Forbidden: cannot be set for a windows pod`,
		},
		"init containers": {
			spec: `{initContainers: [{name: c, image: i, readinessProbe: {tcpSocket: {port: 0}}}]}`,
			want: `spec.initContainers[0].name: Duplicate value: "c"
spec.initContainers[0].readinessProbe: Forbidden: may not be set for init containers without restartPolicy=Always`,
		},
		"init container with resize policy": {
			spec: `{initContainers: [{name: i, image: i, resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}],
			  ports: [{containerPort: 1, hostPort: 5}, {containerPort: 2, hostPort: 5}]}]}`,
			want: `spec.initContainers[0].ports[1].hostPort: Duplicate value: "TCP//5"`,
		},
		"init container that restarts to resize": {
			spec: `{initContainers: [{name: i, image: i, resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}]},
			  {name: s, image: i, restartPolicy: Always, resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}]}]}`,
			want: `spec.initContainers[0].resizePolicy: Invalid value: [{"ResourceName":"cpu","RestartPolicy":"RestartContainer"}]: must not have the restart policy RestartContainer`,
		},
		"resize policy": {
			spec: `{containers: [{name: c, image: i, resizePolicy: [{resourceName: disk}]}]}`,
			want: `spec.containers[0].resizePolicy: Unsupported value: "disk": supported values: "cpu", "memory"
spec.containers[0].resizePolicy: Required value`,
		},
	})
}

func TestPodSecurityRules(t *testing.T) {
	checkSpecs(t, map[string]specCase{
		"host namespaces": {
			spec: `{hostNetwork: true, hostIPC: true, hostPID: true, shareProcessNamespace: true,
			  securityContext: {sysctls: [{name: net.core.somaxconn, value: "1"}, {name: kernel.shmmax, value: "1"}]}}`,
			want: `spec.securityContext.shareProcessNamespace: Invalid value: true: ShareProcessNamespace and HostPID cannot both be enabled
spec.securityContext.sysctls[0].name: Invalid value: "net.core.somaxconn": may not be specified when 'hostNetwork' is true
spec.securityContext.sysctls[1].name: Invalid value: "kernel.shmmax": may not be specified when 'hostIPC' is true`,
		},
		"sysctls of the host by other names": {
			spec: `{hostNetwork: true, hostIPC: true, securityContext: {sysctls: [{name: net/ipv4/conf/eth0.1/rp_filter, value: "1"},
			  {name: fs/mqueue/msg_max, value: "1"}, {name: kernel.shmfuture, value: "1"}]}}`,
			want: `spec.securityContext.sysctls[0].name: Invalid value: "net/ipv4/conf/eth0.1/rp_filter": may not be specified when 'hostNetwork' is true
spec.securityContext.sysctls[1].name: Invalid value: "fs/mqueue/msg_max": may not be specified when 'hostIPC' is true`,
		},
		"user namespace": {
			spec: `{hostUsers: false, hostNetwork: true, volumes: [{name: v, persistentVolumeClaim: {claimName: c}}],
			  containers: [{name: c, image: i, volumeDevices: [{name: v, devicePath: /dev/x}]}]}`,
			want: "spec.hostNetwork: Forbidden: when `hostUsers` is false\nspec.containers[0].volumeDevices: Forbidden: when `hostUsers` is false",
		},
		"Windows accounts": {
			spec: `{securityContext: {windowsOptions: {runAsUserName: 'a*\b\c'}}, containers: [
			  {name: c, image: i, securityContext: {windowsOptions: {runAsUserName: 'A*B\..'}}},
			  {name: d, image: i, securityContext: {windowsOptions: {runAsUserName: 'example.com\x@y', gmsaCredentialSpec: ""}}}]}`,
			want: `spec.containers[0].securityContext.windowsOptions.runAsUserName: Invalid value: "A*B\\..": runAsUserName's Domain doesn't match the NetBios nor the DNS format
spec.containers[0].securityContext.windowsOptions.runAsUserName: Invalid value: "A*B\\..": runAsUserName's User cannot contain only periods or spaces
spec.containers[1].securityContext.windowsOptions.gmsaCredentialSpec: Invalid value: "": gmsaCredentialSpec cannot be an empty string
spec.containers[1].securityContext.windowsOptions.runAsUserName: Invalid value: "example.com\\x@y": runAsUserName's User cannot contain the following characters: "/\:;|=,+*?<>@[]
spec.securityContext.windowsOptions.runAsUserName: Invalid value: "a*\\b\\c": runAsUserName cannot contain more than one backslash`,
		},
		"Windows domains": {
			spec: `{containers: [
			  {name: c, image: i, securityContext: {windowsOptions: {runAsUserName: 'a-domain.with.long.example.com\u'}}},
			  {name: d, image: i, securityContext: {windowsOptions: {runAsUserName: 'a-domain..with.long.example.com\u'}}},
			  {name: e, image: i, securityContext: {windowsOptions: {runAsUserName: 'a-domain.-with.long.example.com\u'}}}]}`,
			want: `spec.containers[1].securityContext.windowsOptions.runAsUserName: Invalid value: "a-domain..with.long.example.com\\u": runAsUserName's Domain doesn't match
spec.containers[2].securityContext.windowsOptions.runAsUserName: Invalid value: "a-domain.-with.long.example.com\\u": runAsUserName's Domain doesn't match`,
		},
		"privileged without escalation": {
			spec: `{containers: [{name: c, image: i, securityContext: {privileged: true, allowPrivilegeEscalation: false}}]}`,
			want: "spec.containers[0].securityContext: Invalid value: {\"Capabilities\":null,\"Privileged\":true,\"SELinuxOptions\":null,",
		},
		"seccomp profile without type": {
			spec: `{securityContext: {seccompProfile: {localhostProfile: p}}}`,
			want: `spec.securityContext.seccompProfile.type: Required value: type is required when seccompProfile is set
spec.securityContext.seccompProfile.localhostProfile: Invalid value: {"Type":"","LocalhostProfile":"p"}: can only be set when seccomp type is Localhost`,
		},
	})
}

// TestHostProcessWithoutPrivileges checks that a cluster without privileged
// containers has no HostProcess containers either.
func TestHostProcessWithoutPrivileges(t *testing.T) {
	p := newPod(t, `{hostNetwork: true, securityContext: {windowsOptions: {hostProcess: true}}}`)
	request := &resource.RequestContext{Now: noon, Namespace: "default", ForbidPrivileged: true}
	errs := resourcetest.BeforeCreate(pod.Pods(), request, p)
	if len(errs) != 1 || errs[0].Error() != "spec: Forbidden: hostProcess containers are disallowed by cluster policy" {
		t.Errorf("%v", errs)
	}
}

func TestPodVolumeRules(t *testing.T) {
	checkSpecs(t, map[string]specCase{
		"volumes": {
			spec: `{volumes: [
			  {name: twice, emptyDir: {}, secret: {secretName: s}},
			  {name: path, configMap: {name: c, items: [{key: k, path: ../up}]}},
			  {name: Upper, csi: {driver: ""}},
			  {name: block, iscsi: {targetPortal: p, iqn: bad, lun: 300}}]}`,
			want: `spec.volumes[0].secret: Forbidden: may not specify more than 1 volume type
spec.volumes[1].configMap.items[0].path: Invalid value: "../up": must not contain '..'
spec.volumes[2].csi.driver: Required value
spec.volumes[2].name: Invalid value: "Upper": a lowercase RFC 1123 label
spec.volumes[3].iscsi.iqn: Invalid value: "bad": must be valid format
spec.volumes[3].iscsi.lun: Invalid value: 300: must be between 0 and 255, inclusive`,
		},
		"two sources in one projection": {
			spec: `{volumes: [{name: v, projected: {sources: [{secret: {name: s}, configMap: {name: c}}]}}]}`,
			want: "spec.volumes[0].projected.sources[0]: Forbidden: may not specify more than 1 volume type per source",
		},
		"lifetimes of projected certificates": {
			spec: `{serviceAccountName: s, volumes: [{name: v, projected: {sources: [
			  {podCertificate: {signerName: example.com/s, keyType: ED25519, keyPath: a, maxExpirationSeconds: 3599}},
			  {podCertificate: {signerName: example.com/s, keyType: ED25519, keyPath: b, maxExpirationSeconds: 7862401}},
			  {podCertificate: {signerName: example.com/s, keyType: ED25519, keyPath: c, maxExpirationSeconds: 7862400}},
			  {podCertificate: {signerName: kubernetes.io/s, keyType: ED25519, keyPath: d, maxExpirationSeconds: 86401}},
			  {podCertificate: {signerName: kubernetes.io/s, keyType: ED25519, keyPath: e, maxExpirationSeconds: 86400}}]}}]}`,
			want: `spec.volumes[0].projected.sources[0].podCertificate.maxExpirationSeconds: Invalid value: 3599: if provided, maxExpirationSeconds must be >= 3600
spec.volumes[0].projected.sources[1].podCertificate.maxExpirationSeconds: Invalid value: 7862401: if provided, maxExpirationSeconds must be <= 7862400
spec.volumes[0].projected.sources[3].podCertificate.maxExpirationSeconds: Invalid value: 86401: if provided, maxExpirationSeconds must be <= 86400`,
		},
		"annotations of a projected certificate": {
			spec: `{serviceAccountName: s, volumes: [{name: v, projected: {sources: [{podCertificate: {signerName: example.com/s, keyType: ED25519,
			  keyPath: key, userAnnotations: {example.com/a: b, plain: c, "example.com/a b": d}}}]}}]}`,
			want: `spec.volumes[0].projected.sources[0].podCertificate.userAnnotations: Invalid value: "example.com/a b": name part
spec.volumes[0].projected.sources[0].podCertificate.userAnnotations[example.com/a b]: Invalid value: "example.com/a b": name part
spec.volumes[0].projected.sources[0].podCertificate.userAnnotations[plain]: Invalid value: "plain": must be a domain-prefixed key`,
		},
		"claim of an ephemeral volume": {
			spec: `{volumes: [{name: a, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1}}}}}},
			  {name: b, persistentVolumeClaim: {claimName: p-a}}]}`,
			want: `spec.volumes[1].persistentVolumeClaim.claimName: Invalid value: "p-a": must not reference a PVC that gets created for an ephemeral volume`,
		},
		"unknown recursiveReadOnly": {
			spec: `{volumes: [{name: v, emptyDir: {}}], containers: [{name: c, image: i, volumeMounts: [{name: v, mountPath: /v, recursiveReadOnly: Never}]}]}`,
			want: `spec.containers[0].volumeMounts.recursiveReadOnly: Unsupported value: "Never": supported values: "Disabled", "Enabled", "IfPossible"`,
		},
		"ephemeral volume from an invalid API group": {
			spec: `{volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1}},
			  dataSourceRef: {apiGroup: a b, kind: K, name: x}}}}}]}`,
			want: `spec.volumes[0].ephemeral.volumeClaimTemplate.spec.dataSourceRef.apiGroup: Invalid value: "a b": a lowercase RFC 1123 subdomain`,
		},
	})
}

func TestPodSchedulingRules(t *testing.T) {
	checkSpecs(t, map[string]specCase{
		"tolerations": {
			spec: `{tolerations: [{operator: Equal}, {key: k, operator: Exists, value: v}, {key: k, effect: Never}]}`,
			want: `spec.tolerations[0].operator: Invalid value: "Equal": operator must be Exists when
spec.tolerations[1].operator: Invalid value: "v": value must be empty
spec.tolerations[2].effect: Unsupported value: "Never": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"`,
		},
		"topology spread constraints": {
			spec: `{topologySpreadConstraints: [
			  {maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, minDomains: 0},
			  {maxSkew: 0, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]}`,
			want: `spec.topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable}: Duplicate value: "{zone, DoNotSchedule}"
spec.topologySpreadConstraints[0].minDomains: Invalid value: 0: must be greater than zero
spec.topologySpreadConstraints[1].maxSkew: Invalid value: 0: must be greater than zero`,
		},
		"values that are no label values": {
			spec: `{affinity: {nodeAffinity: {
			  requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In, values: [b c]}]}]},
			  preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: a, operator: In, values: [b c]}]}}]}}}`,
			want: `spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].values[0]: Invalid value: "b c": a valid label must`,
		},
	})
}

func TestPodResourceRules(t *testing.T) {
	checkSpecs(t, map[string]specCase{
		"claims": {
			spec: `{resourceClaims: [{name: a}, {name: a, resourceClaimName: x}]}`,
			want: `spec.resourceClaims[0]: Invalid value: {"Name":"a","ResourceClaimName":null,"ResourceClaimTemplateName":null}: must specify one of
spec.resourceClaims[1].name: Duplicate value: "a"`,
		},
		"unknown resources": {
			spec: `{containers: [{name: c, image: i, resources: {limits: {gpu: 1}, claims: [{name: a}, {name: b, request: A}]}}], resourceClaims: [{name: b, resourceClaimName: x}]}`,
			want: `spec.containers[0].resources.limits[gpu]: Invalid value: "gpu": must be a standard resource type or fully qualified
spec.containers[0].resources.limits[gpu]: Invalid value: "gpu": must be a standard resource for containers
spec.containers[0].resources.requests[gpu]: Invalid value: "gpu": must be a standard resource type or fully qualified
spec.containers[0].resources.requests[gpu]: Invalid value: "gpu": must be a standard resource for containers
spec.containers[0].resources.claims[0]: Not found: "a": must be one of the names in pod.spec.resourceClaims: b
spec.containers[0].resources.claims[1].request: Invalid value: "A": a lowercase RFC 1123 label`,
		},
		"claims and their requests": {
			spec: `{resourceClaims: [{name: a, resourceClaimName: x}], containers: [
			  {name: c, image: i, resources: {claims: [{name: a, request: r}, {name: a, request: s}, {name: a, request: r}, {name: a}]}},
			  {name: d, image: i, resources: {claims: [{name: a}, {name: a, request: r}, {name: a}]}}]}`,
			want: `spec.containers[0].resources.claims[2]: Duplicate value: "a/r"
spec.containers[0].resources.claims[3]: Duplicate value: "a"
spec.containers[1].resources.claims[1]: Duplicate value: "a"
spec.containers[1].resources.claims[2]: Duplicate value: "a"`,
		},
		"half of a huge page": {
			spec: `{containers: [{name: c, image: i, resources: {requests: {cpu: 1, hugepages-2Mi: 1Mi}, limits: {hugepages-2Mi: 1Mi}}}]}`,
			want: `spec.containers[0].resources.limits[hugepages-2Mi]: Invalid value: "1Mi": 1Mi is not positive integer multiple of hugepages-2Mi
spec.containers[0].resources.requests[hugepages-2Mi]: Invalid value: "1Mi": 1Mi is not positive integer multiple of hugepages-2Mi`,
		},
		"pod-level resources below those of containers": {
			spec: `{resources: {requests: {cpu: 1}, limits: {cpu: 1}}, containers: [{name: c, image: i, resources: {requests: {cpu: 2}, limits: {cpu: 2}}}]}`,
			want: `spec.resources.requests[cpu]: Invalid value: "1": must be greater than or equal to aggregate container requests of 2
spec.resources.containers[0][cpu].limits: Invalid value: "2": must be less than or equal to pod limits of 1`,
		},
	})
}

func TestPodLifecycleRules(t *testing.T) {
	checkSpecs(t, map[string]specCase{
		"hook with two handlers": {
			spec: `{containers: [{name: c, image: i, lifecycle: {preStop: {exec: {command: [x]}, sleep: {seconds: 31}}}}]}`,
			want: `spec.containers[0].lifecycle.preStop.sleep: Forbidden: may not specify more than 1 handler type`,
		},
		"sleep longer than the grace period": {
			spec: `{containers: [{name: c, image: i, lifecycle: {preStop: {sleep: {seconds: 31}}}}]}`,
			want: `spec.containers[0].lifecycle.preStop.sleep: Invalid value: 31: must be non-negative and less than terminationGracePeriodSeconds (30)`,
		},
		"stop signal of a disabled feature": {
			spec: `{containers: [{name: c, image: i, lifecycle: {stopSignal: SIGNONE}}]}`,
		},
	})
}

// TestImageVolumeOfATemplate checks that what no pod may have is refused in the
// templates of pods, too.
func TestImageVolumeOfATemplate(t *testing.T) {
	p := newPod(t, `{volumes: [{name: v, image: {pullPolicy: IfNotPresent}}]}`)
	template := &corev1.PodTemplateSpec{Spec: p.Spec}
	errs := pod.ValidateTemplate(template, field.NewPath("template"), pod.Options{})
	if len(errs) != 1 || errs[0].Error() != "template.spec.volumes[0].image.reference: Required value" {
		t.Errorf("%v", errs)
	}
}

// checkSpecs creates valid pods with the fields of each case added to their
// spec, and compares all errors, in order, with the beginnings in the lines of
// want.
func checkSpecs(t *testing.T, cases map[string]specCase) {
	t.Helper()
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			p := newPod(t, test.spec)
			errs := resourcetest.BeforeCreate(pod.Pods(), &resource.RequestContext{Now: noon, Namespace: "default"}, p)
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

// newPod returns a valid pod with the given fields of its spec set.
func newPod(t *testing.T, spec string) *corev1.Pod {
	t.Helper()
	r := pod.Pods()
	p := r.Hub().New().(*corev1.Pod)
	p.Name, p.Namespace = "p", "default"
	p.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	if err := yaml.Unmarshal([]byte(strings.ReplaceAll(spec, "\t", " ")), &p.Spec); err != nil {
		t.Fatal(err)
	}
	r.Hub().Default(p)
	return p
}

func TestImagePullPolicyDefault(t *testing.T) {
	for image, want := range map[string]corev1.PullPolicy{
		"nginx":                           corev1.PullAlways,
		"nginx:latest":                    corev1.PullAlways,
		"nginx:1.2":                       corev1.PullIfNotPresent,
		"registry.example:5000/nginx":     corev1.PullAlways,
		"registry.example:5000/nginx:1.2": corev1.PullIfNotPresent,
		"nginx@sha256:" + strings.Repeat("a", 64): corev1.PullIfNotPresent,
		"Bad Image": corev1.PullIfNotPresent,
	} {
		p := newPod(t, "")
		p.Spec.Containers[0] = corev1.Container{Name: "c", Image: image}
		pod.DefaultSpec(&p.Spec)
		if got := p.Spec.Containers[0].ImagePullPolicy; got != want {
			t.Errorf("%s: %s, want %s", image, got, want)
		}
	}
}
