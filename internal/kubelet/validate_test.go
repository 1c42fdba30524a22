package kubelet

import (
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/spec"
)

// check validates the defaults with the settings in text.
func check(t *testing.T, text string) error {
	t.Helper()
	k := &kubeletconfig.KubeletConfiguration{}
	if err := yaml.UnmarshalStrict([]byte(text), k); err != nil {
		t.Fatal(err)
	}
	DefaultConfiguration(k)
	return Validate(k)
}

// refuses checks that each configuration has the one error that contains the text.
func refuses(t *testing.T, configurations map[string]string) {
	t.Helper()
	for text, want := range configurations {
		if err := check(t, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		} else if n := len(strings.Split(err.Error(), "\n")); n != 1 {
			t.Errorf("%s: %d errors: %v", text, n, err)
		}
	}
}

// A setting that has no effect in this kubelet, or a value that makes no sense,
// is refused by the name of its field.
func TestInvalidConfigurations(t *testing.T) {
	refuses(t, map[string]string{
		"syncFrequency: -1s":      "syncFrequency -1s must be greater than 0",
		"fileCheckFrequency: -1s": "fileCheckFrequency (--file-check-frequency) -1s must be greater than 0",
		"httpCheckFrequency: -1s": "httpCheckFrequency",
		"{nodeStatusUpdateFrequency: -1s, nodeStatusReportFrequency: 1m}": "nodeStatusUpdateFrequency",
		"containerLogMonitorInterval: 0s":                                 "containerLogMonitorInterval 0s",
		"nodeLeaseDurationSeconds: -40":                                   "nodeLeaseDurationSeconds -40 must not be less than 1",
		"port: 70000":                                                     "port (--port) 70000 must be between 1 and 65535, inclusive",
		"oomScoreAdj: 1001":                                               "oomScoreAdj (--oom-score-adj) 1001 must be between -1000 and 1000, inclusive",
		"maxPods: -1":                                                     "maxPods",
		"imageGCHighThresholdPercent: 101":                                "imageGCHighThresholdPercent",
		"imageGCHighThresholdPercent: 50":                                 "imageGCLowThresholdPercent (--image-gc-low-threshold) 80 must be less than imageGCHighThresholdPercent (--image-gc-high-threshold) 50",
		"imageMaximumGCAge: 1m":                                           "imageMaximumGCAge 1m0s must be greater than imageMinimumGCAge 2m0s",
		"{maxParallelImagePulls: 3, serializeImagePulls: true}":           "maxParallelImagePulls 3 cannot be larger than 1 unless serializeImagePulls",
		"containerLogMaxFiles: 1":                                         "containerLogMaxFiles",
		"crashLoopBackOff: {maxContainerRestartPeriod: 1h}":               "crashLoopBackOff.maxContainerRestartPeriod 1h0m0s must be between 1s and 300s",
		"cpuCFSQuotaPeriod: 999us":                                        "cpuCFSQuotaPeriod (--cpu-cfs-quota-period) 999µs must be between 1ms and 1sec, inclusive",
		"cpuCFSQuotaPeriod: 1001ms":                                       "cpuCFSQuotaPeriod (--cpu-cfs-quota-period) 1.001s must be between 1ms and 1sec, inclusive",
		"{cpuCFSQuotaPeriod: 5ms, featureGates: {CustomCPUCFSQuotaPeriod: false}}": "cpuCFSQuotaPeriod (--cpu-cfs-quota-period) 5ms requires feature gate CustomCPUCFSQuotaPeriod",
		"memoryThrottlingFactor: 0":                                                      "memoryThrottlingFactor 0 must be greater than 0 and less than or equal to 1.0",
		"memoryThrottlingFactor: 1.1":                                                    "memoryThrottlingFactor 1.1 must be greater than 0 and less than or equal to 1.0",
		"memoryReservationPolicy: All":                                                   `option "All" specified for memoryReservationPolicy. Valid options are "None" or "TieredReservation"`,
		"{memoryThrottlingFactor: 0.8, featureGates: {MemoryQoS: false}}":                "memoryThrottlingFactor must not be set when MemoryQoS feature gate is disabled",
		"{memoryReservationPolicy: TieredReservation, featureGates: {MemoryQoS: false}}": `memoryReservationPolicy "TieredReservation" requires MemoryQoS feature gate to be enabled`,
		"clusterDNS: [dns.example]":                                                      `clusterDNS (--cluster-dns) "dns.example" is not an IP address`,
		"healthzBindAddress: nowhere":                                                    "healthzBindAddress",
		"configMapAndSecretChangeDetectionStrategy: No":                                  "configMapAndSecretChangeDetectionStrategy",
		"featureGates: {NoSuchGate: true}":                                               "unrecognized feature gate: NoSuchGate",
		"featureGates: {DRAOptionalNodeOperations: true}":                                "featureGates (--feature-gates): DRAOptionalNodeOperations=true: this kubelet does not have this feature",
		"cpuManagerPolicy: dynamic":                                                      `cpuManagerPolicy (--cpu-manager-policy): unknown policy: "dynamic"`,
		"cpuManagerPolicyOptions: {full-pcpus-only: 'true'}":                             "None policy: received unsupported options=map[full-pcpus-only:true]",
		"{cpuManagerPolicy: static, cpuManagerPolicyOptions: {other: 'true'}}":           `unknown CPU Manager Policy option: "other"`,
		"{cpuManagerPolicy: static, cpuManagerPolicyOptions: {align-by-socket: 'true'}}": `CPU Manager Policy Alpha-level Options not enabled, but option "align-by-socket" provided`,
		"{cpuManagerPolicy: static, cpuManagerPolicyOptions: {full-pcpus-only: maybe}}":  `bad value for option "full-pcpus-only"`,
		"{cpuManagerPolicy: static, cpuManagerPolicyOptions: {distribute-cpus-across-numa: 'true', prefer-align-cpus-by-uncorecache: 'true'}}": "can not be used at the same time",
		"cpuManagerReconcilePeriod: -1s":                                                           "cpuManagerReconcilePeriod (--cpu-manager-reconcile-period) -1s must be greater than 0",
		"reservedSystemCPUs: x":                                                                    "unable to parse reservedSystemCPUs (--reserved-cpus) x",
		"reservedSystemCPUs: 0-999999999":                                                          "CPU 999999999 is out of range",
		"memoryManagerPolicy: static":                                                              `memoryManagerPolicy (--memory-manager-policy): unknown policy: "static"`,
		"topologyManagerPolicy: best":                                                              `topologyManagerPolicy (--topology-manager-policy) "best" must be one of: ["none" "best-effort" "restricted" "single-numa-node"]`,
		"topologyManagerScope: node":                                                               `topologyManagerScope (--topology-manager-scope) "node" must be one of: "container", or "pod"`,
		"topologyManagerPolicyOptions: {other: 'true'}":                                            `unknown Topology Manager Policy option: "other"`,
		"topologyManagerPolicyOptions: {max-allowable-numa-nodes: '4'}":                            `the minimum value of "max-allowable-numa-nodes" should not be less than 8`,
		"reservedMemory: [{numaNode: 0, limits: {cpu: 1}}]":                                        `the limit type "cpu" for NUMA node 0 is not supported, only [memory hugepages-<HugePageSize>] is accepted`,
		"reservedMemory: [{numaNode: 0, limits: {memory: 0}}]":                                     `reserved memory may not be zero for NUMA node 0 and resource "memory"`,
		"reservedMemory: [{numaNode: 1, limits: {memory: 1}}, {numaNode: 1, limits: {memory: 2}}]": `the reserved memory has a duplicate value for NUMA node 1 and resource "memory"`,
		"memorySwap: {swapBehavior: UnlimitedSwap}":                                                "memorySwap.swapBehavior UnlimitedSwap is not supported",
		"tracing: {samplingRatePerMillion: -1}":                                                    "tracing.samplingRatePerMillion: Invalid value: -1: sampling rate must be positive",
		"tracing: {endpoint: 'http://localhost:4317'}":                                             "tracing.endpoint: Invalid value",
		"logging: {format: xml}":                                                                   "logging.format xml (--logging-format) is not supported",
		"logging: {vmodule: [{filePattern: a, verbosity: 2}]}":                                     "logging.vmodule is not supported",
		"userNamespaces: {idsPerPod: 131072}":                                                      "userNamespaces.idsPerPod is not supported",
		"readOnlyPort: 10255":                                                                      "readOnlyPort is not supported",
		"{enforceNodeAllocatable: [system-reserved], systemReserved: {cpu: '1'}}":                  "systemReservedCgroup (--system-reserved-cgroup) must be set",
		"{enforceNodeAllocatable: [kube-reserved], kubeReservedCgroup: /kube.slice}":               "enforceNodeAllocatable (--enforce-node-allocatable) has kube-reserved, but nothing is reserved for it",
		"enforceNodeAllocatable: [everything]":                                                     "enforceNodeAllocatable (--enforce-node-allocatable) \"everything\"",
		"enforceNodeAllocatable: [none, pods]":                                                     "none cannot be used together with pods",
		"shutdownGracePeriodCriticalPods: 30s":                                                     "shutdownGracePeriodCriticalPods 30s must be <= shutdownGracePeriod 0s",
		"{enableSystemLogQuery: true, enableSystemLogHandler: false}":                              "enableSystemLogHandler is required for enableSystemLogQuery",
		"hairpinMode: sometimes":                                                                   "hairpinMode (--hairpin-mode)",
		"tlsMinVersion: SSL3":                                                                      "tlsMinVersion (--tls-min-version)",
		"tlsCipherSuites: [ROT13]":                                                                 "tlsCipherSuites (--tls-cipher-suites)",
		"cgroupDriver: initd":                                                                      "cgroupDriver (--cgroup-driver)",
	})
}

