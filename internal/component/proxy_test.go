package component

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/flagvalue"
	"github.com/coracle-io/coracle/internal/proxy"
	"github.com/coracle-io/coracle/internal/proxy/configv1alpha1"
)

const proxyHead = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"

// proxyWith binds the flags of a proxy and gives it a command line. In it, FILE is a
// file with the text.
func proxyWith(t *testing.T, p *Proxy, line, text string) *Proxy {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	fs := pflag.NewFlagSet("proxy", pflag.ContinueOnError)
	p.AddFlags(fs)
	if err := fs.Parse(strings.Fields(strings.ReplaceAll(line, "FILE", file))); err != nil {
		t.Fatal(err)
	}
	if err := flagvalue.Check(fs); err != nil {
		t.Fatal(err)
	}
	return p
}

// upstreamProxyFlags are the flags of kube-proxy 1.37, without those about help and
// versions.
const upstreamProxyFlags = `add-dir-header alsologtostderr bind-address bind-address-hard-fail boot-id-file cleanup cluster-cidr config
config-sync-period conntrack-max-per-core conntrack-min conntrack-tcp-be-liberal conntrack-tcp-timeout-close-wait
conntrack-tcp-timeout-established conntrack-udp-timeout conntrack-udp-timeout-stream detect-local-mode feature-gates healthz-bind-address
healthz-port hostname-override init-only iptables-localhost-nodeports iptables-masquerade-bit iptables-min-sync-period iptables-sync-period
ipvs-exclude-cidrs ipvs-min-sync-period ipvs-scheduler ipvs-strict-arp ipvs-sync-period ipvs-tcp-timeout ipvs-tcpfin-timeout ipvs-udp-timeout
kube-api-burst kube-api-content-type kube-api-qps kubeconfig log-backtrace-at log-dir log-file log-file-max-size log-flush-frequency
log-json-info-buffer-size log-json-split-stream log-text-info-buffer-size log-text-split-stream logging-format logtostderr machine-id-file
masquerade-all master metrics-bind-address metrics-port nodeport-addresses one-output oom-score-adj pod-bridge-interface
pod-interface-name-prefix profiling proxy-mode show-hidden-metrics-for-version skip-headers skip-log-headers stderrthreshold vmodule
write-config-to`

func TestEachFlagOfUpstreamsProxyIsKnown(t *testing.T) {
	fs := pflag.NewFlagSet("proxy", pflag.ContinueOnError)
	NewProxy().AddFlags(fs)
	for name := range strings.FieldsSeq(upstreamProxyFlags) {
		if fs.Lookup(name) == nil {
			t.Errorf("--%s is not known", name)
		}
	}
}

// Each flag names a field, whose default is the flag's.
func TestProxyFields(t *testing.T) {
	fs := pflag.NewFlagSet("proxy", pflag.ContinueOnError)
	NewProxy().AddFlags(fs)
	for _, f := range proxyFields() {
		c := configv1alpha1.Defaults()
		if field := fieldAt(reflect.ValueOf(c), f.field); field.Kind() == reflect.Struct && field.NumField() > 1 {
			t.Errorf("--%s: there is no field %s", f.name, f.field)
			continue
		}
		if text := fs.Lookup(f.name).DefValue; text != "" {
			if err := (&fieldValue{configuration: c, flag: f}).Set(text); err != nil {
				t.Errorf("--%s=%s, its default: %v", f.name, text, err)
			}
		}
		if diff := cmp.Diff(configv1alpha1.Defaults(), c); diff != "" {
			t.Errorf("--%s, its default, changes the configuration (-want +got):\n%s", f.name, diff)
		}
	}
}

