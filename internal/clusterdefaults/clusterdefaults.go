// Package clusterdefaults has the default values of a cluster's options. A
// cluster in a Go program and the first one of the command line have the same
// defaults. The names of what a cluster makes on its machine are in
// internal/clusternames.
package clusterdefaults

import (
	"slices"
	"strings"
)

// Defaults of cluster.Options.
const (
	Name         = "coracle"
	ServiceCIDR  = "10.96.0.0/16"
	ClusterCIDR  = "10.244.0.0/16"
	NodeCIDR     = "10.212.0.0/24"
	NodeCIDRIPv6 = "fd00:10:212::/64" // of nodes whose pods have IPv6 addresses
	KubeletPort  = 10250
	DNSPort      = 10053
	// IngressHTTPPort and IngressHTTPSPort are those of IngressOptions.
	IngressHTTPPort, IngressHTTPSPort = 80, 443
	// WireGuardPort is the UDP port of an encrypted pod network.
	WireGuardPort = 51820
)

// NodeCIDRs returns the ranges of the addresses of several nodes on one machine: ipv4,
// ipv6 or both with a comma between, as the pods have ranges, and in that order.
func NodeCIDRs(clusterCIDR, ipv4, ipv6 string) string {
	var ranges []string
	for pods := range strings.SplitSeq(clusterCIDR, ",") {
		of := ipv4
		if strings.Contains(pods, ":") {
			of = ipv6
		}
		if !slices.Contains(ranges, of) {
			ranges = append(ranges, of)
		}
	}
	return strings.Join(ranges, ",")
}

// MaxNodes is how many nodes a cluster has on one machine at most.
const MaxNodes = 50

// OneNodeKubeletFlags returns the flags of the kubelet that several nodes on one machine
// cannot share, and that the cluster sets for each of them.
func OneNodeKubeletFlags() []string {
	return []string{
		"hostname-override", "node-ip", "root-dir", "cert-dir", "cgroup-root", "kubelet-cgroups", "container-runtime-endpoint", "image-service-endpoint", "provider-id", "pod-cidr", "address",
	}
}
