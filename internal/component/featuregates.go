package component

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// knownFeatures are upstream's feature gates. Those that k8s.io/apiserver
// knows are set there; of the others the gate of CBOR alone changes what this
// server does: what the rest are about is always there, or not yet.
const knownFeatures = `
APIResponseCompression APIServerIdentity APIServerWebhookAuthenticationToken APIServingWithRoutine
AggregatedDiscoveryRemoveBetaType AllowDNSOnlyNodeCSR AllowInsecureKubeletCertificateSigningRequests
AllowOverwriteTerminationGracePeriodSeconds AllowParsingUserUIDFromCertAuth AllowServiceLBStatusOnNonLB
AllowUnsafeMalformedObjectDeletion AnyVolumeDataSource AtomicWriteVolumeUserFields BtreeWatchCache
CBORServingAndStorage CPUCFSQuotaPeriod CPUManagerPolicyAlphaOptions CPUManagerPolicyBetaOptions
CPUManagerPolicyOptions CRDObservedGenerationTracking CRDValidationRatcheting CSIMigrationPortworx
CSIServiceAccountTokenSecrets CSIStorageCapacity CSIVolumeHealth ClearingNominatedNodeNameAfterBinding
CloudControllerManagerWebhook ClusterTrustBundle ClusterTrustBundleProjection ComponentFlagz ComponentSLIs
ComponentStatusz CompositePodGroup ConcurrentWatchObjectDecode ConsistentListFromCache
ConsistentListFromCacheSkipTimeoutFallback ConstrainedImpersonation ContainerCheckpoint ContainerRestartRules
ContainerStopSignals ContextualLogging CoordinatedLeaderElection CronJobsScheduledAnnotation
CrossNamespaceVolumeDataSource CustomCPUCFSQuotaPeriod CustomResourceFieldSelectors DRAAdminAccess
DRAConsumableCapacity DRADerivedAttributes DRADeviceBindingConditions DRADeviceCompatibilityGroups
DRADeviceTaintRules DRADeviceTaints DRAExtendedResource DRAFractionalCapacityRange DRAListTypeAttributes
DRANodeAllocatableResources DRAOptionalNodeOperations DRAPartitionableDevices DRAPartitionableDevicesType
DRAPrioritizedList DRAResourceClaimDeviceStatus DRASchedulerFilterTimeout DRAWorkloadResourceClaims
DaemonSetUpdateSurge DeclarativeValidation DeclarativeValidationBeta DeclarativeValidationTakeover
DeploymentReplicaSetTerminatingReplicas DetectCacheInconsistency DevicePluginCDIDevices DisableAllocatorDualWrite
DisableCPUQuotaWithExclusiveCPUs DisableNodeKubeProxyVersion DynamicResourceAllocation EmptyDirVolumeMode EnvFiles
EtcdRangeStream EventedPLEG EvictionRequestAPI ExcludeAdmissionWebhookVirtualResources ExecProbeTimeout
ExternalServiceAccountTokenSigner GRPCContainerProbeTLS GangScheduling GenericWorkload GitRepoVolumeDriver
GracefulNodeShutdown GracefulNodeShutdownBasedOnPodPriority H2CContainerProbe HPAConfigurableTolerance
HPAScaleToZero HonorPVReclaimPolicy HostnameOverride ImageMaximumGCAge ImageVolume ImageVolumeWithDigest
InPlacePodLevelResourcesVerticalScaling InPlacePodVerticalScaling InPlacePodVerticalScalingAllocatedStatus
InPlacePodVerticalScalingExclusiveCPUs InPlacePodVerticalScalingExclusiveMemory
InPlacePodVerticalScalingSchedulerPreemption InTreePluginPortworxUnregister InterPodAffinityHostnameFastPath
JobBackoffLimitPerIndex JobManagedBy JobPodReplacementPolicy JobSuccessPolicy KMSv1 KMSv2
KubeProxyNFTablesLocalhostNodePorts KubeletCgroupDriverFromCRI KubeletCrashLoopBackOffMax
KubeletEnsureSecretPulledImages KubeletFineGrainedAuthz KubeletInUserNamespace KubeletPSI
KubeletPodResourcesDynamicResources KubeletPodResourcesGet KubeletPodResourcesListUseActivePods
KubeletRegistrationGetOnExistsOnly KubeletSeparateDiskGC KubeletServiceAccountTokenForCredentialProviders
KubeletTracing LegacySidecarContainers ListFromCacheSnapshot LoadBalancerIPMode
LocalStorageCapacityIsolationFSQuotaMonitoring LogarithmicScaleDown LoggingAlphaOptions LoggingBetaOptions
LoggingStableOptions ManifestBasedAdmissionControlConfig MatchLabelKeysInPodAffinity
MatchLabelKeysInPodTopologySpread MatchLabelKeysInPodTopologySpreadSelectorMerge MaxUnavailableStatefulSet
MemoryManager MemoryQoS MultiCIDRServiceAllocator MutableCSINodeAllocatableCount MutablePVNodeAffinity
MutablePodResourcesForSuspendedJobs MutatingAdmissionPolicy NFTablesProxyMode NativeHistograms NodeDeclaredFeatures
NodeInclusionPolicyInPodTopologySpread NodeLogQuery NodeSwap NominatedNodeNameForExpectation OpenAPIEnums
OpportunisticBatching OrderedNamespaceDeletion PodAndContainerStatsFromCRI PodCertificateProjection
PodCertificateRequest PodDeletionCost PodGroupPreemptionPolicy PodIndexLabel PodLevelResources
PodLifecycleSleepAction PodLifecycleSleepActionAllowZero PodLogsQuerySplitStreams PodObservedGenerationTracking
PodReadyToStartContainersCondition PodSchedulingReadiness PodTopologyLabelsAdmission PortForwardWebsockets
PreferSameTrafficDistribution PreventStaticPodAPIReferences ProbeTerminationGracePeriod ProcMountType QOSReserved
RecoverVolumeExpansionFailure RecursiveReadOnlyMounts ReduceDefaultCrashLoopBackOffDecay RelaxedDNSSearchValidation
RelaxedEnvironmentVariableValidation RelaxedServiceNameValidation ReloadKubeletServerCertificateFile
RemoteRequestHeaderUID ResourceHealthStatus ResourceHealthStatusMessage RestartAllContainersOnContainerExits
RotateKubeletServerCertificate RuntimeClassInImageCriAPI SELinuxChangePolicy SELinuxMount
SELinuxMountReadWriteOncePod SchedulerAsyncAPICalls SchedulerAsyncPreemption SchedulerPopFromBackoffQ
SchedulerQueueingHints SeparateCacheWatchRPC SeparateTaintEvictionController ServiceAccountNodeAudienceRestriction
ServiceAccountTokenJTI ServiceAccountTokenNodeBinding ServiceAccountTokenNodeBindingValidation
ServiceAccountTokenPodNodeInfo ServiceTrafficDistribution ShardedListAndWatch SidecarContainers
SizeBasedListCostEstimate SizeMemoryBackedVolumes StatefulSetAutoDeletePVC StatefulSetRecreateStrategy
StatefulSetSemanticRevisionComparison StorageCapacityScoring StorageNamespaceIndex StorageVersionAPI
StorageVersionHash StorageVersionMigrator StrictIPCIDRValidation StructuredAuthenticationConfigurationEgressSelector
StructuredAuthenticationConfigurationJWKSMetrics SupplementalGroupsPolicy SystemdWatchdog
TaintTolerationComparisonOperators TokenRequestServiceAccountUIDValidation TopologyAwareHints
TopologyAwareWorkloadScheduling TopologyManagerPolicyAlphaOptions TopologyManagerPolicyBetaOptions
TopologyManagerPolicyOptions TranslateStreamCloseWebsocketRequests UnauthenticatedHTTP2DOSMitigation
UnknownVersionInteroperabilityProxy UserNamespacesHostNetworkSupport UserNamespacesPodSecurityStandards
UserNamespacesSupport VolumeAttributesClass VolumeBindMountOptions VolumeLimitScaling
WatchCacheInitializationPostStartHook WatchFromStorageWithoutResourceVersion WatchList WatchListCompression
WebhookRoundTripLoadBalancing WinDSR WinOverlay WindowsCPUAndMemoryAffinity WindowsGracefulNodeShutdown
WindowsHostNetwork WorkloadWithJob
`