// Flags set the configuration; those without effect and the deprecated ones say so.
func TestProxyFlags(t *testing.T) {
	p := proxyWith(t, NewProxy(), "--cluster-cidr=10.244.0.0/16 --masquerade-all --detect-local-mode=BridgeInterface --pod-bridge-interface=cni0 --nodeport-addresses=192.0.2.0/24,all "+
		"--bind-address=192.0.2.7 --healthz-bind-address=192.0.2.7 --metrics-port=0 --oom-score-adj=-5 --conntrack-max-per-core=0 --conntrack-udp-timeout=10s --ipvs-scheduler=rr --iptables-sync-period=1s", "")
	s, err := p.load()
	if err != nil {
		t.Fatal(err)
	}
	want := configv1alpha1.Defaults()
	want.ClusterCIDR, want.NFTables.MasqueradeAll, want.DetectLocalMode, want.DetectLocal.BridgeInterface = "10.244.0.0/16", true, "BridgeInterface", "cni0"
	want.NodePortAddresses, want.BindAddress = []string{"192.0.2.0/24", "all"}, "192.0.2.7"
	want.HealthzBindAddress, want.MetricsBindAddress, want.OOMScoreAdj = "192.0.2.7:10256", "", new(int32(-5))
	want.Conntrack.MaxPerCore, want.Conntrack.UDPTimeout = new(int32(0)), metav1.Duration{Duration: 10 * time.Second}
	want.IPTables.SyncPeriod, want.IPVS.Scheduler = metav1.Duration{Duration: time.Second}, "rr"
	if diff := cmp.Diff(want, s.config); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if s.nodePorts.Bind != netip.MustParseAddr("192.0.2.7") || len(s.clusterCIDRs) != 1 {
		t.Errorf("bound to %v, pods in %v", s.nodePorts.Bind, s.clusterCIDRs)
	}
	for _, warning := range []string{"--metrics-port is deprecated: use --metrics-bind-address", "ipvs has no effect: ", "iptables has no effect: "} {
		if !slices.ContainsFunc(s.warnings, func(w string) bool { return strings.HasPrefix(w, warning) }) {
			t.Errorf("no warning %q in %q", warning, s.warnings)
		}
	}
	if len(s.warnings) != 3 {
		t.Errorf("warnings %q", s.warnings)
	}
	if ports, err := p.Ports(); err != nil || !slices.Equal(ports, []int{10256, 0}) {
		t.Errorf("ports %v, %v", ports, err)
	}
}

// kubeadmProxy is the file that kubeadm writes for kube-proxy.
const kubeadmProxy = proxyHead + `bindAddress: 0.0.0.0
bindAddressHardFail: false
clientConnection: {acceptContentTypes: "", burst: 0, contentType: "", kubeconfig: /var/lib/kube-proxy/kubeconfig.conf, qps: 0}
clusterCIDR: 10.244.0.0/16
configSyncPeriod: 0s
conntrack: {maxPerCore: null, min: null, tcpBeLiberal: false, tcpCloseWaitTimeout: null, tcpEstablishedTimeout: null, udpStreamTimeout: 0s, udpTimeout: 0s}
detectLocal: {bridgeInterface: "", interfaceNamePrefix: ""}
detectLocalMode: ""
enableProfiling: false
healthzBindAddress: ""
hostnameOverride: ""
iptables: {localhostNodePorts: null, masqueradeAll: false, masqueradeBit: null, minSyncPeriod: 0s, syncPeriod: 0s}
ipvs: {excludeCIDRs: null, minSyncPeriod: 0s, scheduler: "", strictARP: false, syncPeriod: 0s, tcpFinTimeout: 0s, tcpTimeout: 0s, udpTimeout: 0s}
logging: {flushFrequency: 0, options: {json: {infoBufferSize: "0"}, text: {infoBufferSize: "0"}}, verbosity: 0}
metricsBindAddress: ""
mode: ""
nftables: {masqueradeAll: false, masqueradeBit: null, minSyncPeriod: 0s, syncPeriod: 0s}
nodePortAddresses: null
oomScoreAdj: null
portRange: ""
showHiddenMetricsForVersion: ""
winkernel: {enableDSR: false, forwardHealthCheckVip: false, networkName: "", rootHnsEndpointName: "", sourceVip: ""}
`

// kubeadm's file means the defaults. With a file, flags say that they have no effect,
// except for the name of the node.
func TestKubeadmsProxyFile(t *testing.T) {
	s, err := proxyWith(t, NewProxy(), "--config=FILE --hostname-override=n1 --masquerade-all=true", kubeadmProxy).load()
	if err != nil {
		t.Fatal(err)
	}
	want := configv1alpha1.Defaults()
	want.ClusterCIDR, want.ClientConnection.Kubeconfig, want.HostnameOverride = "10.244.0.0/16", "/var/lib/kube-proxy/kubeconfig.conf", "n1"
	want.Logging = s.config.Logging
	if diff := cmp.Diff(want, s.config); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !slices.Equal(s.warnings, []string{"--masquerade-all has no effect with --config"}) {
		t.Errorf("warnings %q", s.warnings)
	}
}

