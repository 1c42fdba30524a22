package component

import (
	"github.com/spf13/pflag"

	"github.com/coracle-io/coracle/internal/flagvalue"
	"github.com/coracle-io/coracle/internal/proxy/configv1alpha1"
)

// proxyFields are all flags that set the KubeProxyConfiguration.
func proxyFields() []fieldFlag {
	return []fieldFlag{
		{"kubeconfig", "clientConnection.kubeconfig", textField, "kubeconfig file for the API server"},
		{"hostname-override", "hostnameOverride", textField, "name of the node (default: the host's name); wins over --config"},
		{"bind-address", "bindAddress", textField, "the node's primary address, if it is not the one in its object; nothing listens on it"},
		{"healthz-bind-address", "healthzBindAddress", textField, "address and port of /healthz; empty disables it"},
		{"metrics-bind-address", "metricsBindAddress", textField, "address and port of /metrics; empty disables it"},
		{"profiling", "enableProfiling", boolField, "serve profiles at /debug/pprof/ of --metrics-bind-address"},
		{"logging-format", "logging.format", textField, "form of the log lines: text or json"},
		{"feature-gates", "featureGates", boolMapField, "feature gates to enable or disable, such as NAME=true"},
		{"proxy-mode", "mode", textField, "proxy mode: nftables; iptables, which needs the package iptables; ipvs, which needs the kernel's module ip_vs; or userspace, in which the proxy itself passes on TCP and UDP"},
		{"masquerade-all", "nftables.masqueradeAll", boolField, "masquerade all connections to cluster IPs"},
		{"iptables-masquerade-bit", "iptables.masqueradeBit", numberField, "number of the bit of the packet mark for connections to masquerade, 0 to 31, in the modes iptables and ipvs"},
		{"iptables-localhost-nodeports", "iptables.localhostNodePorts", boolField, "let node ports of IPv4 answer at loopback addresses, too, in the mode iptables and if --nodeport-addresses has them"},
		{"iptables-sync-period", "iptables.syncPeriod", durationField, "interval at which the mode iptables looks for rules that others have removed"},
		{"iptables-min-sync-period", "iptables.minSyncPeriod", durationField, "least time between two changes of the rules in the mode iptables; 0 applies each change at once"},
		{"ipvs-scheduler", "ipvs.scheduler", textField, "scheduler of the mode ipvs: rr (the default), wrr, lc, wlc, lblc, lblcr, sh, dh, sed, nq or mh"},
		{"ipvs-exclude-cidrs", "ipvs.excludeCIDRs", listField, "CIDRs in which the mode ipvs leaves virtual servers alone that no Service needs"},
		{"ipvs-strict-arp", "ipvs.strictARP", boolField, "in the mode ipvs, do not answer ARP for addresses of other interfaces (arp_ignore=1, arp_announce=2)"},
		{"ipvs-sync-period", "ipvs.syncPeriod", durationField, "interval at which the mode ipvs looks for what others have changed"},
		{"ipvs-min-sync-period", "ipvs.minSyncPeriod", durationField, "least time between two changes in the mode ipvs; 0 applies each change at once"},
		{"ipvs-tcp-timeout", "ipvs.tcpTimeout", durationField, "how long IPVS knows idle TCP connections; 0 leaves what the kernel has"},
		{"ipvs-tcpfin-timeout", "ipvs.tcpFinTimeout", durationField, "how long IPVS knows TCP connections that one side has closed; 0 leaves what the kernel has"},
		{"ipvs-udp-timeout", "ipvs.udpTimeout", durationField, "how long IPVS knows UDP flows; 0 leaves what the kernel has"},
		{"detect-local-mode", "detectLocalMode", textField, "by what connections of pods are recognized, which are not masqueraded: ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix"},
		{"pod-bridge-interface", "detectLocal.bridgeInterface", textField, "interface of pods, for the mode BridgeInterface"},
		{"pod-interface-name-prefix", "detectLocal.interfaceNamePrefix", textField, "what the names of the interfaces of pods begin with, for the mode InterfaceNamePrefix"},
		{"cluster-cidr", "clusterCIDR", textField, "CIDR of pod IPs, or one of each family, for the mode ClusterCIDR"},
		{"nodeport-addresses", "nodePortAddresses", listField, "addresses of the node at which node ports answer: CIDRs, primary (the node's primary addresses, by its object) or all; all by default except in the mode nftables, and with loopback addresses in the mode iptables (--iptables-localhost-nodeports)"},
		{"oom-score-adj", "oomScoreAdj", numberField, "OOM score adjustment of the proxy's process, -1000 to 1000"},
		{"conntrack-max-per-core", "conntrack.maxPerCore", numberField, "connections that the kernel tracks for each processor, at most 1,048,576 together; 0 leaves its limit, also --conntrack-min"},
		{"conntrack-min", "conntrack.min", numberField, "connections that the kernel tracks at least"},
		{"conntrack-tcp-timeout-established", "conntrack.tcpEstablishedTimeout", durationField, "how long the kernel knows idle TCP connections, if it is longer than now; 0 leaves it"},
		{"conntrack-tcp-timeout-close-wait", "conntrack.tcpCloseWaitTimeout", durationField, "how long the kernel knows TCP connections that one side has closed, if it is longer than now; 0 leaves it"},
		{"conntrack-tcp-be-liberal", "conntrack.tcpBeLiberal", boolField, "track packets outside of the window of a connection, too"},
		{"conntrack-udp-timeout", "conntrack.udpTimeout", durationField, "how long the kernel knows UDP flows without an answer, if it is longer than now; 0 leaves it"},
		{"conntrack-udp-timeout-stream", "conntrack.udpStreamTimeout", durationField, "how long the kernel knows UDP flows with answers, if it is longer than now; 0 leaves it"},
	}
}

