// Package volumezone restricts a pod to nodes in the zones and regions of its
// bound volumes, which the labels of the PersistentVolumes name.
package volumezone

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/component-helpers/storage/volume"

	"github.com/coracle-io/coracle/internal/resource/core/nodeselector"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// Name is the plugin's name in configurations.
const Name = "VolumeZone"

const conflict = "node(s) had no available volume zone"

// zoneSeparator is between the zones of a volume that is in several.
const zoneSeparator = "__"

// Factory describes the plugin.
func Factory() framework.Factory {
	return framework.Factory{Name: Name, New: func(_ context.Context, _ any, h *framework.Handle) (framework.Plugin, error) {
		core := h.Informers.Core().V1()
		return &plugin{
			claims: core.PersistentVolumeClaims().Lister(), volumes: core.PersistentVolumes().Lister(),
			classes:  h.Informers.Storage().V1().StorageClasses().Lister(),
			state:    framework.NewStateKey[[]topology](h),
			conflict: framework.NewStatus(framework.UnschedulableAndUnresolvable, Name, conflict),
		}, nil
	}}
}

type plugin struct {
	claims   corelisters.PersistentVolumeClaimLister
	volumes  corelisters.PersistentVolumeLister
	classes  storagelisters.StorageClassLister
	state    framework.StateKey[[]topology]
	conflict *framework.Status
}

// topology is a label of a volume: the zones or regions that it is in.
type topology struct {
	volume string
	key    string
	values []string
}

// Name implements framework.Plugin.
func (*plugin) Name() string { return Name }

// PreFilter implements framework.PreFilterPlugin.
func (p *plugin) PreFilter(_ context.Context, state *framework.CycleState, pod *framework.PodInfo, _ *framework.Snapshot) (*framework.PreFilterResult, *framework.Status) {
	var all []topology
	for i := range pod.Pod.Spec.Volumes {
		source := pod.Pod.Spec.Volumes[i].PersistentVolumeClaim
		if source == nil {
			continue
		}
		claim, err := p.claims.PersistentVolumeClaims(pod.Pod.Namespace).Get(source.ClaimName)
		if err != nil {
			return nil, missing(err)
		}
		if claim.Spec.VolumeName == "" {
			if status := p.unbound(claim); !status.IsSuccess() {
				return nil, status
			}
			continue
		}
		pv, err := p.volumes.Get(claim.Spec.VolumeName)
		if err != nil {
			return nil, missing(err)
		}
		all = append(all, topologies(pv)...)
	}
	if len(all) == 0 {
		return nil, framework.NewStatus(framework.Skip, Name)
	}
	p.state.Put(state, all)
	return nil, nil
}

// unbound rejects a claim without a volume unless the scheduler is to choose
// the volume.
func (p *plugin) unbound(claim *v1.PersistentVolumeClaim) *framework.Status {
	name := volume.GetPersistentVolumeClaimClass(claim)
	if name == "" {
		return framework.NewStatus(framework.UnschedulableAndUnresolvable, Name, "PersistentVolumeClaim had no pv name and storageClass name")
	}
	class, err := p.classes.Get(name)
	if err != nil {
		return missing(err)
	}
	switch mode := class.VolumeBindingMode; {
	case mode == nil:
		return framework.NewStatus(framework.UnschedulableAndUnresolvable, Name, fmt.Sprintf("VolumeBindingMode not set for StorageClass %q", name))
	case *mode != storagev1.VolumeBindingWaitForFirstConsumer:
		return framework.NewStatus(framework.UnschedulableAndUnresolvable, Name, "PersistentVolume had no name")
	}
	return nil
}

// missing rejects a pod whose object does not exist.
func missing(err error) *framework.Status {
	if apierrors.IsNotFound(err) {
		return framework.NewStatus(framework.UnschedulableAndUnresolvable, Name, err.Error())
	}
	return framework.AsStatus(Name, err)
}

// topologies returns the zones and regions in the labels of a volume. It
// ignores a label without a value, or with an empty zone among others.
func topologies(pv *v1.PersistentVolume) (found []topology) {
	for _, key := range keys() {
		value, ok := pv.Labels[key]
		if !ok {
			continue
		}
		values := strings.Split(value, zoneSeparator)
		for i := range values {
			values[i] = strings.TrimSpace(values[i])
		}
		if !slices.Contains(values, "") {
			found = append(found, topology{pv.Name, key, values})
		}
	}
	return found
}

// keys are the labels of zones and regions.
func keys() []string {
	return []string{v1.LabelFailureDomainBetaZone, v1.LabelFailureDomainBetaRegion, v1.LabelTopologyZone, v1.LabelTopologyRegion}
}

// Filter implements framework.FilterPlugin. A node that is in no zone and no
// region takes every volume.
func (p *plugin) Filter(_ context.Context, state *framework.CycleState, _ *framework.PodInfo, n *framework.NodeInfo) *framework.Status {
	labels := n.Node.Labels
	if !slices.ContainsFunc(keys(), func(key string) bool { _, ok := labels[key]; return ok }) {
		return nil
	}
	all, _ := p.state.Get(state)
	for _, t := range all {
		value, ok := labels[t.key]
		if !ok {
			value, ok = labels[nodeselector.Replacement(t.key)]
		}
		if !ok || !slices.Contains(t.values, value) {
			return p.conflict
		}
	}
	return nil
}

// EventsToRegister implements framework.EnqueueExtensions: a class is added
// that lets the scheduler choose, a claim of the pod changes, or a volume or a
// node is added or its topology changes.
func (p *plugin) EventsToRegister(context.Context) ([]framework.ClusterEventWithHint, error) {
	return []framework.ClusterEventWithHint{
		framework.On(framework.StorageClass, framework.Add, func(_ *framework.PodInfo, _, class *storagev1.StorageClass) framework.QueueingHint {
			mode := class.VolumeBindingMode
			return framework.QueueIf(mode != nil && *mode == storagev1.VolumeBindingWaitForFirstConsumer)
		}),
		{Event: framework.ClusterEvent{Resource: framework.Node, Action: framework.Add | framework.UpdateNodeLabel}},
		framework.On(framework.PersistentVolumeClaim, framework.Add|framework.Update, func(pod *framework.PodInfo, _, claim *v1.PersistentVolumeClaim) framework.QueueingHint {
			return framework.QueueIf(slices.Contains(pod.Claims, claim.Namespace+"/"+claim.Name))
		}),
		framework.On(framework.PersistentVolume, framework.Add|framework.Update, func(_ *framework.PodInfo, old, pv *v1.PersistentVolume) framework.QueueingHint {
			return framework.QueueIf(old == nil || !maps.Equal(old.Labels, pv.Labels) && !slices.EqualFunc(topologies(old), topologies(pv), sameTopology))
		}),
	}, nil
}

func sameTopology(a, b topology) bool { return a.key == b.key && slices.Equal(a.values, b.values) }