// What the file leaves out is what the cluster sets, whose name of the node counts in
// any case.
func TestProxyFileInACluster(t *testing.T) {
	p := NewProxy()
	p.NodeName, p.ClusterCIDR, p.HealthzPort, p.MetricsPort, p.ConntrackMaxPerCore = "n1", "10.1.0.0/16", 12000, 0, 0
	s, err := proxyWith(t, p, "--config=FILE", proxyHead+"hostnameOverride: other\nbindAddress: \"::\"\nconntrack: {tcpCloseWaitTimeout: 0s}\nnftables: {masqueradeBit: 20}\n").load()
	if err != nil {
		t.Fatal(err)
	}
	want := configv1alpha1.Defaults()
	want.HostnameOverride, want.ClusterCIDR, want.BindAddress, want.HealthzBindAddress, want.MetricsBindAddress = "n1", "10.1.0.0/16", "::", "[::]:12000", ""
	want.Conntrack.MaxPerCore, want.Conntrack.TCPCloseWaitTimeout, want.NFTables.MasqueradeBit = new(int32(0)), &metav1.Duration{}, new(int32(20))
	if diff := cmp.Diff(want, s.config); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !slices.Equal(s.warnings, []string{"hostnameOverride has no effect: the node is n1"}) {
		t.Errorf("warnings %q", s.warnings)
	}
	if s, err = proxyWith(t, p, "--config=FILE", proxyHead+"conntrack: {maxPerCore: 7}\n").load(); err != nil || *s.config.Conntrack.MaxPerCore != 7 {
		t.Errorf("a file with maxPerCore means %+v, %v", s, err)
	}
	p = NewProxy()
	p.HealthzPort, p.MetricsPort = 12000, 0
	s, err = proxyWith(t, p, "--healthz-bind-address=192.0.2.7 --metrics-bind-address=192.0.2.7", "").load()
	if err != nil || s.config.HealthzBindAddress != "192.0.2.7:12000" || s.config.MetricsBindAddress != "192.0.2.7:10249" {
		t.Errorf("addresses without ports mean %+v, %v", s, err)
	}
}