// stageFeatures stand for all features of a stage.
var stageFeatures = []string{"AllAlpha", "AllBeta"}

// parseFeatures reads --feature-gates. Unknown names are an error that lists
// them all.
func parseFeatures(gates []string) (map[string]bool, error) {
	known := strings.Fields(knownFeatures)
	enabled := map[string]bool{}
	var unknown []string
	for _, gate := range gates {
		name, value, given := strings.Cut(strings.TrimSpace(gate), "=")
		name = strings.TrimSpace(name)
		if name == "" {
			continue
		}
		if !given {
			return nil, fmt.Errorf("--feature-gates: missing bool value for %s: want %s=true or %s=false", name, name, name)
		}
		on, err := strconv.ParseBool(strings.TrimSpace(value))
		if err != nil {
			return nil, fmt.Errorf("--feature-gates: invalid value of %s=%s: want true or false", name, value)
		}
		if !slices.Contains(known, name) && !slices.Contains(stageFeatures, name) {
			unknown = append(unknown, name)
		}
		enabled[name] = on
	}
	if len(unknown) > 0 {
		return nil, fmt.Errorf("--feature-gates: unrecognized feature gate: %s", strings.Join(unknown, ", "))
	}
	return enabled, nil
}

// setLibraryFeatures sets the gates of k8s.io/apiserver, which are one set for
// the process. A gate that is locked refuses the other value.
func setLibraryFeatures(enabled map[string]bool) error {
	theirs := map[string]bool{}
	for feature := range utilfeature.DefaultMutableFeatureGate.GetAll() {
		if on, given := enabled[string(feature)]; given {
			theirs[string(feature)] = on
		}
	}
	if len(theirs) == 0 {
		return nil
	}
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(theirs); err != nil {
		return fmt.Errorf("--feature-gates: %w", err)
	}
	return nil
}

// servesCBOR says whether CBOR is among the media types.
func servesCBOR(enabled map[string]bool) bool {
	if on, given := enabled[string(features.CBORServingAndStorage)]; given {
		return on
	}
	return enabled["AllAlpha"]
}
