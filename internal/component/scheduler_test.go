package component

import (
	"context"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	kubescheduler "k8s.io/kube-scheduler/config/v1"

	"github.com/coracle-io/coracle/internal/flagvalue"
)

const schedulerHead = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"

// schedulerWith returns a scheduler with a command line. In it, DIR is a folder
// with the given files.
func schedulerWith(t *testing.T, line string, files map[string]string) *Scheduler {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.ReplaceAll(text, "DIR", dir)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := NewScheduler()
	fs := pflag.NewFlagSet("scheduler", pflag.ContinueOnError)
	s.AddFlags(fs)
	if err := fs.Parse(strings.Fields(strings.ReplaceAll(line, "DIR", dir))); err != nil {
		t.Fatal(err)
	}
	return s
}

// The command lines of kubeadm and of older clusters are accepted; a flag
// without effect says so.
func TestSchedulerCommandLines(t *testing.T) {
	s := schedulerWith(t, "--authentication-kubeconfig=/a --authorization-kubeconfig=/a --bind-address=127.0.0.1 --kubeconfig=/a --leader-elect=true "+
		"--profiling=false --secure-port=10259 --feature-gates=AllAlpha=false --tls-min-version=VersionTLS12 --tls-cipher-suites=A,B --tls-curve-preferences=29,4588 --kube-api-qps=10", nil)
	loaded, err := s.load()
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(loaded.warnings, "\n")
	for _, flag := range []string{"authentication-kubeconfig", "authorization-kubeconfig", "tls-min-version", "tls-cipher-suites", "tls-curve-preferences", "kube-api-qps"} {
		if !strings.Contains(got, "--"+flag+" has no effect: ") {
			t.Errorf("--%s does not say that it has no effect", flag)
		}
	}
	if *loaded.file.EnableProfiling || strings.Contains(got, "--master") {
		t.Errorf("profiling %t, warnings\n%s", *loaded.file.EnableProfiling, got)
	}
}

// upstreamSchedulerFlags are the flags of kube-scheduler 1.37.
const upstreamSchedulerFlags = `allow-metric-labels allow-metric-labels-manifest authentication-kubeconfig authentication-skip-lookup
authentication-token-webhook-cache-ttl authentication-tolerate-lookup-failure authorization-always-allow-paths authorization-kubeconfig
authorization-webhook-cache-authorized-ttl authorization-webhook-cache-unauthorized-ttl bind-address cert-dir client-ca-file config
contention-profiling disable-http2-serving disabled-metrics emulated-version emulation-forward-compatibility feature-gates
http2-max-streams-per-connection kube-api-burst kube-api-content-type kube-api-qps kubeconfig leader-elect leader-elect-lease-duration
leader-elect-renew-deadline leader-elect-resource-lock leader-elect-resource-name leader-elect-resource-namespace leader-elect-retry-period
log-flush-frequency log-json-info-buffer-size log-json-split-stream log-text-info-buffer-size log-text-split-stream logging-format master
min-compatibility-version permit-address-sharing permit-port-sharing pod-max-in-unschedulable-pods-duration profiling
requestheader-allowed-names requestheader-client-ca-file requestheader-extra-headers-prefix requestheader-group-headers
requestheader-uid-headers requestheader-username-headers secure-port show-hidden-metrics-for-version tls-cert-file tls-cipher-suites
tls-curve-preferences tls-min-version tls-private-key-file tls-sni-cert-key vmodule write-config-to`

func TestEachFlagOfUpstreamsSchedulerIsKnown(t *testing.T) {
	fs := pflag.NewFlagSet("scheduler", pflag.ContinueOnError)
	NewScheduler().AddFlags(fs)
	for name := range strings.FieldsSeq(upstreamSchedulerFlags) {
		if fs.Lookup(name) == nil {
			t.Errorf("--%s is not known", name)
		}
	}
}

// The command lines of clusters from the time of policies have the flags of glog.
func TestOldSchedulerCommandLine(t *testing.T) {
	s := schedulerWith(t, "--master=http://127.0.0.1:8080 --leader-elect=true --logtostderr=true --stderrthreshold=2 --log-dir=/var/log --alsologtostderr --address=127.0.0.1 "+
		"--port=10251 --algorithm-provider=DefaultProvider", nil)
	loaded, err := s.load()
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(loaded.warnings, "\n")
	if s.Master != "http://127.0.0.1:8080" || !strings.Contains(got, "--logtostderr has no effect: ") || strings.Contains(got, "--master") {
		t.Errorf("master %q, warnings\n%s", s.Master, got)
	}
}