// Entries of lists and maps, and settings that go without each other.
func TestInvalidEntries(t *testing.T) {
	const cpus = "can't use reservedSystemCPUs (--reserved-cpus) with systemReservedCgroup (--system-reserved-cgroup) or kubeReservedCgroup (--kube-reserved-cgroup)"
	refuses(t, map[string]string{
		"{reservedSystemCPUs: 0-3, systemReservedCgroup: /system.slice}": cpus,
		"{reservedSystemCPUs: 0-3, kubeReservedCgroup: /kube.slice}":     cpus,

		"cgroupsPerQOS: false":                 `cgroupsPerQOS (--cgroups-per-qos) must be set to true when "pods" contained in enforceNodeAllocatable (--enforce-node-allocatable)`,
		"enforceNodeAllocatable: [pods, pods]": `duplicated enforcements "pods" in enforceNodeAllocatable (--enforce-node-allocatable)`,
		"enforceNodeAllocatable: [none, none]": `duplicated enforcements "none" in enforceNodeAllocatable (--enforce-node-allocatable)`,

		"registerWithTaints: [{key: a b, effect: NoSchedule}]":                                  `registerWithTaints (--register-with-taints): invalid taint: "a b:NoSchedule"`,
		"registerWithTaints: [{key: a, value: '*', effect: NoSchedule}]":                        `invalid taint: "a=*:NoSchedule"`,
		"registerWithTaints: [{key: a, effect: Never}]":                                         `invalid taint: "a:Never"`,
		"registerWithTaints: [{key: a}]":                                                        `invalid taint: "a"`,
		"registerWithTaints: [{key: a, effect: NoSchedule, timeAdded: '2026-01-01T00:00:00Z'}]": `taint "a:NoSchedule": timeAdded must not be set`,

		"{defaultPodSysctls: {net.ipv4.ip@forward: '1'}, featureGates: {DefaultPodSysctls: true}}":                           `"net.ipv4.ip@forward" is not a valid sysctl name for defaultPodSysctls`,
		"{defaultPodSysctls: {Net.core.somaxconn: '1'}, featureGates: {DefaultPodSysctls: true}}":                            `"Net.core.somaxconn" is not a valid sysctl name for defaultPodSysctls`,
		"{defaultPodSysctls: {kernel.printk: '7'}, featureGates: {DefaultPodSysctls: true}}":                                 `"kernel.printk" is not known to be namespaced for defaultPodSysctls`,
		"{defaultPodSysctls: {net.ipv4.ip_forward: '1', net/ipv4/ip_forward: '1'}, featureGates: {DefaultPodSysctls: true}}": `duplicate sysctl "net.ipv4.ip_forward" found in defaultPodSysctls`,

		"podLogsDir: logs":                                    `podLogsDir: pod logs path "logs" must be absolute path`,
		"podLogsDir: /var/../logs":                            `podLogsDir: pod logs path "/var/../logs" must be normalized`,
		"containerLogMonitorInterval: 2999ms":                 "containerLogMonitorInterval 2.999s must be a positive time duration greater than or equal to 3s",
		"logging: {flushFrequency: -1s}":                      "logging.flushFrequency -1s must be greater than zero",
		"logging: {options: {text: {splitStream: true}}}":     "logging.options.text is not supported by this kubelet",
		"logging: {options: {json: {infoBufferSize: '1Ki'}}}": "logging.options.json is not supported by this kubelet",
	})
}

