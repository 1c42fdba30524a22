package legacy

import (
	"strings"

	kubescheduler "k8s.io/kube-scheduler/config/v1"
)

// predicatePlugins returns the plugins that check what a predicate checked.
// Node conditions are taints, so that TaintToleration has their predicates.
func predicatePlugins(predicate string) (plugins []string, exists bool) {
	switch predicate {
	case "PodFitsResources":
		return []string{fit}, true
	case "GeneralPredicates":
		return []string{fit, "NodeName", "NodePorts", nodeAffinity}, true
	case "HostName":
		return []string{"NodeName"}, true
	case "PodFitsHostPorts", "PodFitsPorts":
		return []string{"NodePorts"}, true
	case "MatchNodeSelector":
		return []string{nodeAffinity}, true
	case "CheckNodeUnschedulable":
		return []string{"NodeUnschedulable"}, true
	case "CheckNodeCondition":
		return []string{"NodeUnschedulable", taintToleration}, true
	case "PodToleratesNodeTaints", "PodToleratesNodeNoExecuteTaints", "CheckNodeMemoryPressure", "CheckNodeDiskPressure", "CheckNodePIDPressure":
		return []string{taintToleration}, true
	case "MatchInterPodAffinity":
		return []string{interPodAffinity}, true
	case "EvenPodsSpread":
		return []string{topologySpread}, true
	case "NoDiskConflict":
		return []string{"VolumeRestrictions"}, true
	case "NoVolumeZoneConflict":
		return []string{"VolumeZone"}, true
	case "MaxCSIVolumeCountPred", "MaxCSIVolumeCount", "MaxEBSVolumeCount", "MaxGCEPDVolumeCount", "MaxAzureDiskVolumeCount", "MaxCinderVolumeCount":
		return []string{"NodeVolumeLimits"}, true
	case "CheckVolumeBinding", "NoVolumeNodeConflict":
		return []string{"VolumeBinding"}, true
	case "CheckNodeLabelPresence":
		return []string{nodeLabel}, true
	case "CheckServiceAffinity":
		return []string{serviceAffinity}, true
	}
	return nil, false
}

// priorityPlugin returns the plugin that scores as a priority did; "" if all
// nodes are the same to it. Names may leave out "Priority" at the end.
func priorityPlugin(priority string) (plugin string, exists bool) {
	switch shortPriority(priority) {
	case "Equal":
		return "", true
	case "LeastRequested", mostRequested, capacityRatio:
		return fit, true
	case "BalancedResourceAllocation":
		return "NodeResourcesBalancedAllocation", true
	case "SelectorSpread", "ServiceSpreading":
		return "SelectorSpread", true
	case "CalculateAntiAffinity":
		return serviceAffinity, true
	case "ImageLocality":
		return "ImageLocality", true
	case "NodeAffinity":
		return nodeAffinity, true
	case "InterPodAffinity":
		return interPodAffinity, true
	case "NodePreferAvoidPods":
		return "NodePreferAvoidPods", true
	case "TaintToleration":
		return taintToleration, true
	case "EvenPodsSpread":
		return topologySpread, true
	}
	return "", false
}

func shortPriority(name string) string { return strings.TrimSuffix(name, "Priority") }

// Priorities that score resources in another way than LeastRequested.
const (
	mostRequested = "MostRequested"
	capacityRatio = "RequestedToCapacityRatio"
)

// scorerOf returns the plugin that only scores resources by a strategy.
func scorerOf(strategy kubescheduler.ScoringStrategyType) string {
	switch strategy {
	case kubescheduler.MostAllocated:
		return "NodeResourcesMostAllocated"
	case kubescheduler.RequestedToCapacityRatio:
		return "RequestedToCapacityRatio"
	}
	return "NodeResourcesLeastAllocated"
}

// Plugins that the tables and the arguments share.
const (
	fit              = "NodeResourcesFit"
	nodeAffinity     = "NodeAffinity"
	taintToleration  = "TaintToleration"
	interPodAffinity = "InterPodAffinity"
	topologySpread   = "PodTopologySpread"
	nodeLabel        = "NodeLabel"
	serviceAffinity  = "ServiceAffinity"
)

// filters are the default plugins that a list of predicates chooses from.
func filters() []string {
	return []string{
		"NodeUnschedulable", "NodeName", taintToleration, nodeAffinity, "NodePorts", fit, "VolumeRestrictions", "NodeVolumeLimits",
		"VolumeBinding", "VolumeZone", topologySpread, interPodAffinity,
	}
}

// scores are the default plugins that a list of priorities chooses from.
func scores() []string {
	return []string{
		taintToleration, nodeAffinity, fit, "VolumeBinding", topologySpread, interPodAffinity, "NodeResourcesBalancedAllocation", "ImageLocality",
	}
}

// mandatory are the filters that no policy turns off.
func mandatory() []string { return []string{taintToleration, "NodeUnschedulable"} }
