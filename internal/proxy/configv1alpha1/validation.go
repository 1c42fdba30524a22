package configv1alpha1

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/proxy"
)

// Validate returns everything that is wrong with a configuration that has its
// defaults. The messages are kube-proxy's, the paths those of the file. Feature gates
// are not checked.
func Validate(c *KubeProxyConfiguration) error {
	var errs field.ErrorList
	errs = append(errs, validateMode(c)...)
	errs = append(errs, validateAddresses(c)...)
	errs = append(errs, validateConntrack(&c.Conntrack, field.NewPath("conntrack"))...)
	errs = append(errs, validateRanges(c)...)
	errs = append(errs, validateDetectLocal(c)...)
	if score := ptr.Deref(c.OOMScoreAdj, 0); score < -1000 || score > 1000 {
		errs = append(errs, field.Invalid(field.NewPath("oomScoreAdj"), score, "must be within the range [-1000, 1000]"))
	}
	if c.ConfigSyncPeriod.Duration <= 0 {
		errs = append(errs, field.Invalid(field.NewPath("configSyncPeriod"), c.ConfigSyncPeriod.Duration.String(), "must be greater than 0"))
	}
	if c.ClientConnection.Burst < 0 {
		errs = append(errs, field.Invalid(field.NewPath("clientConnection", "burst"), c.ClientConnection.Burst, "must be greater than or equal to 0"))
	}
	if _, err := utilnet.ParsePortRange(c.PortRange); err != nil {
		errs = append(errs, field.Invalid(field.NewPath("portRange"), c.PortRange, "must be a valid port range (e.g. 300-2000)"))
	}
	return errs.ToAggregate()
}

// validateMode checks the mode and its settings. Of the settings of other modes only the
// bits of masquerading are checked.
func validateMode(c *KubeProxyConfiguration) (errs field.ErrorList) {
	if modes := []string{ModeIPTables, ModeIPVS, ModeNFTables, ModeUserspace}; !slices.Contains(modes, c.Mode) {
		errs = append(errs, field.NotSupported(field.NewPath("mode"), c.Mode, modes))
	}
	iptables, nftables := field.NewPath("iptables"), field.NewPath("nftables")
	errs = append(errs, validateBit(c.IPTables.MasqueradeBit, iptables.Child("masqueradeBit"))...)
	errs = append(errs, validateBit(c.NFTables.MasqueradeBit, nftables.Child("masqueradeBit"))...)
	switch c.Mode {
	case ModeIPTables:
		return append(errs, validatePeriods(c.IPTables.SyncPeriod.Duration, c.IPTables.MinSyncPeriod.Duration, iptables)...)
	case ModeIPVS:
		ipvs := field.NewPath("ipvs")
		errs = append(errs, validatePeriods(c.IPVS.SyncPeriod.Duration, c.IPVS.MinSyncPeriod.Duration, ipvs)...)
		return append(errs, validateIPVS(&c.IPVS, ipvs)...)
	}
	return append(errs, validatePeriods(c.NFTables.SyncPeriod.Duration, c.NFTables.MinSyncPeriod.Duration, nftables)...)
}

func validatePeriods(period, minPeriod time.Duration, path *field.Path) (errs field.ErrorList) {
	if period <= 0 {
		errs = append(errs, field.Invalid(path.Child("syncPeriod"), period.String(), "must be greater than 0"))
	}
	if minPeriod < 0 {
		errs = append(errs, field.Invalid(path.Child("minSyncPeriod"), minPeriod.String(), "must be greater than or equal to 0"))
	}
	if minPeriod > period { // kube-proxy shows the lower bound
		errs = append(errs, field.Invalid(path.Child("syncPeriod"), minPeriod.String(), "must be greater than or equal to "+path.Child("minSyncPeriod").String()))
	}
	return errs
}

func validateBit(mark *int32, path *field.Path) (errs field.ErrorList) {
	if bit := ptr.Deref(mark, 0); bit < 0 || bit > 31 {
		errs = append(errs, field.Invalid(path, bit, "must be within the range [0, 31]"))
	}
	return errs
}

// validateIPVS checks the settings of the mode ipvs that other modes do not have.
func validateIPVS(c *IPVS, path *field.Path) (errs field.ErrorList) {
	if names := Schedulers(); c.Scheduler != "" && !slices.Contains(names, c.Scheduler) {
		errs = append(errs, field.Invalid(path.Child("scheduler"), c.Scheduler, fmt.Sprintf("must be in %v, blank means the default algorithm method (currently rr)", names)))
	}
	for i, text := range c.ExcludeCIDRs {
		if _, err := netip.ParsePrefix(text); err != nil {
			errs = append(errs, field.Invalid(path.Child("excludeCIDRs").Index(i), text, "must be a valid CIDR"))
		}
	}
	for _, t := range []struct {
		name    string
		timeout time.Duration
	}{{"tcpTimeout", c.TCPTimeout.Duration}, {"tcpFinTimeout", c.TCPFinTimeout.Duration}, {"udpTimeout", c.UDPTimeout.Duration}} {
		if t.timeout < 0 {
			errs = append(errs, field.Invalid(path.Child(t.name), t.timeout.String(), "must be greater than or equal to 0"))
		}
	}
	return errs
}

