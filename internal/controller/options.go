package controller

import (
	"time"

	"github.com/spf13/pflag"
)

// Options are the controller manager's flags, with upstream's names and
// defaults.
type Options struct {
	// Controllers is the --controllers list; see Select.
	Controllers []string

	ConcurrentRCSyncs                  int
	ConcurrentReplicaSetSyncs          int
	ConcurrentDeploymentSyncs          int
	ConcurrentStatefulSetSyncs         int
	ConcurrentDaemonSetSyncs           int
	ConcurrentJobSyncs                 int
	ConcurrentCronJobSyncs             int
	ConcurrentHPASyncs                 int
	ConcurrentEndpointSyncs            int
	ConcurrentServiceEndpointSyncs     int
	ConcurrentMirroringEndpointSyncs   int
	ConcurrentNamespaceSyncs           int
	ConcurrentServiceAccountTokenSyncs int
	ConcurrentGCSyncs                  int
	ConcurrentResourceQuotaSyncs       int
	ConcurrentTTLAfterFinishedSyncs    int
	ConcurrentEphemeralVolumeSyncs     int
	ConcurrentResourceClaimSyncs       int
	MaxEndpointsPerSlice               int
	MirroringMaxEndpointsPerSubset     int
	TerminatedPodGCThreshold           int
	NodeMonitorGracePeriod             time.Duration
	NodeStartupGracePeriod             time.Duration
	NodeEvictionRate                   float32
	SecondaryNodeEvictionRate          float32
	UnhealthyZoneThreshold             float32
	LargeClusterSizeThreshold          int
	AllocateNodeCIDRs                  bool
	ClusterCIDR                        []string
	ServiceClusterIPRange              []string
	NodeCIDRMaskSize                   int
	NodeCIDRMaskSizeIPv4               int
	NodeCIDRMaskSizeIPv6               int
	ClusterSigningCertFile             string
	ClusterSigningKeyFile              string
	ClusterSigningDuration             time.Duration
	HPASyncPeriod                      time.Duration
	HPADownscaleStabilization          time.Duration
	HPATolerance                       float64
	HPACPUInitializationPeriod         time.Duration
	HPAInitialReadinessDelay           time.Duration
	ResourceQuotaSyncPeriod            time.Duration
	PVClaimBinderSyncPeriod            time.Duration
	EnableGarbageCollector             bool
	ServiceAccountKeyFile              string
	LegacySATokenCleanUpPeriod         time.Duration
	RootCA                             []byte // read from --root-ca-file by the wiring, PEM
}

// DefaultOptions are upstream's defaults.
func DefaultOptions() *Options {
	return &Options{
		Controllers:                        []string{"*"},
		ConcurrentRCSyncs:                  5,
		ConcurrentReplicaSetSyncs:          5,
		ConcurrentDeploymentSyncs:          5,
		ConcurrentStatefulSetSyncs:         5,
		ConcurrentDaemonSetSyncs:           2,
		ConcurrentJobSyncs:                 5,
		ConcurrentCronJobSyncs:             5,
		ConcurrentHPASyncs:                 5,
		ConcurrentEndpointSyncs:            5,
		ConcurrentServiceEndpointSyncs:     5,
		ConcurrentMirroringEndpointSyncs:   5,
		ConcurrentNamespaceSyncs:           10,
		ConcurrentServiceAccountTokenSyncs: 5,
		ConcurrentGCSyncs:                  20,
		ConcurrentResourceQuotaSyncs:       5,
		ConcurrentTTLAfterFinishedSyncs:    5,
		ConcurrentEphemeralVolumeSyncs:     5,
		ConcurrentResourceClaimSyncs:       50,
		MaxEndpointsPerSlice:               100,
		MirroringMaxEndpointsPerSubset:     1000,
		TerminatedPodGCThreshold:           12500,
		NodeMonitorGracePeriod:             50 * time.Second,
		NodeStartupGracePeriod:             time.Minute,
		NodeEvictionRate:                   0.1,
		SecondaryNodeEvictionRate:          0.01,
		UnhealthyZoneThreshold:             0.55,
		LargeClusterSizeThreshold:          50,
		ClusterSigningDuration:             365 * 24 * time.Hour,
		HPASyncPeriod:                      15 * time.Second,
		HPADownscaleStabilization:          5 * time.Minute,
		HPATolerance:                       0.1,
		HPACPUInitializationPeriod:         5 * time.Minute,
		HPAInitialReadinessDelay:           30 * time.Second,
		ResourceQuotaSyncPeriod:            5 * time.Minute,
		PVClaimBinderSyncPeriod:            15 * time.Second,
		EnableGarbageCollector:             true,
		LegacySATokenCleanUpPeriod:         365 * 24 * time.Hour,
	}
}