// Flags without effect are not checked: the files that they name do not need to
// exist.
func TestSchedulerFlagsWithoutEffect(t *testing.T) {
	for line, wrong := range map[string]bool{
		"--kube-api-qps=-1": false, "--authentication-kubeconfig=/absent --authorization-kubeconfig=/absent": false, "--kubeconfig=/absent": true,
	} {
		fs := pflag.NewFlagSet("scheduler", pflag.ContinueOnError)
		NewScheduler().AddFlags(fs)
		if err := fs.Parse(strings.Fields(line)); err != nil {
			t.Fatal(err)
		}
		if err := flagvalue.Check(fs); (err != nil) != wrong {
			t.Errorf("%s: %v", line, err)
		}
	}
}

func TestSchedulerFlagsAndFiles(t *testing.T) {
	files := map[string]string{
		"config":    schedulerHead + "leaderElection: {leaderElect: false, resourceName: ours}\nenableProfiling: false\nclientConnection: {kubeconfig: /file}\npodMaxBackoffSeconds: 60\nprofiles: [{schedulerName: a}, {schedulerName: b}]\n",
		"client":    schedulerHead + "clientConnection: {qps: 7, burst: 9, contentType: application/json}\nparallelism: 4\nenableContentionProfiling: false\ndelayCacheUntilActive: true\n",
		"defaults":  schedulerHead + "clientConnection: {qps: 50, burst: 100, contentType: application/vnd.kubernetes.protobuf}\nparallelism: 16\nenableContentionProfiling: true\n",
		"older":     "apiVersion: kubescheduler.config.k8s.io/v1alpha1\nkind: KubeSchedulerConfiguration\nschedulerName: old\nalgorithmSource: {policy: {file: {path: DIR/policy}}}\n",
		"extenders": schedulerHead + "extenders: [{urlPrefix: 'ftp://a', filterVerb: f}]\n",
		"extended":  `{"kind": "Policy", "apiVersion": "v1", "extenders": [{"urlPrefix": "http://127.0.0.1:1", "filterVerb": "f", "enableHttps": false, "httpTimeout": 2000000000}]}`,
		"policy":    `{"kind": "Policy", "apiVersion": "v1", "predicates": [{"name": "PodFitsResources"}], "priorities": [{"name": "EqualPriority", "weight": 1}], "alwaysCheckAllPredicates": true}`,
	}
	for _, test := range []struct {
		line  string
		check func(*loadedConfiguration) bool
	}{
		{"", func(l *loadedConfiguration) bool {
			return *l.file.LeaderElection.LeaderElect && *l.file.EnableProfiling
		}},
		{"--scheduler-name=mine", func(l *loadedConfiguration) bool { return *l.file.Profiles[0].SchedulerName == "mine" }},
		{"--config=DIR/config", func(l *loadedConfiguration) bool {
			return !*l.file.LeaderElection.LeaderElect && l.file.LeaderElection.ResourceName == "ours" && l.file.LeaderElection.LeaseDuration.Duration == 15*time.Second && !*l.file.EnableProfiling && l.file.ClientConnection.Kubeconfig == "/file"
		}},
		{"--config=DIR/config --leader-elect=true --leader-elect-resource-name=flag --profiling=true --kubeconfig=/flag", func(l *loadedConfiguration) bool {
			return *l.file.LeaderElection.LeaderElect && l.file.LeaderElection.ResourceName == "flag" && *l.file.EnableProfiling && l.file.ClientConnection.Kubeconfig == "/flag"
		}},
		{"--config=DIR/config --policy-config-file=DIR/policy", func(l *loadedConfiguration) bool {
			return !l.settings.AlwaysCheckAllPredicates && strings.Contains(strings.Join(l.warnings, ""), "--policy-config-file has no effect with --config")
		}},
		{"--config=DIR/older", func(l *loadedConfiguration) bool {
			return *l.file.Profiles[0].SchedulerName == "old" && l.settings.AlwaysCheckAllPredicates && l.policy == nil
		}},
		{"--policy-config-file=DIR/extended", func(l *loadedConfiguration) bool {
			return len(l.file.Extenders) == 1 && l.file.Extenders[0].HTTPTimeout.Duration == 2*time.Second
		}},
		{"--policy-config-file=DIR/policy", func(l *loadedConfiguration) bool { return l.settings.AlwaysCheckAllPredicates }},
		{"--policy-config-file=DIR/policy --policy-configmap=p", func(l *loadedConfiguration) bool { return l.policy.ConfigMap.Namespace == "kube-system" }},
		{"--policy-config-file=DIR/policy --policy-configmap=p --use-legacy-policy-config", func(l *loadedConfiguration) bool { return l.settings.AlwaysCheckAllPredicates && l.policy == nil }},
		{"--algorithm-provider=ClusterAutoscalerProvider", func(l *loadedConfiguration) bool { return len(l.file.Profiles[0].PluginConfig) == 1 }},
		{"--algorithm-provider=ClusterAutoscalerProvider --hard-pod-affinity-symmetric-weight=7", func(l *loadedConfiguration) bool {
			a, ok := l.file.Profiles[0].PluginConfig[0].Args.Object.(*kubescheduler.InterPodAffinityArgs)
			return ok && *a.HardPodAffinityWeight == 7
		}},
		{"--config=DIR/client", func(l *loadedConfiguration) bool {
			return strings.Join(l.warnings, "; ") == "clientConnection.qps has no effect: the client has no such limit; clientConnection.burst has no effect: the client has no such limit; "+
				"clientConnection.contentType has no effect: the client uses protobuf; parallelism has no effect: one goroutine decides; "+
				"enableContentionProfiling has no effect: the server's settings are fixed; delayCacheUntilActive has no effect: pods and nodes are always read when the scheduler becomes the leader"
		}},
		{"--config=DIR/defaults", func(l *loadedConfiguration) bool { return len(l.warnings) == 0 }},
		{"--kube-api-qps=-1 --authentication-kubeconfig=/absent --authorization-kubeconfig=/absent", func(l *loadedConfiguration) bool { return len(l.warnings) == 3 }},
	} {
		s := schedulerWith(t, test.line, files)
		loaded, err := s.load()
		if err == nil {
			err = s.Validate()
		}
		if err != nil || !test.check(loaded) {
			t.Errorf("%q: %v, %+v", test.line, err, loaded)
		}
	}
	for line, want := range map[string]string{
		"--config=DIR/extenders":                                                   `extenders[0].urlPrefix: Invalid value: "ftp://a"`,
		"--config=DIR/none":                                                        "no such file",
		"--config=DIR/policy":                                                      `no kind "Policy" is registered`,
		"--policy-config-file=DIR/config":                                          "invalid policy",
		"--algorithm-provider=Nobody":                                              `--algorithm-provider: invalid algorithm provider "Nobody"`,
		"--hard-pod-affinity-symmetric-weight=101":                                 "not in valid range [0, 100]",
		"--feature-gates=NoSuchGate=true":                                          "unrecognized feature gate: NoSuchGate",
		"--feature-gates=DRANodeAllocatableResources=true":                         "DRANodeAllocatableResources=true: the scheduler does not have this feature",
		"--config=DIR/config --leader-elect=true --leader-elect-lease-duration=1s": "RenewDeadline",
	} {
		if err := schedulerWith(t, line, files).Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", line, err, want)
		}
	}
}

