package component

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strconv"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/coracle-io/coracle/internal/component/base"
	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/proxy"
	"github.com/coracle-io/coracle/internal/proxy/configv1alpha1"
)

// proxySource is where a proxy's configuration comes from. As in upstream, flags of
// proxyFields have no effect with a file, except for --hostname-override.
type proxySource struct {
	// flags has the values of the flags of proxyFields, or is nil without flags.
	flags         *configv1alpha1.KubeProxyConfiguration
	configFile    string
	writeConfigTo string // file to write the configuration to instead of running
	master        string // URL of the API server
	initOnly      bool
	// healthzPort and metricsPort are of deprecated flags. 0 turns a server off.
	healthzPort int
	metricsPort int

	fields  []*fieldValue
	logging base.Logging // without the format
	ignored *pflag.FlagSet
	fs      *pflag.FlagSet
}

// addFlags binds the flags to fs. The ports are those of addresses without one.
func (o *proxySource) addFlags(fs *pflag.FlagSet, defaults *configv1alpha1.KubeProxyConfiguration, healthzPort, metricsPort int) {
	o.fs, o.flags, o.healthzPort, o.metricsPort = fs, defaults, healthzPort, metricsPort
	o.fields = bindFields(fs, o.flags, proxyFields())
	fs.StringVar(&o.configFile, "config", o.configFile, "KubeProxyConfiguration file of kubeproxy.config.k8s.io/v1alpha1, with which most flags have no effect")
	fs.StringVar(&o.writeConfigTo, "write-config-to", o.writeConfigTo, "write the configuration with its defaults to this file, and exit")
	fs.BoolVar(&o.initOnly, "init-only", o.initOnly, "change the kernel's connection tracking, which needs root, and exit")
	fs.IntVar(&o.healthzPort, "healthz-port", o.healthzPort, "deprecated, use --healthz-bind-address: port of /healthz, if that has none; 0 disables it")
	fs.IntVar(&o.metricsPort, "metrics-port", o.metricsPort, "deprecated, use --metrics-bind-address: port of /metrics, if that has none; 0 disables it")
	addMasterFlag(fs, &o.master)
	o.logging.AddFlushFrequency(fs)
	fs.AddFlagSet(o.ignored)
	proxyKinds(fs)
}

// given reports whether a flag was given.
func (o *proxySource) given(name string) bool { return o.fs != nil && o.fs.Changed(name) }

// proxySettings are what a proxy runs with.
type proxySettings struct {
	config       *configv1alpha1.KubeProxyConfiguration
	gates        *feature.Set
	nodePorts    proxy.NodePortAddresses
	clusterCIDRs []netip.Prefix
	excludeCIDRs []netip.Prefix // of the mode ipvs, also when another mode removes what it has left
	warnings     []string
}

// load returns what the flags or the file say, with defaults, and checks it.
func (o *proxySource) load(defaults *configv1alpha1.KubeProxyConfiguration) (*proxySettings, error) {
	s := &proxySettings{}
	if err := o.merge(s, defaults); err != nil {
		return nil, err
	}
	if err := configv1alpha1.Validate(s.config); err != nil {
		if o.configFile != "" {
			err = fmt.Errorf("--config=%s: %w", o.configFile, err)
		}
		return nil, err
	}
	if err := errors.Join(o.logging.Validate(), base.CheckLogging(&s.config.Logging)); err != nil {
		return nil, err
	}
	var err error
	if s.gates, err = proxyGates(s.config.FeatureGates); err != nil {
		return nil, err
	}
	if s.config.Mode == configv1alpha1.ModeIPVS {
		if !s.gates.Enabled(feature.KubeProxyIPVS) {
			return nil, fmt.Errorf("the mode ipvs is turned off by featureGates (--feature-gates): %s=false", feature.KubeProxyIPVS)
		}
		s.warnings = append(s.warnings, ipvsDeprecation)
	}
	if s.nodePorts, err = proxy.ParseNodePortAddresses(s.config.NodePortAddresses); err != nil {
		return nil, err
	}
	if a, err := netip.ParseAddr(s.config.BindAddress); err == nil && !a.IsUnspecified() {
		s.nodePorts.Bind = a.Unmap()
	}
	s.nodePorts.Loopback = s.config.Mode == configv1alpha1.ModeIPTables && *s.config.IPTables.LocalhostNodePorts && s.nodePorts.HasLoopback()
	if s.clusterCIDRs, err = configv1alpha1.ParseCIDRs(s.config.ClusterCIDR); err != nil {
		return nil, err
	}
	for _, text := range s.config.IPVS.ExcludeCIDRs {
		if r, err := netip.ParsePrefix(text); err == nil { // only the mode ipvs has checked that
			s.excludeCIDRs = append(s.excludeCIDRs, r.Masked())
		}
	}
	s.warnings = slices.Concat(s.warnings, s.gates.Warnings(), s.withoutEffect(), base.LoggingWarnings(&s.config.Logging), s.incomplete())
	return s, nil
}

