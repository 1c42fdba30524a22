// Package configv1alpha1 is the KubeProxyConfiguration of
// kubeproxy.config.k8s.io/v1alpha1, the file of kube-proxy's --config.
//
//	file ──Decode──► what the file says ──Fill──► with defaults ──Validate──► component.Proxy
//
// Fields, defaults and rules are kube-proxy's, except that the default mode is nftables
// (https://kubernetes.io/docs/reference/config-api/kube-proxy-config.v1alpha1/).
package configv1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	componentv1alpha1 "k8s.io/component-base/config/v1alpha1"
	logsapi "k8s.io/component-base/logs/api/v1"
)

// The API version and kind of a file.
const (
	GroupName  = "kubeproxy.config.k8s.io"
	APIVersion = GroupName + "/v1alpha1"
	Kind       = "KubeProxyConfiguration"
)

// KubeProxyConfiguration is the configuration of a Service proxy.
type KubeProxyConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	FeatureGates     map[string]bool                                 `json:"featureGates,omitempty"`
	ClientConnection componentv1alpha1.ClientConnectionConfiguration `json:"clientConnection"`
	Logging          logsapi.LoggingConfiguration                    `json:"logging,omitempty"`

	// HostnameOverride is the name of the node; "" is the host's name.
	HostnameOverride string `json:"hostnameOverride"`
	// BindAddress, if it is not unspecified, replaces the node's primary address of
	// its family. Nothing listens on it.
	BindAddress string `json:"bindAddress"`
	// HealthzBindAddress and MetricsBindAddress are addresses and ports.
	HealthzBindAddress          string `json:"healthzBindAddress"`
	MetricsBindAddress          string `json:"metricsBindAddress"`
	BindAddressHardFail         bool   `json:"bindAddressHardFail"`
	EnableProfiling             bool   `json:"enableProfiling"`
	ShowHiddenMetricsForVersion string `json:"showHiddenMetricsForVersion"`

	Mode      string    `json:"mode"`
	IPTables  IPTables  `json:"iptables"`
	IPVS      IPVS      `json:"ipvs"`
	NFTables  NFTables  `json:"nftables"`
	Winkernel Winkernel `json:"winkernel"`

	// DetectLocalMode says by what connections of pods are recognized.
	DetectLocalMode string      `json:"detectLocalMode"`
	DetectLocal     DetectLocal `json:"detectLocal"`
	// ClusterCIDR is the range of pods, or one of each family with a comma between.
	ClusterCIDR string `json:"clusterCIDR"`
	// NodePortAddresses are CIDRs and the words primary, localhost and all.
	NodePortAddresses []string `json:"nodePortAddresses"`

	OOMScoreAdj      *int32          `json:"oomScoreAdj"`
	Conntrack        Conntrack       `json:"conntrack"`
	ConfigSyncPeriod metav1.Duration `json:"configSyncPeriod"`

	PortRange           string `json:"portRange"`
	WindowsRunAsService bool   `json:"windowsRunAsService,omitempty"`
}

// IPTables are the settings of the mode iptables.
type IPTables struct {
	// MasqueradeBit and MasqueradeAll are as in NFTables.
	MasqueradeBit *int32 `json:"masqueradeBit"`
	MasqueradeAll bool   `json:"masqueradeAll"`
	// LocalhostNodePorts makes node ports of IPv4 answer at loopback addresses, if these
	// are among the NodePortAddresses.
	LocalhostNodePorts *bool `json:"localhostNodePorts"`
	SNATNodeInternalIP *bool `json:"snatNodeInternalIP"`
	// SyncPeriod is the interval at which lost rules are looked for, MinSyncPeriod the
	// least time between two changes of the rules.
	SyncPeriod    metav1.Duration `json:"syncPeriod"`
	MinSyncPeriod metav1.Duration `json:"minSyncPeriod"`
}