// Settings of features that are off.
func TestSettingsThatNeedAGate(t *testing.T) {
	refuses(t, map[string]string{
		"defaultPodSysctls: {net.core.somaxconn: '1024'}":                                                                                                                                       "defaultPodSysctls requires feature gate DefaultPodSysctls",
		"{serverTLSBootstrap: true, featureGates: {RotateKubeletServerCertificate: false}}":                                                                                                     "serverTLSBootstrap (--rotate-server-certificates) true requires feature gate RotateKubeletServerCertificate",
		"{shutdownGracePeriod: 30s, featureGates: {GracefulNodeShutdown: false, GracefulNodeShutdownBasedOnPodPriority: false, WindowsGracefulNodeShutdown: false}}":                            "specifying shutdownGracePeriod or shutdownGracePeriodCriticalPods requires feature gate GracefulNodeShutdown",
		"{shutdownGracePeriodByPodPriority: [{priority: 0, shutdownGracePeriodSeconds: 10}], featureGates: {GracefulNodeShutdownBasedOnPodPriority: false}}":                                    "specifying shutdownGracePeriodByPodPriority requires feature gate GracefulNodeShutdownBasedOnPodPriority",
		"{crashLoopBackOff: {maxContainerRestartPeriod: 1m}, featureGates: {KubeletCrashLoopBackOffMax: false}}":                                                                                "crashLoopBackOff.maxContainerRestartPeriod 1m0s requires feature gate KubeletCrashLoopBackOffMax",
		"{imagePullCredentialsVerificationPolicy: NeverVerify, featureGates: {KubeletEnsureSecretPulledImages: false}}":                                                                         "specifying imagePullCredentialsVerificationPolicy or preloadedImagesVerificationAllowlist requires feature gate KubeletEnsureSecretPulledImages",
		"{imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages, preloadedImagesVerificationAllowlist: [example.com/a], featureGates: {KubeletEnsureSecretPulledImages: false}}": "requires feature gate KubeletEnsureSecretPulledImages",
	})
}