// What is wrong in a file is named with its field, and what is unknown is wrong.
func TestWrongProxyFiles(t *testing.T) {
	for text, want := range map[string]string{
		"kind: KubeProxyConfiguration\n":                                          "want apiVersion: kubeproxy.config.k8s.io/v1alpha1",
		proxyHead + "modus: nftables\n":                                           `unknown field "modus"`,
		proxyHead + "mode: nftables\nmode: nftables\n":                            "already set in map",
		proxyHead + "mode: magic\n":                                               `mode: Unsupported value: "magic": supported values: "iptables", "ipvs", "nftables", "userspace"`,
		proxyHead + "mode: ipvs\nipvs: {scheduler: magic}\n":                      `ipvs.scheduler: Invalid value: "magic": must be in [rr wrr lc wlc lblc lblcr sh dh sed nq mh], blank means the default algorithm method (currently rr)`,
		proxyHead + "mode: ipvs\nipvs: {minSyncPeriod: 1h}\n":                     "ipvs.syncPeriod: Invalid value: \"1h0m0s\": must be greater than or equal to ipvs.minSyncPeriod",
		proxyHead + "mode: ipvs\nipvs: {excludeCIDRs: [10.0.0.0]}\n":              `ipvs.excludeCIDRs[0]: Invalid value: "10.0.0.0": must be a valid CIDR`,
		proxyHead + "mode: ipvs\nipvs: {tcpTimeout: -1s}\n":                       `ipvs.tcpTimeout: Invalid value: "-1s": must be greater than or equal to 0`,
		proxyHead + "mode: ipvs\nfeatureGates: {KubeProxyIPVS: false}\n":          "KubeProxyIPVS=false",
		proxyHead + "bindAddress: here\n":                                         `bindAddress: Invalid value: "here": not a valid textual representation of an IP address`,
		proxyHead + "healthzBindAddress: localhost:1\n":                           `healthzBindAddress: Invalid value: "localhost": must be a valid IP`,
		proxyHead + "metricsBindAddress: 127.0.0.1:0\n":                           `metricsBindAddress: Invalid value: "0": must be a valid port`,
		proxyHead + "clusterCIDR: 10.0.0.0/8,10.1.0.0/16\n":                       `clusterCIDR: Invalid value: "10.0.0.0/8,10.1.0.0/16": must be a either a single CIDR or dual-stack pair of CIDRs (e.g. [10.100.0.0/16, fde4:8dba:82e1::/48]`,
		proxyHead + "clusterCIDR: \"10.0.0.0/8,fd00::/48,10.1.0.0/16\"\n":         "must be a either a single CIDR or dual-stack pair of CIDRs",
		proxyHead + "clusterCIDR: \"10.0.0.0/8,here\"\n":                          "must be a valid CIDR block (e.g. 10.100.0.0/16 or fde4:8dba:82e1::/48)",
		proxyHead + "clusterCIDR: 10.0.0.0\n":                                     "clusterCIDR: Invalid value: \"10.0.0.0\": must be a valid CIDR block",
		proxyHead + "nodePortAddresses: [primary, 192.0.2.1]\n":                   `nodePortAddresses[1]: Invalid value: "192.0.2.1": must be a valid CIDR`,
		proxyHead + "conntrack: {maxPerCore: -1}\n":                               "conntrack.maxPerCore: Invalid value: -1: must be greater than or equal to 0",
		proxyHead + "conntrack: {udpTimeout: -1s}\n":                              `conntrack.udpTimeout: Invalid value: "-1s": must be greater than or equal to 0`,
		proxyHead + "nftables: {masqueradeBit: 32}\n":                             "nftables.masqueradeBit: Invalid value: 32: must be within the range [0, 31]",
		proxyHead + "iptables: {masqueradeBit: -1}\n":                             "iptables.masqueradeBit: Invalid value: -1: must be within the range [0, 31]",
		proxyHead + "nftables: {minSyncPeriod: 1h}\n":                             "nftables.syncPeriod: Invalid value: \"1h0m0s\": must be greater than or equal to nftables.minSyncPeriod",
		proxyHead + "nftables: {minSyncPeriod: -1s}\n":                            "nftables.minSyncPeriod: Invalid value: \"-1s\": must be greater than or equal to 0",
		proxyHead + "oomScoreAdj: -1001\n":                                        "oomScoreAdj: Invalid value: -1001: must be within the range [-1000, 1000]",
		proxyHead + "configSyncPeriod: -1s\n":                                     "configSyncPeriod: Invalid value: \"-1s\": must be greater than 0",
		proxyHead + "portRange: many\n":                                           "portRange: Invalid value: \"many\": must be a valid port range",
		proxyHead + "detectLocalMode: Guess\n":                                    `detectLocalMode: Unsupported value: "Guess": supported values: "ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix", ""`,
		proxyHead + "detectLocalMode: BridgeInterface\n":                          `detectLocal.bridgeInterface: Invalid value: "": must not be empty`,
		proxyHead + "detectLocalMode: InterfaceNamePrefix\n":                      `detectLocal.interfaceNamePrefix: Invalid value: "": must not be empty`,
		proxyHead + "featureGates: {KubeProxyNFTablesLocalhostNodePorts: true}\n": "KubeProxyNFTablesLocalhostNodePorts=true: this proxy does not have this feature",
		proxyHead + "featureGates: {Nothing: true}\n":                             "Nothing",
		proxyHead + "logging: {format: xml}\n":                                    `logging.format (--logging-format) "xml": want text or json`,
		proxyHead + "clientConnection: {burst: -1}\n":                             "clientConnection.burst: Invalid value: -1: must be greater than or equal to 0",
	} {
		if err := proxyWith(t, NewProxy(), "--config=FILE", text).Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", strings.TrimPrefix(text, proxyHead), err, want)
		}
	}
}

