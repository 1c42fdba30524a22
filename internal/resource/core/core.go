// Package core has the resources of the core group: their defaults,
// validation, update rules and table columns, one file per kind.
//
// Code that it shares with other packages is in packages below it:
//
//	core ──► core/pod ──► core/volume ──► core/nodeselector
//	            └──────────────┴────────► core/resourcelist
//
// Package pod has Pods, Bindings and the rules of pod templates, package
// volume PersistentVolumes and their claims, package resourcelist the names
// and quantities of compute resources.
package core

import (
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core/pod"
	"github.com/coracle-io/coracle/internal/resource/core/volume"
)

// Resources lists the resources of the group.
func Resources() []*resource.Resource {
	return resource.InGroup(resource.Priorities{Group: 18000, Versions: map[string]int32{"v1": 1}},
		pod.Bindings(),
		ComponentStatuses(),
		ConfigMaps(),
		Endpoints(),
		Events(),
		LimitRanges(),
		Namespaces(),
		Nodes(),
		volume.PersistentVolumeClaims(),
		volume.PersistentVolumes(),
		pod.Pods(),
		PodTemplates(),
		ReplicationControllers(),
		ResourceQuotas(),
		Secrets(),
		ServiceAccounts(),
		Services(),
	)
}
