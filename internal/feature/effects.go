package feature

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// Each gate that can be set is in one of these lists, or in consulted.go, so that
// nobody sets one without knowing that nothing changes.
const (
	// byLibraries are the gates that k8s.io libraries ask about, in the process of an
	// API server.
	byLibraries = `
AllowParsingUserUIDFromCertAuth DeclarativeValidationBeta KMSv1
MutatingAdmissionPolicy StructuredAuthenticationConfigurationEgressSelector
StructuredAuthenticationConfigurationJWKSMetrics WebhookRoundTripLoadBalancing
`
	// missing are features that no component has. Turning one on changes nothing, and
	// a warning says so.
	missing = `
APIServerWebhookAuthenticationToken ChangeContainerStatusOnKubeletRestart InPlacePodVerticalScalingExclusiveCPUs
InPlacePodVerticalScalingExclusiveMemory InPlacePodVerticalScalingMemoryBackedVolumes KubeletAllocatedPodsEndpoint
LocalStorageCapacityIsolationFSQuotaMonitoring LoggingAlphaOptions PodLevelResourceManagers QOSReserved
ShardedListAndWatch StatefulSetRecreateStrategy
`
	// fixed are features that are always there, or that are about how something is
	// done elsewhere. A setting other than the default changes nothing, and a warning
	// says so.
	fixed = `
APIServerIdentity APIServingWithRoutine CloudControllerManagerWatchBasedRoutesReconciliation
CloudControllerManagerWebhook ConcurrentWatchObjectDecode ConsistentListFromCacheSkipTimeoutFallback ContextualLogging
ControllerManagerReleaseLeaderElectionLockOnExit CRIListStreaming DetectCacheInconsistency EtcdRangeStream EventedPLEG
HPAOptimizedSelectorStore HugepageAwareEviction InterPodAffinityHostnameFastPath KubeletPodResourcesListUseActivePods
KubeletRegistrationGetOnExistsOnly KubeletServiceAccountTokenForCredentialProviders ListFromCacheSnapshot
LoggingBetaOptions NativeHistograms NFTablesNetlink NodeControllerLeaseCircuitBreaker NodeLifecycleConditions
OpenAPIEnums OpportunisticBatching PodAndContainerStatsFromCRI PodLevelResourcesFixKubeletQOSClass
ReloadKubeletClientCAFile ReloadKubeletServerCertificateFile RuntimeClassInImageCriApi SchedulerAsyncAPICalls
SchedulerAsyncPreemption SchedulerPreQueueingHints SELinuxMount ServiceCIDRStatusFieldWiping
StaleControllerConsistencyDaemonSet StaleControllerConsistencyJob StaleControllerConsistencyReplicaSet
StaleControllerConsistencyStatefulSet StatefulSetSemanticRevisionComparison StorageNamespaceIndex
TopologyManagerPolicyAlphaOptions TopologyManagerPolicyBetaOptions UnauthenticatedHTTP2DOSMitigation
UnknownVersionInteroperabilityProxy WindowsCPUAndMemoryAffinity WindowsGracefulNodeShutdown WindowsHostNetwork
`
)

// lists are byLibraries, missing and fixed as sets. Callers must not change them.
var lists = sync.OnceValue(func() (all struct{ byLibraries, missing, fixed map[Gate]bool }) {
	set := func(names string) map[Gate]bool {
		gates := map[Gate]bool{}
		for name := range strings.FieldsSeq(names) {
			gates[Gate(name)] = true
		}
		return gates
	}
	all.byLibraries, all.missing, all.fixed = set(byLibraries), set(missing), set(fixed)
	return all
})

// HasEffect reports whether the setting of a gate changes anything in any component.
func HasEffect(gate Gate) bool { return !lists().fixed[gate] && !lists().missing[gate] }

// withoutEffect returns warnings about the named gates that differ from their
// defaults and change nothing, in the order of their names.
func (s *Set) withoutEffect() (all []string) {
	for _, gate := range slices.Sorted(maps.Keys(s.named)) {
		on := s.named[gate]
		if HasEffect(gate) || on == table()[gate].on {
			continue
		}
		why := "."
		if lists().missing[gate] {
			why = ": there is no such feature here."
		}
		all = append(all, fmt.Sprintf("Setting feature gate %s=%t has no effect%s", gate, on, why))
	}
	return all
}