// IPVS are the settings of the mode ipvs. Its masquerading has the settings of IPTables,
// as in kube-proxy.
type IPVS struct {
	// SyncPeriod is the interval at which changes of others are looked for, MinSyncPeriod
	// the least time between two changes.
	SyncPeriod    metav1.Duration `json:"syncPeriod"`
	MinSyncPeriod metav1.Duration `json:"minSyncPeriod"`
	// Scheduler is the name of a scheduler of the kernel; "" is rr.
	Scheduler string `json:"scheduler"`
	// ExcludeCIDRs are ranges of addresses whose virtual servers are those of others.
	ExcludeCIDRs []string `json:"excludeCIDRs"`
	// StrictARP keeps the node from answering ARP for addresses of other interfaces.
	StrictARP bool `json:"strictARP"`
	// The timeouts are how long the kernel knows idle connections, those that one side
	// has closed, and flows of UDP; 0 leaves what it has.
	TCPTimeout    metav1.Duration `json:"tcpTimeout"`
	TCPFinTimeout metav1.Duration `json:"tcpFinTimeout"`
	UDPTimeout    metav1.Duration `json:"udpTimeout"`
}

// Schedulers returns the names of the schedulers of the mode ipvs.
func Schedulers() []string {
	return []string{"rr", "wrr", "lc", "wlc", "lblc", "lblcr", "sh", "dh", "sed", "nq", "mh"}
}

// NFTables are the settings of the mode nftables.
type NFTables struct {
	// MasqueradeBit is the number of the bit of the packet mark for connections to
	// masquerade, 0 to 31.
	MasqueradeBit *int32 `json:"masqueradeBit"`
	// MasqueradeAll masquerades all connections to cluster IPs.
	MasqueradeAll bool            `json:"masqueradeAll"`
	SyncPeriod    metav1.Duration `json:"syncPeriod"`
	MinSyncPeriod metav1.Duration `json:"minSyncPeriod"`
}

// Conntrack are the settings of the kernel's connection tracking. 0 leaves a setting
// as it is.
type Conntrack struct {
	// MaxPerCore is how many connections are tracked for each processor, but at
	// least Min altogether.
	MaxPerCore            *int32           `json:"maxPerCore"`
	Min                   *int32           `json:"min"`
	TCPEstablishedTimeout *metav1.Duration `json:"tcpEstablishedTimeout"`
	TCPCloseWaitTimeout   *metav1.Duration `json:"tcpCloseWaitTimeout"`
	// TCPBeLiberal tracks packets outside of the window of a connection, too.
	TCPBeLiberal     bool            `json:"tcpBeLiberal"`
	UDPTimeout       metav1.Duration `json:"udpTimeout"`
	UDPStreamTimeout metav1.Duration `json:"udpStreamTimeout"`
}

// Winkernel are the settings of Windows.
type Winkernel struct {
	NetworkName           string `json:"networkName"`
	SourceVip             string `json:"sourceVip"`
	EnableDSR             bool   `json:"enableDSR"`
	RootHnsEndpointName   string `json:"rootHnsEndpointName"`
	ForwardHealthCheckVip bool   `json:"forwardHealthCheckVip"`
}

// DetectLocal are the settings of two of the modes of DetectLocalMode.
type DetectLocal struct {
	// BridgeInterface is the interface by which connections of pods arrive.
	BridgeInterface string `json:"bridgeInterface"`
	// InterfaceNamePrefix is what the name of that interface begins with.
	InterfaceNamePrefix string `json:"interfaceNamePrefix"`
}

// The values of DetectLocalMode.
const (
	LocalModeClusterCIDR         = "ClusterCIDR"
	LocalModeNodeCIDR            = "NodeCIDR"
	LocalModeBridgeInterface     = "BridgeInterface"
	LocalModeInterfaceNamePrefix = "InterfaceNamePrefix"
)

// The values of Mode.
const (
	ModeNFTables  = "nftables"
	ModeIPTables  = "iptables"
	ModeIPVS      = "ipvs"
	ModeUserspace = "userspace" // not in kube-proxy since 1.26
)