// Values that mean what this kubelet does are accepted, as in the files that
// kubeadm writes.
func TestValidConfigurations(t *testing.T) {
	const kubeadm = `
cpuManagerReconcilePeriod: 0s
evictionPressureTransitionPeriod: 0s
fileCheckFrequency: 0s
imageMaximumGCAge: 0s
imageMinimumGCAge: 0s
logging: {flushFrequency: 0, options: {json: {infoBufferSize: "0"}, text: {infoBufferSize: "0"}}, verbosity: 0}
memorySwap: {}
runtimeRequestTimeout: 0s
shutdownGracePeriod: 0s
shutdownGracePeriodCriticalPods: 0s
syncFrequency: 0s
volumeStatsAggPeriod: 0s
`
	for _, text := range []string{"", kubeadm, "logging: {format: json, verbosity: 4}", "cpuManagerPolicy: none", "memorySwap: {swapBehavior: NoSwap}", "memorySwap: {swapBehavior: LimitedSwap}", "serializeImagePulls: false\nmaxParallelImagePulls: 3", "enforceNodeAllocatable: [none]", "enableControllerAttachDetach: true", "cpuCFSQuotaPeriod: 1ms", "cpuCFSQuotaPeriod: 1s", "{cpuCFSQuotaPeriod: 100ms, featureGates: {CustomCPUCFSQuotaPeriod: false}}",
		"maxParallelImagePulls: 3", "{cgroupsPerQOS: false, enforceNodeAllocatable: [none]}", "{cgroupsPerQOS: false, enforceNodeAllocatable: []}",
		"podPidsLimit: -7", "evictionMaxPodGracePeriod: -30", "containerLogMonitorInterval: 3s", "registerWithTaints: [{key: example.com/a, value: b, effect: NoExecute}]",
		"{defaultPodSysctls: {net/core/somaxconn: '1024', kernel.shm_rmid_forced: '1'}, featureGates: {DefaultPodSysctls: true}}",
		"featureGates: {KubeletCrashLoopBackOffMax: false, KubeletEnsureSecretPulledImages: false}",
		"memoryThrottlingFactor: 1", "tracing: {}", "tracing: {endpoint: 'localhost:4317', samplingRatePerMillion: 100}", "memoryReservationPolicy: TieredReservation", "{memoryThrottlingFactor: 0.9, memoryReservationPolicy: None, featureGates: {MemoryQoS: false}}"} {
		if err := check(t, text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// Every field of the configuration is either used in this kubelet or refused.
// This counts the fields, so that a new one is decided on.
func TestNoFieldIsForgotten(t *testing.T) {
	const known = 127
	if n := reflect.TypeFor[kubeletconfig.KubeletConfiguration]().NumField(); n != known {
		t.Errorf("KubeletConfiguration has %d fields, of which %d are used or refused: add the others to unsupportedResources or unsupportedOperation, unless they have an effect", n, known)
	}
}

// Defaults that follow from other settings.
func TestDependentDefaults(t *testing.T) {
	for text, want := range map[string]struct {
		serialize bool
		report    time.Duration
		pids      int64
	}{
		"":                              {true, 5 * time.Minute, -1},
		"maxParallelImagePulls: 1":      {true, 5 * time.Minute, -1},
		"maxParallelImagePulls: 2":      {false, 5 * time.Minute, -1},
		"nodeStatusUpdateFrequency: 4s": {true, 4 * time.Second, -1},
		"{nodeStatusUpdateFrequency: 4s, nodeStatusReportFrequency: 1m}": {true, time.Minute, -1},
		"podPidsLimit: -9": {true, 5 * time.Minute, -1},
		"podPidsLimit: 0":  {true, 5 * time.Minute, 0},
	} {
		k := &kubeletconfig.KubeletConfiguration{}
		if err := yaml.UnmarshalStrict([]byte(text), k); err != nil {
			t.Fatal(err)
		}
		DefaultConfiguration(k)
		if *k.SerializeImagePulls != want.serialize || k.NodeStatusReportFrequency.Duration != want.report || *k.PodPidsLimit != want.pids {
			t.Errorf("%q: serializeImagePulls %t, nodeStatusReportFrequency %s, podPidsLimit %d, want %+v",
				text, *k.SerializeImagePulls, k.NodeStatusReportFrequency.Duration, *k.PodPidsLimit, want)
		}
	}
}

func TestDefaultEvictionSettingsAreMerged(t *testing.T) {
	merge := true
	for name, test := range map[string]struct {
		merge *bool
		want  map[string]string
	}{
		"replaced": {nil, map[string]string{"memory.available": "1Gi"}},
		"merged": {&merge, map[string]string{
			"memory.available": "1Gi", "nodefs.available": "10%", "nodefs.inodesFree": "5%", "imagefs.available": "15%", "imagefs.inodesFree": "5%",
		}},
	} {
		k := &kubeletconfig.KubeletConfiguration{EvictionHard: map[string]string{"memory.available": "1Gi"}, MergeDefaultEvictionSettings: test.merge}
		if DefaultConfiguration(k); !maps.Equal(k.EvictionHard, test.want) {
			t.Errorf("%s: %v", name, k.EvictionHard)
		}
	}
}

// A kubelet does not start on a machine that its configuration refuses.
func TestMachineThatIsRefused(t *testing.T) {
	const header = "Filename\tType\tSize\tUsed\tPriority\n"
	yes, no := true, false
	for name, test := range map[string]struct {
		swaps    string
		version2 bool
		swap, v1 *bool
		behavior string
		want     string
	}{
		"swap is on":                     {header + "/dev/sdb1 partition 4 0 -2\n", true, &yes, nil, "", "running with swap on is not supported"},
		"swap is fine":                   {header + "/dev/sdb1 partition 4 0 -2\n", true, &no, nil, "", ""},
		"no swap":                        {header, true, &yes, &yes, "", ""},
		"cgroup v1":                      {header, false, nil, &yes, "", "cgroup v1"},
		"cgroup v1 fine":                 {header, false, nil, &no, "", ""},
		"limited swap without cgroup v2": {header, false, nil, &no, spec.LimitedSwap, "memorySwap.swapBehavior LimitedSwap needs control groups of version 2"},
	} {
		disk := &files.Memory{}
		for _, dir := range []string{"/proc", "/sys/fs/cgroup"} {
			if err := disk.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := disk.WriteFile("/proc/swaps", []byte(test.swaps), 0o444); err != nil {
			t.Fatal(err)
		}
		if test.version2 {
			if err := disk.WriteFile("/sys/fs/cgroup/cgroup.controllers", nil, 0o444); err != nil {
				t.Fatal(err)
			}
		}
		c := Config{Files: disk}
		c.Configuration.FailSwapOn, c.Configuration.FailCgroupV1 = test.swap, test.v1
		c.Configuration.MemorySwap.SwapBehavior = test.behavior
		err := c.checkMachine()
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}
