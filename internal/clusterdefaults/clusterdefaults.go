// Package clusterdefaults has the default values of a cluster's options. A
// cluster in a Go program and the first one of the command line have the same
// defaults. The names of what a cluster makes on its machine are in
// internal/clusternames.
package clusterdefaults

// Defaults of cluster.Options.
const (
	Name        = "coracle"
	ServiceCIDR = "10.96.0.0/16"
	ClusterCIDR = "10.244.0.0/16"
	NodeCIDR    = "10.212.0.0/24"
	KubeletPort = 10250
	DNSPort     = 10053
)

// MaxNodes is how many nodes a cluster has on one machine at most.
const MaxNodes = 50
