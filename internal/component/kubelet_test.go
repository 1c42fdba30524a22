package component

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/coracle-io/coracle/internal/flagvalue"
	"github.com/coracle-io/coracle/internal/kubelet"
)

// kubeletWith returns a kubelet with a command line. In it and in the files, DIR
// is a directory with the files.
func kubeletWith(t *testing.T, line string, files map[string]string) *Kubelet {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "DIR", dir)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	k := NewKubelet()
	fs := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	k.AddFlags(fs)
	if err := fs.Parse(strings.Fields(strings.ReplaceAll(line, "DIR", dir))); err != nil {
		t.Fatal(err)
	}
	if err := flagvalue.Check(fs); err != nil {
		t.Fatal(err)
	}
	return k
}

const kubeletHead = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

// upstreamKubeletFlags are the flags of upstream's reference, without those about
// help and versions.
const upstreamKubeletFlags = `address allowed-unsafe-sysctls anonymous-auth authentication-token-webhook authentication-token-webhook-cache-ttl
authorization-mode authorization-webhook-cache-authorized-ttl authorization-webhook-cache-unauthorized-ttl bootstrap-kubeconfig cert-dir
cgroup-driver cgroup-root cgroups-per-qos client-ca-file cloud-provider cluster-dns cluster-domain config config-dir container-log-max-files
container-log-max-size container-runtime-endpoint contention-profiling cpu-cfs-quota cpu-cfs-quota-period cpu-manager-policy
cpu-manager-policy-options cpu-manager-reconcile-period enable-controller-attach-detach enable-debugging-handlers enable-server
enforce-node-allocatable event-burst event-qps eviction-hard eviction-max-pod-grace-period eviction-minimum-reclaim
eviction-pressure-transition-period eviction-soft eviction-soft-grace-period exit-on-lock-contention experimental-allocatable-ignore-eviction
experimental-mounter-path fail-cgroupv1 fail-swap-on feature-gates file-check-frequency hairpin-mode healthz-bind-address healthz-port
hostname-override http-check-frequency image-credential-provider-bin-dir image-credential-provider-config image-gc-high-threshold
image-gc-low-threshold image-service-endpoint kernel-memcg-notification kube-api-burst kube-api-content-type kube-api-qps kube-reserved
kube-reserved-cgroup kubeconfig kubelet-cgroups local-storage-capacity-isolation lock-file log-flush-frequency log-text-info-buffer-size
log-text-split-stream logging-format make-iptables-util-chains manifest-url manifest-url-header max-open-files max-pods maximum-dead-containers
maximum-dead-containers-per-container memory-manager-policy minimum-container-ttl-duration minimum-image-ttl-duration node-ip node-labels
node-status-max-images node-status-update-frequency oom-score-adj pod-cidr pod-infra-container-image pod-manifest-path pod-max-pids
pods-per-core port protect-kernel-defaults provider-id qos-reserved read-only-port register-node register-with-taints registry-burst
registry-qps reserved-cpus reserved-memory resolv-conf root-dir rotate-certificates rotate-server-certificates runonce runtime-cgroups
runtime-request-timeout seccomp-default serialize-image-pulls streaming-connection-idle-timeout sync-frequency system-cgroups system-reserved
system-reserved-cgroup tls-cert-file tls-cipher-suites tls-min-version tls-private-key-file topology-manager-policy
topology-manager-policy-options topology-manager-scope vmodule volume-plugin-dir volume-stats-agg-period`

func TestEachFlagOfUpstreamsKubeletIsKnown(t *testing.T) {
	fs := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	NewKubelet().AddFlags(fs)
	for name := range strings.FieldsSeq(upstreamKubeletFlags) {
		if fs.Lookup(name) == nil {
			t.Errorf("--%s is not known", name)
		}
	}
}

// The adjustment of the process's OOM score is upstream's, that of the file, or
// that of the flag.
func TestOOMScoreAdj(t *testing.T) {
	files := map[string]string{"k.yaml": kubeletHead + "oomScoreAdj: -500\n"}
	for line, want := range map[string]int{"": -999, "--config=DIR/k.yaml": -500, "--config=DIR/k.yaml --oom-score-adj=7": 7} {
		k := kubeletWith(t, line, files)
		if got, err := k.OOMScoreAdj(); err != nil || got != want {
			t.Errorf("%q: %d (%v), want %d", line, got, err, want)
		}
		if err := k.Validate(); err != nil {
			t.Errorf("%q: %v", line, err)
		}
	}
	if got, err := KubeletOOMScoreAdj([]string{"oom-score-adj=-998"}); err != nil || got != -998 {
		t.Errorf("by arguments: %d (%v)", got, err)
	}
	if _, err := kubeletWith(t, "--config=DIR/gone.yaml", nil).OOMScoreAdj(); err == nil {
		t.Error("a file that is not there is no error")
	}
}

