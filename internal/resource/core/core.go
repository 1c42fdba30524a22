// Package core holds the resources of the core group: what their defaults
// are, what makes them valid, how they may change and how they are printed.
//
// One file a kind. A pod's rules are split by the part of the pod they are
// about (pod_containers.go, pod_volumes.go, ...), because the templates of
// every workload share them: see DefaultPodTemplateSpec and
// ValidatePodTemplateSpec.
package core

import "github.com/coracle-io/coracle/internal/resource"

// Resources lists the resources of the group.
func Resources() []*resource.Resource {
	return resource.InGroup(resource.Priorities{Group: 18000, Versions: map[string]int32{"v1": 1}},
		Bindings(),
		ComponentStatuses(),
		ConfigMaps(),
		Endpoints(),
		Events(),
		LimitRanges(),
		Namespaces(),
		Nodes(),
		PersistentVolumeClaims(),
		PersistentVolumes(),
		Pods(),
		PodTemplates(),
		ReplicationControllers(),
		ResourceQuotas(),
		Secrets(),
		ServiceAccounts(),
		Services(),
	)
}