// merge sets the configuration of s to what the flags or the file say, with defaults.
func (o *proxySource) merge(s *proxySettings, defaults *configv1alpha1.KubeProxyConfiguration) error {
	c := defaults
	switch {
	case o.configFile != "":
		file, err := o.file()
		if err != nil {
			return fmt.Errorf("--config=%s: %w", o.configFile, err)
		}
		if name := defaults.HostnameOverride; name != "" { // the cluster has named it
			if file.HostnameOverride != "" && file.HostnameOverride != name {
				s.warnings = append(s.warnings, "hostnameOverride has no effect: the node is "+name)
			}
			file.HostnameOverride = name
		}
		addresses := file.NodePortAddresses
		file.Fill(defaults)
		c = file
		if len(addresses) == 0 && c.Mode != configv1alpha1.ModeNFTables {
			c.NodePortAddresses = nil // all of them, in other modes
		}
		var own []*fieldValue
		for _, v := range o.fields {
			switch {
			case !v.given:
			case v.flag.name == "hostname-override":
				own = append(own, v)
			default:
				s.warnings = append(s.warnings, "--"+v.flag.name+" has no effect with --config")
			}
		}
		if err := setGiven(c, own); err != nil {
			return err
		}
	case o.flags != nil:
		c = new(*o.flags)
		o.adaptToMode(c)
	}
	if len(c.NodePortAddresses) == 0 && c.Mode == configv1alpha1.ModeNFTables {
		c.NodePortAddresses = defaults.NodePortAddresses
	}
	for _, server := range []struct {
		flag, instead string
		port          int
		address       *string
	}{
		{"healthz-port", "healthz-bind-address", o.healthzPort, &c.HealthzBindAddress},
		{"metrics-port", "metrics-bind-address", o.metricsPort, &c.MetricsBindAddress},
	} {
		if o.given(server.flag) {
			s.warnings = append(s.warnings, "--"+server.flag+" is deprecated: use --"+server.instead)
			if server.port == 0 && o.configFile == "" {
				*server.address = ""
			}
		}
		if _, err := netip.ParseAddr(*server.address); err == nil { // it has no port
			*server.address = listenAt(*server.address, server.port)
		}
	}
	s.warnings = append(s.warnings, warningsOf(o.ignored)...)
	s.config = c
	return nil
}

// adaptToMode changes what the flags say where they mean the mode, and not a field.
func (o *proxySource) adaptToMode(c *configv1alpha1.KubeProxyConfiguration) {
	if c.Mode == configv1alpha1.ModeIPTables || c.Mode == configv1alpha1.ModeIPVS {
		c.IPTables.MasqueradeAll, c.NFTables.MasqueradeAll = c.NFTables.MasqueradeAll, false
	}
	if c.Mode != configv1alpha1.ModeNFTables && !o.given("nodeport-addresses") {
		c.NodePortAddresses = nil // all of them, in other modes
	}
}

// listenAt returns an address with a port, or "" if the port is 0.
func listenAt(address string, port int) string {
	if port == 0 {
		return ""
	}
	return net.JoinHostPort(address, strconv.Itoa(port))
}

// file reads the file of --config.
func (o *proxySource) file() (*configv1alpha1.KubeProxyConfiguration, error) {
	raw, err := os.ReadFile(o.configFile)
	if err != nil {
		return nil, err
	}
	if len(raw) > maxConfigurationFile {
		return nil, errors.New("the file is larger than 1 MiB")
	}
	return configv1alpha1.Decode(raw)
}

// proxyGates parses feature gates. A gate of a feature that the proxy does not have
// cannot be turned on.
func proxyGates(gates map[string]bool) (*feature.Set, error) {
	var entries []string
	for name, on := range gates {
		entries = append(entries, fmt.Sprintf("%s=%t", name, on))
	}
	slices.Sort(entries)
	set, err := feature.Parse(entries)
	if err != nil {
		return nil, fmt.Errorf("featureGates (--feature-gates): %w", err)
	}
	if gate := feature.KubeProxyNFTablesLocalhostNodePorts; set.Named()[gate] {
		return nil, fmt.Errorf("featureGates (--feature-gates): %s=true: this proxy does not have this feature", gate)
	}
	return set, nil
}