// The control group of the container runtime is a flag alone, as upstream.
func TestRuntimeCgroups(t *testing.T) {
	k := kubeletWith(t, "--runtime-cgroups=/system.slice/containerd.service", nil)
	if err := k.Validate(); err != nil || k.Config.RuntimeProcess.CGroup != "/system.slice/containerd.service" {
		t.Errorf("it is %q (%v)", k.Config.RuntimeProcess.CGroup, err)
	}
}

// Flags that this kubelet does not support are refused by name.
func TestRefusedKubeletFlags(t *testing.T) {
	for _, flag := range strings.Fields(`--cloud-provider=external --lock-file=/a --exit-on-lock-contention --experimental-mounter-path=/a
		--experimental-allocatable-ignore-eviction --minimum-container-ttl-duration=1m --maximum-dead-containers-per-container=2 --maximum-dead-containers=9
		--reserved-memory=0:memory=1Gi --vmodule=a=2 --log-text-split-stream --log-text-info-buffer-size=1Ki --read-only-port=10255 --runonce
		--kube-api-qps=50 --protect-kernel-defaults`) {
		name, _, _ := strings.Cut(strings.TrimPrefix(flag, "--"), "=")
		err := kubeletWith(t, flag, nil).Validate()
		if err == nil {
			t.Errorf("%s is accepted", flag)
			continue
		}
		field := ""
		for _, f := range kubeletFields() {
			if f.name == name {
				field = f.field
			}
		}
		if !strings.Contains(err.Error(), "--"+name) && (field == "" || !strings.Contains(err.Error(), field)) {
			t.Errorf("%s: the error does not name it: %v", flag, err)
		}
	}
}

// The help of each flag with a value that this kubelet refuses says so.
func TestHelpNamesRefusedKubeletFlags(t *testing.T) {
	values := map[fieldKind][]string{
		textField: {"text"}, boolField: {"true", "false"}, numberField: {"7"}, number64Field: {"7"}, durationField: {"7s"}, listField: {"text"},
		mapField: {"name=1"}, thresholdField: {"name<1"}, boolMapField: {"name=true"}, headerField: {"name:value"},
	}
	found := 0
	for _, f := range kubeletFields() {
		for _, value := range values[f.kind] {
			k := NewKubelet()
			fs := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
			k.AddFlags(fs)
			if err := fs.Set(f.name, value); err != nil {
				t.Errorf("--%s=%s: %v", f.name, value, err)
				continue
			}
			err := kubelet.Validate(&k.Config.Configuration)
			if err == nil || !strings.Contains(err.Error(), "is not supported by this kubelet") {
				continue
			}
			found++
			if !strings.Contains(f.usage, "refused") {
				t.Errorf("--%s=%s is refused, and its help says: %s", f.name, value, f.usage)
			}
		}
	}
	if found < 10 {
		t.Errorf("only %d values are refused: this test is blind", found)
	}
}

// kubeadmConfig is a file as kubeadm writes it.
const kubeadmConfig = kubeletHead + `authentication:
  anonymous:
    enabled: false
  webhook:
    cacheTTL: 0s
    enabled: true
  x509:
    clientCAFile: DIR/ca.crt
authorization:
  mode: Webhook
  webhook:
    cacheAuthorizedTTL: 0s
    cacheUnauthorizedTTL: 0s
cgroupDriver: systemd
clusterDNS:
- 10.96.0.10
clusterDomain: cluster.local
containerRuntimeEndpoint: ""
cpuManagerReconcilePeriod: 0s
crashLoopBackOff: {}
evictionPressureTransitionPeriod: 0s
fileCheckFrequency: 0s
healthzBindAddress: 127.0.0.1
healthzPort: 10248
httpCheckFrequency: 0s
imageMaximumGCAge: 0s
imageMinimumGCAge: 0s
logging:
  flushFrequency: 0
  options:
    json:
      infoBufferSize: "0"
    text:
      infoBufferSize: "0"
  verbosity: 0
memorySwap: {}
nodeStatusReportFrequency: 0s
nodeStatusUpdateFrequency: 0s
resolvConf: /run/systemd/resolve/resolv.conf
rotateCertificates: true
runtimeRequestTimeout: 0s
shutdownGracePeriod: 0s
shutdownGracePeriodCriticalPods: 0s
staticPodPath: /etc/kubernetes/manifests
streamingConnectionIdleTimeout: 0s
syncFrequency: 0s
volumeStatsAggPeriod: 0s
`