// Names of interfaces are written into rules.
func TestWrongPodInterfaces(t *testing.T) {
	for _, name := range []string{"a b", "a/b", `a"b`, "a\nb", "é"} {
		text := fmt.Sprintf("%sdetectLocalMode: BridgeInterface\ndetectLocal: {bridgeInterface: %q}\n", proxyHead, name)
		if err := proxyWith(t, NewProxy(), "--config=FILE", text).Validate(); err == nil || !strings.Contains(err.Error(), "must be the name of a network interface") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// The settings of other modes are not checked, as in upstream.
func TestSettingsOfOtherModes(t *testing.T) {
	text := proxyHead + "iptables: {syncPeriod: -1s, minSyncPeriod: 1h}\nipvs: {syncPeriod: -1s, scheduler: magic, excludeCIDRs: [here, 10.7.1.2/16], tcpTimeout: -1s}\n"
	if s, err := proxyWith(t, NewProxy(), "--config=FILE", text).load(); err != nil || !slices.Equal(s.excludeCIDRs, []netip.Prefix{netip.MustParsePrefix("10.7.0.0/16")}) {
		t.Errorf("%+v, %v", s, err)
	}
}

// Settings of a file that change nothing say so.
func TestProxySettingsWithoutEffect(t *testing.T) {
	s, err := proxyWith(t, NewProxy(), "--config=FILE", proxyHead+`clusterCIDR: 10.0.0.0/8
clientConnection: {qps: 7, burst: 9, contentType: application/json, acceptContentTypes: application/json}
logging: {format: json, verbosity: 4, vmodule: [{filePattern: a, verbosity: 2}], options: {json: {splitStream: true, infoBufferSize: 1Ki}}}
bindAddressHardFail: true
showHiddenMetricsForVersion: "1.36"
iptables: {masqueradeAll: true}
ipvs: {scheduler: rr}
nftables: {syncPeriod: 5s, minSyncPeriod: 2s}
winkernel: {enableDSR: true}
windowsRunAsService: true
configSyncPeriod: 1m
portRange: 1000-2000
nodePortAddresses: [192.0.2.0/24]
`).load()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range s.warnings {
		name, _, _ := strings.Cut(w, " has no ")
		got = append(got, name)
	}
	want := strings.Fields("clientConnection.qps clientConnection.burst clientConnection.contentType clientConnection.acceptContentTypes " +
		"bindAddressHardFail showHiddenMetricsForVersion iptables ipvs nftables.syncPeriod nftables.minSyncPeriod configSyncPeriod winkernel windowsRunAsService portRange " +
		"logging.vmodule logging.options.json.splitStream logging.options.json.infoBufferSize nodePortAddresses")
	if !slices.Equal(got, want) {
		t.Errorf("warnings about %q, want %q", got, want)
	}
}

// The limit of tracked connections grows with the processors, up to upstream's bound.
func TestConntrackLimit(t *testing.T) {
	for _, c := range []struct {
		perCore, min int32
		processors   int
		want         int
	}{
		{32768, 131072, 2, 131072},
		{32768, 131072, 8, 262144},
		{32768, 131072, 96, 1 << 20},
		{32768, 1 << 21, 96, 1 << 21},
		{0, 131072, 8, 0},
	} {
		if got := conntrackOf(&configv1alpha1.Conntrack{MaxPerCore: &c.perCore, Min: &c.min}, c.processors); got.Max != c.want || got.TCPCloseWait != 0 {
			t.Errorf("%+v: %+v", c, got)
		}
	}
}

// /configz shows the configuration, and --write-config-to writes a file that means the
// same.
func TestProxyConfigurationIsShown(t *testing.T) {
	p := proxyWith(t, NewProxy(), "--cluster-cidr=10.0.0.0/8", "")
	s, err := p.load()
	if err != nil {
		t.Fatal(err)
	}
	pages := p.pages(s)
	w := httptest.NewRecorder()
	pages["/configz"].ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/configz", http.NoBody))
	var shown map[string]*configv1alpha1.KubeProxyConfiguration
	if err := json.Unmarshal(w.Body.Bytes(), &shown); err != nil || shown[configv1alpha1.GroupName] == nil || shown[configv1alpha1.GroupName].ClusterCIDR != "10.0.0.0/8" {
		t.Errorf("%v: %s", err, w.Body)
	}
	for path, want := range map[string]bool{"/flagz": true, "/statusz": true, "/debug/pprof/": false, "/debug/flags/v": false} {
		if (pages[path] != nil) != want {
			t.Errorf("%s is there: %v", path, !want)
		}
	}
	file := filepath.Join(t.TempDir(), "written.yaml")
	if err := s.write(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	again, err := proxyWith(t, NewProxy(), "--config=FILE", string(written)).load()
	if err != nil {
		t.Fatal(err)
	}
	again.config.Logging = s.config.Logging
	if diff := cmp.Diff(s.config, again.config); diff != "" {
		t.Errorf("(-first +again):\n%s", diff)
	}
}

// In the mode iptables its flags have their effect, and node ports answer at all
// addresses unless others are chosen.
func TestProxyModeIPTables(t *testing.T) {
	s, err := proxyWith(t, NewProxy(), "--proxy-mode=iptables --cluster-cidr=10.0.0.0/8 --masquerade-all --iptables-masquerade-bit=15 --iptables-sync-period=1m "+
		"--iptables-min-sync-period=0s", "").load()
	if err != nil {
		t.Fatal(err)
	}
	want := configv1alpha1.Defaults()
	want.Mode, want.ClusterCIDR, want.NodePortAddresses = "iptables", "10.0.0.0/8", nil
	want.IPTables.MasqueradeAll, want.IPTables.MasqueradeBit = true, new(int32(15))
	want.IPTables.SyncPeriod, want.IPTables.MinSyncPeriod = metav1.Duration{Duration: time.Minute}, metav1.Duration{}
	if diff := cmp.Diff(want, s.config); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(s.warnings) != 1 || !strings.HasPrefix(s.warnings[0], "nodePortAddresses is unset: ") {
		t.Errorf("warnings %q", s.warnings)
	}
	const file = proxyHead + "clusterCIDR: 10.0.0.0/8\nmode: iptables\n"
	for _, c := range []struct {
		line, text string
		loopback   bool
		addresses  []string
		warnings   int
	}{
		{"--config=FILE", file, true, nil, 1},
		{"--config=FILE", file + "iptables: {localhostNodePorts: false}\n", false, nil, 1},
		{"--config=FILE", file + "nodePortAddresses: [primary]\n", false, []string{"primary"}, 0},
		{"--config=FILE", file + "nodePortAddresses: [primary, localhost]\n", true, []string{"primary", "localhost"}, 0},
		{"--config=FILE", file + "nodePortAddresses: [primary]\niptables: {snatNodeInternalIP: true}\nnftables: {masqueradeAll: true}\n", false, []string{"primary"}, 2},
		{"--config=FILE", proxyHead + "clusterCIDR: 10.0.0.0/8\nnodePortAddresses: [all]\n", false, []string{"all"}, 0},
		{"--cluster-cidr=10.0.0.0/8 --proxy-mode=iptables --nodeport-addresses=127.0.0.0/8,192.0.2.0/24,::/0", "", true, []string{"127.0.0.0/8", "192.0.2.0/24", "::/0"}, 0},
		{"--cluster-cidr=10.0.0.0/8 --proxy-mode=iptables --nodeport-addresses=all --iptables-localhost-nodeports=false", "", false, []string{"all"}, 0},
	} {
		s, err := proxyWith(t, NewProxy(), c.line, c.text).load()
		if err != nil {
			t.Errorf("%s: %v", c.line, err)
			continue
		}
		if s.nodePorts.Loopback != c.loopback || !slices.Equal(s.config.NodePortAddresses, c.addresses) || len(s.warnings) != c.warnings {
			t.Errorf("%s %s: loopback addresses %v, addresses %v, warnings %q", c.line, c.text, s.nodePorts.Loopback, s.config.NodePortAddresses, s.warnings)
		}
	}
}

// Without the programs of the mode iptables, the proxy does not start, and says what to
// install.
func TestProxyModeWithoutPrograms(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	p := proxyWith(t, NewProxy(), "--proxy-mode=iptables --cluster-cidr=10.0.0.0/8", "")
	for name, err := range map[string]error{"Validate": p.Validate(), "RunWith": p.RunWith(t.Context(), nil)} {
		if err == nil || !strings.Contains(err.Error(), "install the package iptables") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := proxyWith(t, NewProxy(), "--cluster-cidr=10.0.0.0/8", "").Validate(); err != nil {
		t.Errorf("the mode nftables needs no program: %v", err)
	}
}

// The modes ipvs and userspace have their settings, and node ports at all addresses.
func TestOtherProxyModes(t *testing.T) {
	s, err := proxyWith(t, NewProxy(), "--proxy-mode=ipvs --cluster-cidr=10.0.0.0/8 --masquerade-all --iptables-masquerade-bit=15 --ipvs-scheduler=wlc --ipvs-strict-arp "+
		"--ipvs-exclude-cidrs=10.200.0.0/16,fd00:7::/64 --ipvs-sync-period=1m --ipvs-min-sync-period=2s --ipvs-tcp-timeout=15m --ipvs-tcpfin-timeout=2m --ipvs-udp-timeout=5m", "").load()
	if err != nil {
		t.Fatal(err)
	}
	of := func(d time.Duration) metav1.Duration { return metav1.Duration{Duration: d} }
	want := configv1alpha1.Defaults()
	want.Mode, want.ClusterCIDR, want.NodePortAddresses = "ipvs", "10.0.0.0/8", nil
	want.IPTables.MasqueradeAll, want.IPTables.MasqueradeBit = true, new(int32(15))
	want.IPVS = configv1alpha1.IPVS{
		SyncPeriod: of(time.Minute), MinSyncPeriod: of(2 * time.Second), Scheduler: "wlc", ExcludeCIDRs: []string{"10.200.0.0/16", "fd00:7::/64"}, StrictARP: true,
		TCPTimeout: of(15 * time.Minute), TCPFinTimeout: of(2 * time.Minute), UDPTimeout: of(5 * time.Minute),
	}
	if diff := cmp.Diff(want, s.config); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(s.warnings) != 2 || s.warnings[0] != ipvsDeprecation || !strings.HasPrefix(s.warnings[1], "nodePortAddresses is unset: ") || len(s.excludeCIDRs) != 2 || s.nodePorts.Loopback {
		t.Errorf("warnings %q, excluded %v, node ports %+v", s.warnings, s.excludeCIDRs, s.nodePorts)
	}
	events := record.NewFakeRecorder(2)
	s.tellDeprecation(events, "node")
	if told := <-events.Events; !strings.HasPrefix(told, "Warning IPVSDeprecation The ipvs proxier is now deprecated") {
		t.Errorf("the node's Event is %q", told)
	}
	var c proxy.Config
	if s.setPace(&c); c.MinSyncPeriod != 2*time.Second || c.SyncPeriod != time.Minute || c.MostOfNamespace != 100_000 {
		t.Errorf("the pace is %+v", c)
	}
	s, err = proxyWith(t, NewProxy(), "--config=FILE", proxyHead+"clusterCIDR: 10.0.0.0/8\nmode: userspace\nipvs: {scheduler: rr}\nnftables: {masqueradeAll: true}\n").load()
	if err != nil {
		t.Fatal(err)
	}
	if s.tellDeprecation(events, "node"); len(events.Events) > 0 {
		t.Error("the mode userspace is called deprecated")
	}
	if s.config.NodePortAddresses != nil || len(s.warnings) != 4 {
		t.Errorf("node ports at %v, warnings %q", s.config.NodePortAddresses, s.warnings)
	}
}

// TestExcludedRanges checks what a proxy that removes its rules leaves to others.
func TestExcludedRanges(t *testing.T) {
	if got := NewProxy().excluded(); len(got) > 0 {
		t.Errorf("without flags: %v", got)
	}
	want := []netip.Prefix{netip.MustParsePrefix("10.200.0.0/16")}
	if got := proxyWith(t, NewProxy(), "--cleanup --ipvs-exclude-cidrs=10.200.0.0/16", "").excluded(); !slices.Equal(got, want) {
		t.Errorf("with a flag: %v", got)
	}
	if got := proxyWith(t, NewProxy(), "--config=FILE", "wrong").excluded(); len(got) > 0 {
		t.Errorf("with a wrong file: %v", got)
	}
}

// backendOf counts the calls of Apply.
type backendOf struct {
	proxy.Backend
	applied int
	err     error
}

func (b *backendOf) Apply(proxy.Rules) error {
	b.applied++
	return b.err
}

// The rules of the former mode go once those of the new one are there, and what keeps
// them from going is no error of the new ones.
func TestFormerProxyMode(t *testing.T) {
	refused := errors.New("refused")
	b, removed := &backendOf{err: refused}, 0
	s := &successor{Backend: b, log: klog.Background(), remove: func() error {
		removed++
		return refused
	}}
	if err := s.Apply(proxy.Rules{}); !errors.Is(err, refused) || removed != 0 {
		t.Errorf("removed the former rules %d times before there are new ones: %v", removed, err)
	}
	b.err = nil
	for range 2 {
		if err := s.Apply(proxy.Rules{}); err != nil || removed != 1 {
			t.Errorf("removed the former rules %d times: %v", removed, err)
		}
	}
	if b.applied != 3 {
		t.Errorf("applied %d times", b.applied)
	}
}