// proxyKinds says what the values of the flags are.
func proxyKinds(fs *pflag.FlagSet) {
	flagvalue.Is(fs, flagvalue.File, "kubeconfig", "config")
	flagvalue.Is(fs, flagvalue.Path, "write-config-to")
	flagvalue.Is(fs, flagvalue.Ranges, "cluster-cidr", "ipvs-exclude-cidrs")
	flagvalue.Is(fs, flagvalue.Name, "hostname-override")
	flagvalue.Is(fs, flagvalue.Address, "bind-address")
	flagvalue.Is(fs, flagvalue.Listen, "healthz-bind-address", "metrics-bind-address")
	flagvalue.Is(fs, flagvalue.Interface, "pod-bridge-interface", "pod-interface-name-prefix")
	flagvalue.Is(fs, flagvalue.NodePorts, "nodeport-addresses")
	flagvalue.Is(fs, flagvalue.Number, "oom-score-adj")
	flagvalue.OneOf(fs, "logging-format", "text", "json")
	flagvalue.OneOf(fs, "proxy-mode", configv1alpha1.ModeNFTables, configv1alpha1.ModeIPTables, configv1alpha1.ModeIPVS, configv1alpha1.ModeUserspace)
	flagvalue.OneOf(fs, "ipvs-scheduler", configv1alpha1.Schedulers()...)
	flagvalue.OneOf(fs, "detect-local-mode", "ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix")
}

// ignoredProxyFlags are upstream's flags that have no effect. They are accepted, so
// that command lines for upstream work.
func ignoredProxyFlags() *pflag.FlagSet {
	fs := ignoredLogFlags()
	const (
		client  = "has no effect: the client has no such limit"
		machine = "has no effect: it is not the proxy that describes the machine"
	)
	for name, why := range map[string]string{
		"kube-api-content-type":           "has no effect: the client uses protobuf",
		"show-hidden-metrics-for-version": "has no effect: all metrics are served", "boot-id-file": machine, "machine-id-file": machine,
	} {
		fs.String(name, "", why)
	}
	fs.Bool("bind-address-hard-fail", false, hardFail)
	fs.Duration("config-sync-period", 0, watched)
	fs.Int("kube-api-burst", 0, client)
	fs.Float32("kube-api-qps", 0, client)
	flagvalue.Is(fs, flagvalue.Path, "boot-id-file", "machine-id-file")
	flagvalue.Is(fs, flagvalue.Number, "kube-api-qps")
	return fs
}

// Why settings of a proxy have no effect.
const (
	hardFail = "has no effect: a port that cannot be had always ends the proxy, which is started again"
	watched  = "has no effect: objects are watched, and each change is applied at once"
)