func TestSchedulerPolicyInConfigMap(t *testing.T) {
	good := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "good"}, Data: map[string]string{"policy.cfg": "kind: Policy\napiVersion: v1\nalwaysCheckAllPredicates: true\npredicates: []\n"}}
	empty := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "empty"}}
	for name, want := range map[string]string{
		"good": "", "empty": `missing policy config map value at key "policy.cfg"`, "none": "couldn't get policy config map kube-system/none",
	} {
		loaded, err := schedulerWith(t, "--policy-configmap="+name, nil).load()
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // as after leadership was lost
			c, err := loaded.configuration(context.Background(), fake.NewSimpleClientset(good, empty))
			shown := httptest.NewRecorder()
			loaded.configz().ServeHTTP(shown, httptest.NewRequest("GET", "/configz", nil))
			if text := shown.Body.String(); strings.Contains(text, `"disabled":[{"name":"NodeName"}`) != (want == "") {
				t.Errorf("%s: /configz: %s", name, text)
			}
			if want == "" && (err != nil || !c.AlwaysCheckAllPredicates || len(c.Profiles[0].Plugins.Filter.Disabled) == 0) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s: %+v, %v, want %q", name, c, err, want)
			}
		}
	}
}

func TestSchedulerWritesItsConfiguration(t *testing.T) {
	s := schedulerWith(t, "--config=DIR/config --write-config-to=DIR/out", map[string]string{"config": schedulerHead + "profiles: [{schedulerName: a}, {schedulerName: b}]\n"})
	if err := s.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	again := NewScheduler()
	again.source.configFile = s.writeConfigTo
	loaded, err := again.load()
	if err == nil {
		err = again.Validate()
	}
	if err != nil || len(loaded.file.Profiles) != 2 || *loaded.file.Parallelism != 16 {
		t.Errorf("%v, %+v", err, loaded)
	}
	w := httptest.NewRecorder()
	loaded.configz().ServeHTTP(w, httptest.NewRequest("GET", "/configz", nil))
	if body := w.Body.String(); !strings.HasPrefix(body, `{"componentconfig":{`) || !strings.Contains(body, `"schedulerName":"b"`) || !strings.Contains(body, `"name":"DefaultBinder"`) {
		t.Errorf("/configz: %s", body)
	}
}

