// Package clusternames names what a cluster makes on its machine besides its data.
// Each name contains the name of the cluster, so that clusters on one machine share
// nothing, and what a cluster leaves behind shows which cluster it was:
//
//	/run/coracle/NAME     directory of sockets
//	/coracle-NAME         parent of the pods' control groups
//	cor-NAME              bridge of the pods
//	coracle-NAME          nftables table of the proxy
//	coracle-NAME.policy   nftables table of the network policies
//	coracle-podnet-NAME   nftables table of the pod network
//	cos-NAME              bridge of the machine's further nodes, with ports cos-NAME.2, cos-NAME.3 and so on
//	cov-NAME              tunnel to the pods of machines on other links
//
// In the proxy mode ipvs, one cluster of a machine also has the interface kube-ipvs0,
// whose alias names the table of its proxy.
//
// Everything that further nodes make is named as for clusters NAME.2, NAME.3 and
// so on, except for their sockets, which are in /run/coracle/NAME/2. A cluster's
// name has no dots.
package clusternames

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// OfNode returns the name by which a node of a cluster names what it makes. Nodes
// of a machine are numbered from 1.
func OfNode(cluster string, node int) string {
	if node <= 1 {
		return cluster
	}
	return cluster + "." + strconv.Itoa(node)
}

// ClusterOf returns the cluster of a name that OfNode has returned.
func ClusterOf(name string) string {
	if i := strings.LastIndexByte(name, '.'); i > 0 {
		if node, err := strconv.Atoi(name[i+1:]); err == nil && node > 1 {
			return name[:i]
		}
	}
	return name
}

// RunDir returns the directory of a cluster's sockets.
func RunDir(cluster string) string { return "/run/coracle/" + cluster }

// NodeRunDir returns the directory of a node's sockets.
func NodeRunDir(cluster string, node int) string {
	if node <= 1 {
		return RunDir(cluster)
	}
	return RunDir(cluster) + "/" + strconv.Itoa(node)
}

// CgroupRoot returns the parent of the control groups of a cluster's pods.
func CgroupRoot(cluster string) string { return "/coracle-" + cluster }

// BridgePrefix is the prefix of the names of bridges for pods, SegmentPrefix that
// of bridges between further nodes, and TunnelPrefix that of tunnels between
// machines.
const (
	BridgePrefix  = "cor-"
	SegmentPrefix = "cos-"
	TunnelPrefix  = "cov-"
)

// maxInterfaceName is the length of the longest name that the kernel gives to an
// interface, in bytes.
const maxInterfaceName = 15

// Bridge returns the name of the bridge of a node's pods (OfNode). It has a digest
// of the name if that is too long for an interface.
func Bridge(node string) string { return interfaceName(BridgePrefix, node, "") }

// Segment returns the name of the bridge of a cluster's further nodes.
func Segment(cluster string) string { return interfaceName(SegmentPrefix, cluster, "") }

// SegmentPort returns the name of the interface by which a further node is
// attached to that bridge.
func SegmentPort(cluster string, node int) string {
	return interfaceName(SegmentPrefix, cluster, "."+strconv.Itoa(node))
}

// Tunnel returns the name of the interface through which a node (OfNode) reaches
// the pods of machines on other links.
func Tunnel(node string) string { return interfaceName(TunnelPrefix, node, "") }

func interfaceName(prefix, name, suffix string) string {
	if short := prefix + name + suffix; len(short) <= maxInterfaceName {
		return short
	}
	digest := fmt.Sprintf("%x", sha256.Sum256([]byte(name)))
	return prefix + digest[:maxInterfaceName-len(prefix)-len(suffix)] + suffix
}

// VirtualLink is the interface that has the addresses of Services in the proxy mode
// ipvs, under kube-proxy's name. A network namespace has one.
const VirtualLink = "kube-ipvs0"

// IsClusters reports whether an interface of this name is a cluster's: a bridge, a
// port of one, a tunnel, or VirtualLink. Its addresses go with the cluster.
func IsClusters(name string) bool {
	return name == VirtualLink || slices.ContainsFunc([]string{BridgePrefix, SegmentPrefix, TunnelPrefix}, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

const (
	tablePrefix      = "coracle-"
	podNetworkPrefix = "podnet-"
	policySuffix     = ".policy"
)

// ProxyTable returns the nftables table of a cluster's proxy.
func ProxyTable(cluster string) string { return tablePrefix + cluster }

// PolicyTable returns the nftables table of a cluster's network policies, given
// the table of its proxy, which options can set. The dot keeps it from being the
// proxy's table of another cluster: a cluster's name has no dots.
func PolicyTable(proxyTable string) string { return proxyTable + policySuffix }

// PodNetworkTable returns the nftables table of a cluster's pod network.
func PodNetworkTable(cluster string) string { return tablePrefix + podNetworkPrefix + cluster }

// ClusterOfTable returns the cluster that has an nftables table, as far as its name
// says. If the name fits several clusters, it prefers a known one.
func ClusterOfTable(table string, known []string) (cluster string, ok bool) {
	cluster, ok = strings.CutPrefix(table, tablePrefix)
	if !ok || slices.Contains(known, cluster) {
		return cluster, ok
	}
	cluster = strings.TrimSuffix(cluster, policySuffix)
	if !slices.Contains(known, cluster) {
		cluster = strings.TrimPrefix(cluster, podNetworkPrefix)
	}
	return cluster, true
}
