// Package volumerestrictions keeps pods from a node, or from all nodes, where
// another pod has a volume that they cannot share: a disk that is mounted by
// its name in the pod's spec, or a claim with the access mode ReadWriteOncePod
// (KEP-2485).
package volumerestrictions

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	corelisters "k8s.io/client-go/listers/core/v1"

	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// Name is the plugin's name in configurations.
const Name = "VolumeRestrictions"

const (
	diskConflict             = "node(s) had no available disk"
	readWriteOncePodConflict = "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"
)

// Factory describes the plugin.
func Factory() framework.Factory {
	return framework.Factory{Name: Name, New: func(_ context.Context, _ any, h *framework.Handle) (framework.Plugin, error) {
		return &plugin{
			claims:           h.Informers.Core().V1().PersistentVolumeClaims().Lister(),
			state:            framework.NewStateKey[*restrictions](h),
			disk:             framework.NewStatus(framework.Unschedulable, Name, diskConflict),
			readWriteOncePod: framework.NewStatus(framework.Unschedulable, Name, readWriteOncePodConflict),
		}, nil
	}}
}

type plugin struct {
	claims                 corelisters.PersistentVolumeClaimLister
	state                  framework.StateKey[*restrictions]
	disk, readWriteOncePod *framework.Status
}

// restrictions are the restrictions of one pod.
type restrictions struct {
	disks []*v1.Volume // of the pod that cannot be shared
	// claims are those with ReadWriteOncePod, as "namespace/name", and users is
	// how many other pods use them.
	claims []string
	users  int
}

// Name implements framework.Plugin.
func (*plugin) Name() string { return Name }

// PreFilter implements framework.PreFilterPlugin.
func (p *plugin) PreFilter(_ context.Context, state *framework.CycleState, pod *framework.PodInfo, snapshot *framework.Snapshot) (*framework.PreFilterResult, *framework.Status) {
	r := &restrictions{disks: disks(pod.Pod)}
	for i := range pod.Pod.Spec.Volumes {
		// The claim of an ephemeral volume belongs to one pod whatever its access modes are.
		source := pod.Pod.Spec.Volumes[i].PersistentVolumeClaim
		if source == nil {
			continue
		}
		claim, err := p.claims.PersistentVolumeClaims(pod.Pod.Namespace).Get(source.ClaimName)
		if apierrors.IsNotFound(err) {
			return nil, framework.NewStatus(framework.UnschedulableAndUnresolvable, Name, err.Error())
		}
		if err != nil {
			return nil, framework.AsStatus(Name, err)
		}
		key := claim.Namespace + "/" + claim.Name
		if slices.Contains(claim.Spec.AccessModes, v1.ReadWriteOncePod) && !slices.Contains(r.claims, key) {
			r.claims = append(r.claims, key)
			r.users += snapshot.NumClaimUsers(key)
		}
	}
	if len(r.disks)+len(r.claims) == 0 {
		return nil, framework.NewStatus(framework.Skip, Name)
	}
	p.state.Put(state, r)
	return nil, nil
}

// AddPod implements framework.PreFilterExtensions.
func (p *plugin) AddPod(_ context.Context, state *framework.CycleState, _, added *framework.PodInfo, _ *framework.NodeInfo) *framework.Status {
	r, _ := p.state.Get(state)
	r.users += r.usedBy(added)
	return nil
}

// RemovePod implements framework.PreFilterExtensions.
func (p *plugin) RemovePod(_ context.Context, state *framework.CycleState, _, removed *framework.PodInfo, _ *framework.NodeInfo) *framework.Status {
	r, _ := p.state.Get(state)
	r.users -= r.usedBy(removed)
	return nil
}

// usedBy counts the claims with ReadWriteOncePod that a pod uses.
func (r *restrictions) usedBy(pod *framework.PodInfo) (n int) {
	for _, claim := range pod.Claims {
		if slices.Contains(r.claims, claim) {
			n++
		}
	}
	return n
}

// Filter implements framework.FilterPlugin.
func (p *plugin) Filter(_ context.Context, state *framework.CycleState, _ *framework.PodInfo, n *framework.NodeInfo) *framework.Status {
	r, _ := p.state.Get(state)
	for _, disk := range r.disks {
		if slices.ContainsFunc(n.Pods, func(other *framework.PodInfo) bool { return conflicts(disk, other.Pod) }) {
			return p.disk
		}
	}
	if r.users > 0 {
		return p.readWriteOncePod
	}
	return nil
}

// disks returns the volumes of a pod that name a disk which cannot always be
// mounted twice.
func disks(pod *v1.Pod) (found []*v1.Volume) {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.GCEPersistentDisk != nil || v.AWSElasticBlockStore != nil || v.RBD != nil || v.ISCSI != nil {
			found = append(found, v)
		}
	}
	return found
}

// conflicts reports whether a pod mounts the same disk in a way that keeps
// others from mounting it. Two mounts that only read go together, except for
// AWS EBS.
func conflicts(disk *v1.Volume, pod *v1.Pod) bool {
	return slices.ContainsFunc(disks(pod), func(other *v1.Volume) bool {
		switch {
		case disk.GCEPersistentDisk != nil && other.GCEPersistentDisk != nil:
			a, b := disk.GCEPersistentDisk, other.GCEPersistentDisk
			return a.PDName == b.PDName && !(a.ReadOnly && b.ReadOnly)
		case disk.AWSElasticBlockStore != nil && other.AWSElasticBlockStore != nil:
			return disk.AWSElasticBlockStore.VolumeID == other.AWSElasticBlockStore.VolumeID
		case disk.ISCSI != nil && other.ISCSI != nil:
			a, b := disk.ISCSI, other.ISCSI
			return a.IQN == b.IQN && !(a.ReadOnly && b.ReadOnly)
		case disk.RBD != nil && other.RBD != nil:
			a, b := disk.RBD, other.RBD
			common := slices.ContainsFunc(a.CephMonitors, func(m string) bool { return slices.Contains(b.CephMonitors, m) })
			return common && a.RBDPool == b.RBDPool && a.RBDImage == b.RBDImage && !(a.ReadOnly && b.ReadOnly)
		}
		return false
	})
}

// EventsToRegister implements framework.EnqueueExtensions: a pod with the same
// disk or claim goes, the claim comes, or a node does.
func (p *plugin) EventsToRegister(context.Context) ([]framework.ClusterEventWithHint, error) {
	return []framework.ClusterEventWithHint{
		framework.On(framework.AssignedPod, framework.Delete, func(pod *framework.PodInfo, gone, _ *v1.Pod) framework.QueueingHint {
			return framework.QueueIf(frees(pod, gone))
		}),
		{Event: framework.ClusterEvent{Resource: framework.Node, Action: framework.Add}},
		framework.On(framework.PersistentVolumeClaim, framework.Add, func(pod *framework.PodInfo, _, claim *v1.PersistentVolumeClaim) framework.QueueingHint {
			return framework.QueueIf(slices.Contains(pod.Claims, claim.Namespace+"/"+claim.Name))
		}),
	}, nil
}

// frees reports whether a pod that goes leaves a volume that the pod waits for.
func frees(pod *framework.PodInfo, gone *v1.Pod) bool {
	if slices.ContainsFunc(disks(pod.Pod), func(disk *v1.Volume) bool { return conflicts(disk, gone) }) {
		return true
	}
	for name := range podquery.ClaimNames(gone) {
		if slices.Contains(pod.Claims, gone.Namespace+"/"+name) {
			return true
		}
	}
	return false
}