// ipvsDeprecation is upstream's since 1.35 (KEP-5495).
const ipvsDeprecation = "The ipvs proxier is now deprecated and may be removed in a future release. Please use 'nftables' instead."

// tellDeprecation records an Event of the node if its mode is deprecated, as upstream does.
func (s *proxySettings) tellDeprecation(events record.EventRecorder, nodeName string) {
	if s.config.Mode == configv1alpha1.ModeIPVS {
		node := &v1.ObjectReference{Kind: "Node", Name: nodeName, UID: types.UID(nodeName)}
		events.Event(node, v1.EventTypeWarning, "IPVSDeprecation", ipvsDeprecation)
	}
}

// setting is a setting without effect.
type setting struct{ path, why string }

// ofOtherModes returns the settings of modes that have no effect in a mode.
func ofOtherModes(mode string) []setting {
	const (
		other = "has no effect: it is about another mode"
		snat  = "has no effect: masquerading takes the address of the interface"
	)
	periods := []setting{{"nftables.syncPeriod", watched}, {"nftables.minSyncPeriod", watched}}
	switch mode {
	case configv1alpha1.ModeIPTables:
		return []setting{{"iptables.snatNodeInternalIP", snat}, {"ipvs", other}, {"nftables", other}}
	case configv1alpha1.ModeIPVS: // it masquerades as the mode iptables
		return []setting{
			{"iptables.snatNodeInternalIP", snat}, {"iptables.localhostNodePorts", other},
			{"iptables.syncPeriod", other}, {"iptables.minSyncPeriod", other}, {"nftables", other},
		}
	case configv1alpha1.ModeUserspace:
		all := setting{"nftables.masqueradeAll", "has no effect: endpoints see the node's address of all connections"}
		return append([]setting{{"iptables", other}, {"ipvs", other}, all}, periods...)
	}
	return append([]setting{{"iptables", other}, {"ipvs", other}}, periods...)
}

// withoutEffect names the settings that differ from the defaults and change nothing.
func (s *proxySettings) withoutEffect() (warnings []string) {
	const (
		client  = "has no effect: the client has no such limit"
		windows = "has no effect: it is about Windows"
	)
	defaults := reflect.ValueOf(configv1alpha1.Defaults())
	for _, setting := range slices.Concat([]setting{
		{"clientConnection.qps", client}, {"clientConnection.burst", client},
		{"clientConnection.contentType", "has no effect: the client uses protobuf"},
		{"clientConnection.acceptContentTypes", "has no effect: the client uses protobuf"},
		{"bindAddressHardFail", hardFail},
		{"showHiddenMetricsForVersion", "has no effect: all metrics are served"},
	}, ofOtherModes(s.config.Mode), []setting{
		{"configSyncPeriod", watched},
		{"winkernel", windows}, {"windowsRunAsService", windows},
		{"portRange", "has no effect: no mode uses it any more"},
	}) {
		own, usual := fieldAt(reflect.ValueOf(s.config), setting.path), fieldAt(defaults, setting.path)
		if !reflect.DeepEqual(own.Interface(), usual.Interface()) {
			warnings = append(warnings, setting.path+" "+setting.why)
		}
	}
	return warnings
}

// incomplete names what the settings leave open.
func (s *proxySettings) incomplete() (warnings []string) {
	if s.config.DetectLocalMode == configv1alpha1.LocalModeClusterCIDR && s.config.ClusterCIDR == "" {
		warnings = append(warnings, "detectLocalMode is ClusterCIDR, but there is no clusterCIDR: no connections to cluster IPs are masqueraded")
	}
	if slices.Contains(s.config.NodePortAddresses, "localhost") && !s.nodePorts.Loopback {
		warnings = append(warnings, "nodePortAddresses: localhost has no effect: node ports do not answer at loopback addresses")
	}
	if s.config.Mode == configv1alpha1.ModeUserspace {
		warnings = append(warnings, "in the mode userspace, network policies see the node instead of the clients of Services, whose connections they do not keep from pods")
	}
	if len(s.config.NodePortAddresses) == 0 {
		warnings = append(warnings, "nodePortAddresses is unset: NodePort connections will be accepted on all local IPs; consider --nodeport-addresses=primary")
	}
	ranges := proxy.NodePortRanges(s.nodePorts.Ranges)
	if s.nodePorts.Primary || len(ranges) == 0 {
		return warnings
	}
	for family, is4 := range map[string]bool{"IPv4": true, "IPv6": false} {
		if !slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Addr().Is4() == is4 }) {
			warnings = append(warnings, "nodePortAddresses has no "+family+" addresses; NodePort connections will be accepted on all local "+family+" IPs")
		}
	}
	return warnings
}