// A policy takes the place of a provider, and changes to single plugins are added to it.
// What another setting replaces says so.
func TestSchedulerPoliciesBesideOtherSettings(t *testing.T) {
	const older = "apiVersion: kubescheduler.config.k8s.io/v1alpha1\nkind: KubeSchedulerConfiguration\nclientConnection: {qps: 7}\nalgorithmSource: {policy: {file: {path: DIR/policy}}}\n"
	files := map[string]string{
		"policy":  `{"kind": "Policy", "apiVersion": "v1", "predicates": [{"name": "PodFitsResources"}]}`,
		"plugins": older + "plugins: {score: {enabled: [{name: ImageLocality, weight: 5}]}}\npluginConfig: [{name: InterPodAffinity, args: {hardPodAffinityWeight: 7}}]\n",
	}
	for line, want := range map[string]struct {
		filtersOff        bool
		scores, arguments int // enabled, given
		warning           string
	}{
		"--config=DIR/plugins": {true, 1, 1, "clientConnection.qps has no effect: the client has no such limit"},
		"--algorithm-provider=ClusterAutoscalerProvider --policy-config-file=DIR/policy":                 {true, 0, 0, "--algorithm-provider has no effect with a policy"},
		"--algorithm-provider=ClusterAutoscalerProvider --policy-configmap=p":                            {false, 0, 0, "--algorithm-provider has no effect with a policy"},
		"--algorithm-provider=ClusterAutoscalerProvider --policy-configmap=p --use-legacy-policy-config": {false, 0, 1, "--policy-configmap has no effect with --use-legacy-policy-config"},
		"--policy-config-file=DIR/policy --policy-configmap=p":                                           {false, 0, 0, "--policy-config-file has no effect with --policy-configmap, but for --use-legacy-policy-config"},
	} {
		s := schedulerWith(t, line, files)
		loaded, err := s.load()
		if err == nil {
			err = s.Validate()
		}
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		profile := loaded.file.Profiles[0]
		off, scores, arguments := len(profile.Plugins.Filter.Disabled) > 0, len(profile.Plugins.Score.Enabled), len(profile.PluginConfig)
		if off != want.filtersOff || scores != want.scores || arguments != want.arguments || strings.Join(loaded.warnings, "; ") != want.warning {
			t.Errorf("%s: filters are off %t, %d scores on, %d arguments, warnings %q; want %+v", line, off, scores, arguments, loaded.warnings, want)
		}
	}
}

// A scheduler of a cluster uses its API server, and says so to who names another one.
func TestSchedulerOfACluster(t *testing.T) {
	for line, want := range map[string]string{
		"":                     "",
		"--kubeconfig=/file":   "clientConnection.kubeconfig has no effect: the scheduler is one of its cluster",
		"--master=http://a:80": "--master has no effect: the scheduler is one of its cluster",
	} {
		s := schedulerWith(t, line, nil)
		loaded, err := s.load()
		if err != nil {
			t.Fatal(err)
		}
		if loaded.inCluster(s.Master); strings.Join(loaded.warnings, "; ") != want {
			t.Errorf("%q: %q, want %s", line, loaded.warnings, want)
		}
	}
}