func validateAddresses(c *KubeProxyConfiguration) (errs field.ErrorList) {
	if net.ParseIP(c.BindAddress) == nil {
		errs = append(errs, field.Invalid(field.NewPath("bindAddress"), c.BindAddress, "not a valid textual representation of an IP address"))
	}
	for _, at := range []struct{ name, address string }{{"healthzBindAddress", c.HealthzBindAddress}, {"metricsBindAddress", c.MetricsBindAddress}} {
		if at.address != "" { // otherwise a flag has turned it off
			errs = append(errs, validateHostPort(at.address, field.NewPath(at.name))...)
		}
	}
	return errs
}

func validateHostPort(address string, path *field.Path) (errs field.ErrorList) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return field.ErrorList{field.Invalid(path, address, "must be IP:port")}
	}
	if net.ParseIP(host) == nil {
		errs = append(errs, field.Invalid(path, host, "must be a valid IP"))
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		errs = append(errs, field.Invalid(path, port, "must be a valid port"))
	}
	return errs
}

func validateConntrack(c *Conntrack, path *field.Path) (errs field.ErrorList) {
	const notNegative = "must be greater than or equal to 0"
	if n := ptr.Deref(c.MaxPerCore, 0); n < 0 {
		errs = append(errs, field.Invalid(path.Child("maxPerCore"), n, notNegative))
	}
	if n := ptr.Deref(c.Min, 0); n < 0 {
		errs = append(errs, field.Invalid(path.Child("min"), n, notNegative))
	}
	for _, t := range []struct {
		name    string
		timeout time.Duration
	}{
		{"tcpEstablishedTimeout", ptr.Deref(c.TCPEstablishedTimeout, metav1.Duration{}).Duration},
		{"tcpCloseWaitTimeout", ptr.Deref(c.TCPCloseWaitTimeout, metav1.Duration{}).Duration},
		{"udpTimeout", c.UDPTimeout.Duration},
		{"udpStreamTimeout", c.UDPStreamTimeout.Duration},
	} {
		if t.timeout < 0 {
			errs = append(errs, field.Invalid(path.Child(t.name), t.timeout.String(), notNegative))
		}
	}
	return errs
}

func validateRanges(c *KubeProxyConfiguration) (errs field.ErrorList) {
	const (
		one  = "must be a valid CIDR block (e.g. 10.100.0.0/16 or fde4:8dba:82e1::/48)"
		pair = "must be a either a single CIDR or dual-stack pair of CIDRs (e.g. [10.100.0.0/16, fde4:8dba:82e1::/48]"
	)
	path := field.NewPath("clusterCIDR")
	list, err := ParseCIDRs(c.ClusterCIDR)
	switch {
	case strings.Count(c.ClusterCIDR, ",") > 1, len(list) == 2 && list[0].Addr().Is4() == list[1].Addr().Is4():
		errs = append(errs, field.Invalid(path, c.ClusterCIDR, pair))
	case err != nil:
		errs = append(errs, field.Invalid(path, c.ClusterCIDR, one))
	}
	for i, text := range c.NodePortAddresses {
		if _, err := proxy.ParseNodePortAddresses([]string{text}); err != nil {
			errs = append(errs, field.Invalid(field.NewPath("nodePortAddresses").Index(i), text, "must be a valid CIDR"))
		}
	}
	return errs
}

// ParseCIDRs parses CIDRs with commas between; "" is none.
func ParseCIDRs(text string) (list []netip.Prefix, err error) {
	if text == "" {
		return nil, nil
	}
	for one := range strings.SplitSeq(text, ",") {
		p, err := netip.ParsePrefix(one)
		if err != nil {
			return nil, err
		}
		list = append(list, p.Masked())
	}
	return list, nil
}

func validateDetectLocal(c *KubeProxyConfiguration) (errs field.ErrorList) {
	modes := []string{LocalModeClusterCIDR, LocalModeNodeCIDR, LocalModeBridgeInterface, LocalModeInterfaceNamePrefix, ""}
	path := field.NewPath("detectLocal")
	switch c.DetectLocalMode {
	case LocalModeClusterCIDR, LocalModeNodeCIDR:
	case LocalModeBridgeInterface:
		errs = append(errs, validateInterface(c.DetectLocal.BridgeInterface, path.Child("bridgeInterface"))...)
	case LocalModeInterfaceNamePrefix:
		errs = append(errs, validateInterface(c.DetectLocal.InterfaceNamePrefix, path.Child("interfaceNamePrefix"))...)
	default:
		errs = append(errs, field.NotSupported(field.NewPath("detectLocalMode"), c.DetectLocalMode, modes))
	}
	return errs
}

// longestInterface is how long the name of a network interface can be.
const longestInterface = 15

func validateInterface(name string, path *field.Path) field.ErrorList {
	switch {
	case name == "":
		return field.ErrorList{field.Invalid(path, name, "must not be empty")}
	case len(name) > longestInterface:
		return field.ErrorList{field.TooLong(path, name, longestInterface)}
	case strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`/"\`, r) }):
		return field.ErrorList{field.Invalid(path, name, "must be the name of a network interface")}
	}
	return nil
}
