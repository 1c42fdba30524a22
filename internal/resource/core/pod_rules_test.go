package core_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core"
)

// Each case adds to the spec of a good pod. What is wrong with it must be
// said, all of it, and by the right names.
func TestPodRules(t *testing.T) {
	for name, test := range map[string]struct{ spec, want string }{
		"good": {},
		"everything of the host": {
			spec: `{hostNetwork: true, hostIPC: true, hostPID: true, shareProcessNamespace: true,
			  securityContext: {sysctls: [{name: net.core.somaxconn, value: "1"}, {name: kernel.shmmax, value: "1"}]}}`,
			want: `spec.securityContext.shareProcessNamespace: Invalid value: true: ShareProcessNamespace and HostPID cannot both be enabled
spec.securityContext.sysctls[0].name: Invalid value: "net.core.somaxconn": may not be specified when 'hostNetwork' is true
spec.securityContext.sysctls[1].name: Invalid value: "kernel.shmmax": may not be specified when 'hostIPC' is true`,
		},
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
		"tolerations": {
			spec: `{tolerations: [{operator: Equal}, {key: k, operator: Exists, value: v}, {key: k, effect: Never}]}`,
			want: `spec.tolerations[0].operator: Invalid value: "Equal": operator must be Exists when
spec.tolerations[1].operator: Invalid value: "v": value must be empty
spec.tolerations[2].effect: Unsupported value: "Never": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"`,
		},
		"spread": {
			spec: `{topologySpreadConstraints: [
			  {maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, minDomains: 0},
			  {maxSkew: 0, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]}`,
			want: `spec.topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable}: Duplicate value: "{zone, DoNotSchedule}"
spec.topologySpreadConstraints[0].minDomains: Invalid value: 0: must be greater than zero
spec.topologySpreadConstraints[1].maxSkew: Invalid value: 0: must be greater than zero`,
		},
		"claims": {
			spec: `{resourceClaims: [{name: a}, {name: a, resourceClaimName: x}]}`,
			want: `spec.resourceClaims[0]: Invalid value: {"Name":"a","ResourceClaimName":null,"ResourceClaimTemplateName":null}: must specify one of
spec.resourceClaims[1].name: Duplicate value: "a"`,
		},
		"users of its own": {
			spec: `{hostUsers: false, hostNetwork: true, volumes: [{name: v, persistentVolumeClaim: {claimName: c}}],
			  containers: [{name: c, image: i, volumeDevices: [{name: v, devicePath: /dev/x}]}]}`,
			want: "spec.hostNetwork: Forbidden: when `hostUsers` is false\nspec.containers[0].volumeDevices: Forbidden: when `hostUsers` is false",
		},
		"a Windows pod": {
			spec: `{os: {name: windows}, securityContext: {runAsUser: 1}}`,
			want: `spec.securityContext.runAsUser: Forbidden: cannot be set for a windows pod`,
		},
		"init containers": {
			spec: `{initContainers: [{name: c, image: i, readinessProbe: {tcpSocket: {port: 0}}}]}`,
			want: `spec.initContainers[0].name: Duplicate value: "c"
spec.initContainers[0].readinessProbe: Forbidden: may not be set for init containers without restartPolicy=Always`,
		},
		"an init container that is resized": {
			spec: `{initContainers: [{name: i, image: i, resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}],
			  ports: [{containerPort: 1, hostPort: 5}, {containerPort: 2, hostPort: 5}]}]}`,
			want: `spec.initContainers[0].ports[1].hostPort: Duplicate value: "TCP//5"
spec.initContainers[0].resizePolicy: Invalid value: [{"ResourceName":"cpu","RestartPolicy":"NotRequired"}]: must not be set for init containers`,
		},
		"resizing": {
			spec: `{containers: [{name: c, image: i, resizePolicy: [{resourceName: disk}]}]}`,
			want: `spec.containers[0].resizePolicy: Unsupported value: "disk": supported values: "cpu", "memory"
spec.containers[0].resizePolicy: Required value`,
		},
		"resources nobody knows": {
			spec: `{containers: [{name: c, image: i, resources: {limits: {gpu: 1}, claims: [{name: a}, {name: b, request: A}]}}], resourceClaims: [{name: b, resourceClaimName: x}]}`,
			want: `spec.containers[0].resources.limits[gpu]: Invalid value: "gpu": must be a standard resource type or fully qualified
spec.containers[0].resources.limits[gpu]: Invalid value: "gpu": must be a standard resource for containers
spec.containers[0].resources.requests[gpu]: Invalid value: "gpu": must be a standard resource type or fully qualified
spec.containers[0].resources.requests[gpu]: Invalid value: "gpu": must be a standard resource for containers
spec.containers[0].resources.claims[0]: Not found: "a": must be one of the names in pod.spec.resourceClaims: b
spec.containers[0].resources.claims[1].request: Invalid value: "A": a lowercase RFC 1123 label`,
		},
		"half a huge page": {
			spec: `{containers: [{name: c, image: i, resources: {requests: {cpu: 1, hugepages-2Mi: 1Mi}, limits: {hugepages-2Mi: 1Mi}}}]}`,
			want: `spec.containers[0].resources.limits[hugepages-2Mi]: Invalid value: "1Mi": 1Mi is not positive integer multiple of hugepages-2Mi
spec.containers[0].resources.requests[hugepages-2Mi]: Invalid value: "1Mi": 1Mi is not positive integer multiple of hugepages-2Mi`,
		},
		"too little for its containers": {
			spec: `{resources: {requests: {cpu: 1}, limits: {cpu: 1}}, containers: [{name: c, image: i, resources: {requests: {cpu: 2}, limits: {cpu: 2}}}]}`,
			want: `spec.resources.requests[cpu]: Invalid value: "1": must be greater than or equal to aggregate container requests of 2
spec.resources.containers[0][cpu].limits: Invalid value: "2": must be less than or equal to pod limits of 1`,
		},
		"a claim of its own making": {
			spec: `{volumes: [{name: a, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1}}}}}},
			  {name: b, persistentVolumeClaim: {claimName: p-a}}]}`,
			want: `spec.volumes[1].persistentVolumeClaim.claimName: Invalid value: "p-a": must not reference a PVC that gets created for an ephemeral volume`,
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
		"an unknown system": {
			spec: `{os: {name: plan9}}`,
			want: `spec.os: Unsupported value: "plan9": supported values: "linux", "windows"`,
		},
		"privileged without privileges": {
			spec: `{containers: [{name: c, image: i, securityContext: {privileged: true, allowPrivilegeEscalation: false}}]}`,
			want: "spec.containers[0].securityContext: Invalid value: {\"Capabilities\":null,\"Privileged\":true,\"SELinuxOptions\":null,",
		},
		"a hook of two kinds": {
			spec: `{containers: [{name: c, image: i, lifecycle: {preStop: {exec: {command: [x]}, sleep: {seconds: 31}}}}]}`,
			want: `spec.containers[0].lifecycle.preStop.sleep: Forbidden: may not specify more than 1 handler type`,
		},
		"a hook that oversleeps": {
			spec: `{containers: [{name: c, image: i, lifecycle: {preStop: {sleep: {seconds: 31}}}}]}`,
			want: `spec.containers[0].lifecycle.preStop.sleep: Invalid value: 31: must be non-negative and less than terminationGracePeriodSeconds (30)`,
		},
		"a seccomp profile of no type": {
			spec: `{securityContext: {seccompProfile: {localhostProfile: p}}}`,
			want: `spec.securityContext.seccompProfile.type: Required value: type is required when seccompProfile is set
spec.securityContext.seccompProfile.localhostProfile: Invalid value: {"Type":"","LocalhostProfile":"p"}: can only be set when seccomp type is Localhost`,
		},
		"values that labels cannot have": {
			spec: `{affinity: {nodeAffinity: {
			  requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In, values: [b c]}]}]},
			  preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: a, operator: In, values: [b c]}]}}]}}}`,
			want: `spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].values[0]: Invalid value: "b c": a valid label must`,
		},
		"a mount that is read-only in a new way": {
			spec: `{volumes: [{name: v, emptyDir: {}}], containers: [{name: c, image: i, volumeMounts: [{name: v, mountPath: /v, recursiveReadOnly: Never}]}]}`,
			want: `spec.containers[0].volumeMounts.recursiveReadOnly: Unsupported value: "Never": supported values: "Disabled", "Enabled", "IfPossible"`,
		},
		"a claim of its own from a source of no group": {
			spec: `{volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1}},
			  dataSourceRef: {apiGroup: a b, kind: K, name: x}}}}}]}`,
			want: `spec.volumes[0].ephemeral.volumeClaimTemplate.spec.dataSourceRef.apiGroup: Invalid value: "a b": a lowercase RFC 1123 subdomain`,
		},
		"a stop signal, which is of a feature that is off": {
			spec: `{containers: [{name: c, image: i, lifecycle: {stopSignal: SIGNONE}}]}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := newPod(t, test.spec)
			errs := resource.BeforeCreate(core.Pods(), &resource.Request{Now: noon, Namespace: "default"}, pod)
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

// newPod is a good pod with the given fields of its spec set.
func newPod(t *testing.T, spec string) *corev1.Pod {
	t.Helper()
	r := core.Pods()
	pod := r.Hub().New().(*corev1.Pod)
	pod.Name, pod.Namespace = "p", "default"
	pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	if err := yaml.Unmarshal([]byte(strings.ReplaceAll(spec, "\t", " ")), &pod.Spec); err != nil {
		t.Fatal(err)
	}
	r.Hub().Default(pod)
	return pod
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
		pod := newPod(t, "")
		pod.Spec.Containers[0] = corev1.Container{Name: "c", Image: image}
		core.DefaultPodSpec(&pod.Spec)
		if got := pod.Spec.Containers[0].ImagePullPolicy; got != want {
			t.Errorf("%s: %s, want %s", image, got, want)
		}
	}
}