// The command line of kubeadm's drop-in and its configuration file are accepted.
func TestKubeadmCommandLine(t *testing.T) {
	k := kubeletWith(t, "--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf --config=DIR/config.yaml "+
		"--container-runtime-endpoint=unix:///var/run/containerd/containerd.sock --pod-infra-container-image=registry.k8s.io/pause:3.10.1 --node-ip=192.0.2.7 "+
		"--hostname-override=worker --node-labels=a=b,c=d --register-with-taints=node-role.kubernetes.io/control-plane=:NoSchedule --cgroup-driver=systemd", map[string]string{"config.yaml": kubeadmConfig})
	config, _, err := k.config(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &config.Configuration
	kubelet.DefaultConfiguration(c)
	if err := kubelet.Validate(c); err != nil {
		t.Error(err)
	}
	if !c.RotateCertificates || c.StaticPodPath != "/etc/kubernetes/manifests" || c.ContainerRuntimeEndpoint != "unix:///var/run/containerd/containerd.sock" ||
		c.SyncFrequency.Duration == 0 || config.NodeName != "worker" || len(c.RegisterWithTaints) != 1 || config.NodeLabels["c"] != "d" {
		t.Errorf("got %+v", config)
	}
}

// Drop-in files win over the file, the last by name over the others, and flags
// over all.
func TestConfigurationDirectory(t *testing.T) {
	k := kubeletWith(t, "--config=DIR/config.yaml --config-dir=DIR/conf.d --max-pods=9 --sync-frequency=3m", map[string]string{
		"config.yaml":          kubeletHead + "maxPods: 1\npodsPerCore: 2\nclusterDNS: [192.0.2.1, 192.0.2.2]\nevictionHard: {memory.available: 1Gi, nodefs.available: 5%}\nauthorization: {mode: Webhook, webhook: {cacheAuthorizedTTL: 5m}}\n",
		"conf.d/20-b.conf":     kubeletHead + "podsPerCore: 20\nclusterDNS: [192.0.2.3]\nevictionHard: {memory.available: 2Gi}\nsyncFrequency: 2m\n",
		"conf.d/10-a.conf":     kubeletHead + "podsPerCore: 10\nserializeImagePulls: false\nauthorization: {webhook: {cacheAuthorizedTTL: 8m}}\n",
		"conf.d/30-c.conf.bak": "no configuration",
		"conf.d/sub/40-d.conf": kubeletHead + "registryBurst: 40\n",
	})
	c, err := k.merged()
	if err != nil {
		t.Fatal(err)
	}
	if c.MaxPods != 9 || c.PodsPerCore != 20 || *c.SerializeImagePulls || c.RegistryBurst != 40 || c.SyncFrequency.Duration.String() != "3m0s" ||
		c.Authorization.Webhook.CacheAuthorizedTTL.Duration.String() != "8m0s" || c.Authorization.Mode != kubeletconfig.KubeletAuthorizationModeWebhook {
		t.Errorf("got %+v", c)
	}
	if diff := cmp.Diff([]string{"192.0.2.3"}, c.ClusterDNS); diff != "" {
		t.Errorf("lists are replaced (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"memory.available": "2Gi", "nodefs.available": "5%"}, c.EvictionHard); diff != "" {
		t.Errorf("maps are merged (-want +got):\n%s", diff)
	}
	for name, text := range map[string]string{"10-a.conf": "kind: Pod\napiVersion: v1\n", "20-b.conf": kubeletHead + "maxPodz: 3\n"} {
		_, err := kubeletWith(t, "--config-dir=DIR", map[string]string{name: text}).merged()
		if err == nil || !strings.Contains(err.Error(), "--config-dir=") || !strings.Contains(err.Error(), name) {
			t.Errorf("the error for %s is %v", name, err)
		}
	}
}

// Some defaults follow from other fields of the file, and flags win over them.
func TestDefaultsByOtherFields(t *testing.T) {
	for name, test := range map[string]struct {
		file, flags string
		serialize   bool
		report      string
	}{
		"neither":              {"maxPods: 3", "", true, "5m0s"},
		"parallel pulls":       {"maxParallelImagePulls: 3", "", false, "5m0s"},
		"one pull at a time":   {"maxParallelImagePulls: 1", "", true, "5m0s"},
		"both of pulls":        {"maxParallelImagePulls: 3\nserializeImagePulls: true", "", true, "5m0s"},
		"pulls by a flag":      {"maxParallelImagePulls: 3", " --serialize-image-pulls=true", true, "5m0s"},
		"updates":              {"nodeStatusUpdateFrequency: 4s", "", true, "4s"},
		"updates and reports":  {"nodeStatusUpdateFrequency: 4s\nnodeStatusReportFrequency: 1m", "", true, "1m0s"},
		"as kubeadm writes it": {"nodeStatusUpdateFrequency: 0s\nnodeStatusReportFrequency: 0s", "", true, "5m0s"},
		"reports of zero":      {"nodeStatusReportFrequency: 0s", "", true, "5m0s"},
		"updates by a flag":    {"maxPods: 3", " --node-status-update-frequency=4s", true, "5m0s"},
	} {
		c, err := kubeletWith(t, "--config=DIR/config.yaml"+test.flags, map[string]string{"config.yaml": kubeletHead + test.file + "\n"}).merged()
		if err != nil {
			t.Fatal(err)
		}
		if got := c.NodeStatusReportFrequency.Duration.String(); *c.SerializeImagePulls != test.serialize || got != test.report {
			t.Errorf("%s: serializeImagePulls %t, nodeStatusReportFrequency %s, want %t and %s", name, *c.SerializeImagePulls, got, test.serialize, test.report)
		}
	}
}

// Flags of maps and lists that are given several times add up, also when a file
// is read.
func TestRepeatedFieldFlags(t *testing.T) {
	line := "--feature-gates=AllAlpha=false --feature-gates=AllBeta=True --tls-cipher-suites=TLS_RSA_WITH_AES_128_CBC_SHA --tls-cipher-suites=TLS_RSA_WITH_AES_256_CBC_SHA"
	for _, config := range []string{"", " --config=DIR/config.yaml"} {
		c, err := kubeletWith(t, line+config, map[string]string{"config.yaml": kubeletHead + "featureGates: {NodeSwap: true}\n"}).merged()
		if err != nil {
			t.Fatal(err)
		}
		if on, ok := c.FeatureGates["AllAlpha"]; on || !ok || !c.FeatureGates["AllBeta"] || len(c.TLSCipherSuites) != 2 {
			t.Errorf("feature gates %v, cipher suites %v", c.FeatureGates, c.TLSCipherSuites)
		}
	}
}

// A null in a file is as if the field was left out: inside a cluster the cluster's
// value counts. A flag wins over it.
func TestNullsInAConfigurationFile(t *testing.T) {
	c, err := kubeletWith(t, "--config=DIR/config.yaml --healthz-port=7", map[string]string{
		"config.yaml": kubeletHead + "healthzPort: null\nfailSwapOn: null\nresolvConf: null\nserializeImagePulls: null\nauthentication: {anonymous: {enabled: null}}\n",
	}).merged()
	if err != nil {
		t.Fatal(err)
	}
	if *c.HealthzPort != 7 || !*c.FailSwapOn || *c.ResolverConfig != "/etc/resolv.conf" || !*c.SerializeImagePulls || *c.Authentication.Anonymous.Enabled {
		t.Errorf("got %+v", c)
	}
	k := kubeletWith(t, "--config=DIR/config.yaml --config-dir=DIR/conf.d", map[string]string{
		"config.yaml":      kubeletHead + "healthzPort: null\nfailSwapOn: null\nport: null\nclusterDNS: null\nevictionHard: null\nmaxPods: 7\nauthentication: {anonymous: {enabled: null}}\n",
		"conf.d/10-a.conf": kubeletHead + "maxPods: null\n",
	})
	of := &k.Config.Configuration
	of.HealthzPort, of.FailSwapOn, of.Port, of.ClusterDNS, of.MaxPods = new(int32(1)), new(false), 2, []string{"192.0.2.1"}, 3
	of.EvictionHard, of.Authentication.Anonymous.Enabled = map[string]string{"memory.available": "1Gi"}, new(true)
	want := of.DeepCopy()
	if c, err = k.merged(); err != nil {
		t.Fatal(err)
	}
	want.TypeMeta = c.TypeMeta
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