// AddFlags adds the flags, with the present values as defaults. known are the
// controllers that --controllers may name.
func (o *Options) AddFlags(fs *pflag.FlagSet, known []string) {
	list := ""
	for i, name := range known {
		if i > 0 {
			list += ", "
		}
		list += name
	}
	fs.StringSliceVar(&o.Controllers, "controllers", o.Controllers, "A list of controllers to enable. '*' enables all on-by-default controllers, 'foo' enables the controller named 'foo', '-foo' disables the controller named 'foo'. All controllers: "+list+".")
	for _, f := range []struct {
		to   *int
		name string
		what string
	}{
		{&o.ConcurrentRCSyncs, "concurrent-rc-syncs", "replication controllers"},
		{&o.ConcurrentReplicaSetSyncs, "concurrent-replicaset-syncs", "replica sets"},
		{&o.ConcurrentDeploymentSyncs, "concurrent-deployment-syncs", "deployment objects"},
		{&o.ConcurrentStatefulSetSyncs, "concurrent-statefulset-syncs", "statefulset objects"},
		{&o.ConcurrentDaemonSetSyncs, "concurrent-daemonset-syncs", "daemonset objects"},
		{&o.ConcurrentJobSyncs, "concurrent-job-syncs", "job objects"},
		{&o.ConcurrentCronJobSyncs, "concurrent-cron-job-syncs", "cron job objects"},
		{&o.ConcurrentHPASyncs, "concurrent-horizontal-pod-autoscaler-syncs", "horizontal pod autoscaler objects"},
		{&o.ConcurrentEndpointSyncs, "concurrent-endpoint-syncs", "endpoints"},
		{&o.ConcurrentServiceEndpointSyncs, "concurrent-service-endpoint-syncs", "service endpoint slices"},
		{&o.ConcurrentMirroringEndpointSyncs, "mirroring-concurrent-service-endpoint-syncs", "mirrored endpoints"},
		{&o.ConcurrentNamespaceSyncs, "concurrent-namespace-syncs", "namespace objects"},
		{&o.ConcurrentServiceAccountTokenSyncs, "concurrent-serviceaccount-token-syncs", "service account token objects"},
		{&o.ConcurrentGCSyncs, "concurrent-gc-syncs", "garbage collector workers"},
		{&o.ConcurrentResourceQuotaSyncs, "concurrent-resource-quota-syncs", "resource quotas"},
		{&o.ConcurrentTTLAfterFinishedSyncs, "concurrent-ttl-after-finished-syncs", "ttl-after-finished-controller workers"},
		{&o.ConcurrentEphemeralVolumeSyncs, "concurrent-ephemeralvolume-syncs", "ephemeral volumes"},
		{&o.ConcurrentResourceClaimSyncs, "concurrent-resource-claim-syncs", "resource claims"},
	} {
		fs.IntVar(f.to, f.name, *f.to, "The number of "+f.what+" that are allowed to sync concurrently.")
	}
	fs.IntVar(&o.MaxEndpointsPerSlice, "max-endpoints-per-slice", o.MaxEndpointsPerSlice, "The maximum number of endpoints that will be added to an EndpointSlice.")
	fs.IntVar(&o.MirroringMaxEndpointsPerSubset, "mirroring-max-endpoints-per-subset", o.MirroringMaxEndpointsPerSubset, "The maximum number of endpoints that will be added to an EndpointSlice from one subset of Endpoints.")
	fs.IntVar(&o.TerminatedPodGCThreshold, "terminated-pod-gc-threshold", o.TerminatedPodGCThreshold, "Number of terminated pods that can exist before the terminated pod garbage collector starts deleting terminated pods. If <= 0, the terminated pod garbage collector is disabled.")
	fs.DurationVar(&o.NodeMonitorGracePeriod, "node-monitor-grace-period", o.NodeMonitorGracePeriod, "Amount of time which we allow running Node to be unresponsive before marking it unhealthy.")
	fs.DurationVar(&o.NodeStartupGracePeriod, "node-startup-grace-period", o.NodeStartupGracePeriod, "Amount of time which we allow starting Node to be unresponsive before marking it unhealthy.")
	fs.Float32Var(&o.NodeEvictionRate, "node-eviction-rate", o.NodeEvictionRate, "Number of nodes per second on which pods are deleted in case of node failure when a zone is healthy.")
	fs.Float32Var(&o.SecondaryNodeEvictionRate, "secondary-node-eviction-rate", o.SecondaryNodeEvictionRate, "Number of nodes per second on which pods are deleted in case of node failure when a zone is unhealthy. Taken as 0 in clusters not larger than --large-cluster-size-threshold.")
	fs.Float32Var(&o.UnhealthyZoneThreshold, "unhealthy-zone-threshold", o.UnhealthyZoneThreshold, "Fraction of Nodes in a zone which needs to be not Ready (minimum 3) for zone to be treated as unhealthy.")
	fs.IntVar(&o.LargeClusterSizeThreshold, "large-cluster-size-threshold", o.LargeClusterSizeThreshold, "Number of nodes from which the cluster is treated as large for the eviction logic purposes.")
	fs.BoolVar(&o.AllocateNodeCIDRs, "allocate-node-cidrs", o.AllocateNodeCIDRs, "Should CIDRs for Pods be allocated and set on the nodes.")
	fs.StringSliceVar(&o.ClusterCIDR, "cluster-cidr", o.ClusterCIDR, "CIDR Range for Pods in cluster, one of each IP family.")
	fs.StringSliceVar(&o.ServiceClusterIPRange, "service-cluster-ip-range", o.ServiceClusterIPRange, "CIDR Range for Services in cluster, one of each IP family.")
	fs.IntVar(&o.NodeCIDRMaskSize, "node-cidr-mask-size", o.NodeCIDRMaskSize, "Mask size for node cidr in cluster. Default is 24 for IPv4 and 64 for IPv6.")
	fs.IntVar(&o.NodeCIDRMaskSizeIPv4, "node-cidr-mask-size-ipv4", o.NodeCIDRMaskSizeIPv4, "Mask size for IPv4 node cidr in dual-stack cluster. Default is 24.")
	fs.IntVar(&o.NodeCIDRMaskSizeIPv6, "node-cidr-mask-size-ipv6", o.NodeCIDRMaskSizeIPv6, "Mask size for IPv6 node cidr in dual-stack cluster. Default is 64.")
	fs.StringVar(&o.ClusterSigningCertFile, "cluster-signing-cert-file", o.ClusterSigningCertFile, "Filename containing a PEM-encoded X509 CA certificate used to issue cluster-scoped certificates.")
	fs.StringVar(&o.ClusterSigningKeyFile, "cluster-signing-key-file", o.ClusterSigningKeyFile, "Filename containing a PEM-encoded RSA or ECDSA private key used to sign cluster-scoped certificates.")
	fs.DurationVar(&o.ClusterSigningDuration, "cluster-signing-duration", o.ClusterSigningDuration, "The max length of duration signed certificates will be given.")
	fs.DurationVar(&o.HPASyncPeriod, "horizontal-pod-autoscaler-sync-period", o.HPASyncPeriod, "The period for syncing the number of pods in horizontal pod autoscaler.")
	fs.DurationVar(&o.HPADownscaleStabilization, "horizontal-pod-autoscaler-downscale-stabilization", o.HPADownscaleStabilization, "The period for which autoscaler will look backwards and not scale down below any recommendation it made during that period.")
	fs.Float64Var(&o.HPATolerance, "horizontal-pod-autoscaler-tolerance", o.HPATolerance, "The minimum change (from 1.0) in the desired-to-actual metrics ratio for the horizontal pod autoscaler to consider scaling.")
	fs.DurationVar(&o.HPACPUInitializationPeriod, "horizontal-pod-autoscaler-cpu-initialization-period", o.HPACPUInitializationPeriod, "The period after pod start when CPU samples might be skipped.")
	fs.DurationVar(&o.HPAInitialReadinessDelay, "horizontal-pod-autoscaler-initial-readiness-delay", o.HPAInitialReadinessDelay, "The period after pod start during which readiness changes will be treated as initial readiness.")
	fs.DurationVar(&o.ResourceQuotaSyncPeriod, "resource-quota-sync-period", o.ResourceQuotaSyncPeriod, "The period for syncing quota usage status in the system.")
	fs.DurationVar(&o.PVClaimBinderSyncPeriod, "pvclaimbinder-sync-period", o.PVClaimBinderSyncPeriod, "The period for syncing persistent volumes and persistent volume claims.")
	fs.StringVar(&o.ServiceAccountKeyFile, "service-account-private-key-file", o.ServiceAccountKeyFile, "Filename containing a PEM-encoded private RSA or ECDSA key used to sign service account tokens.")
	fs.DurationVar(&o.LegacySATokenCleanUpPeriod, "legacy-service-account-token-clean-up-period", o.LegacySATokenCleanUpPeriod, "The period of time since the last usage of an legacy service account token before it can be deleted.")
	fs.BoolVar(&o.EnableGarbageCollector, "enable-garbage-collector", o.EnableGarbageCollector, "Enables the generic garbage collector. MUST be synced with the corresponding flag of the kube-apiserver.")
}
