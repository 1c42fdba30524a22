// Package nodevolumelimits keeps pods from nodes to which no more volumes of
// their CSI drivers can be attached, and from nodes where a driver is missing
// that must not be (KEP-554, KEP-5030).
//
//	claim ──► PersistentVolume or StorageClass ──► driver, handle ──► one volume, however many pods use it
//	CSINode.spec.drivers[driver].allocatable.count ≥ attached ∪ used by pods on the node ∪ used by this pod
package nodevolumelimits

import (
	"context"
	"fmt"
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// Name is the plugin's name in configurations.
const Name = "NodeVolumeLimits"

const maxVolumeCountExceeded = "node(s) exceed max volume count"

// byNode is the index of VolumeAttachments by the name of their node.
const byNode = "scheduler.node"

// Factory describes the plugin.
func Factory() framework.Factory {
	return framework.Factory{Name: Name, New: newPlugin}
}

type plugin struct {
	claims      corelisters.PersistentVolumeClaimLister
	volumes     corelisters.PersistentVolumeLister
	classes     storagelisters.StorageClassLister
	nodes       storagelisters.CSINodeLister
	drivers     storagelisters.CSIDriverLister
	attachments cache.Indexer
	state       framework.StateKey[*wanted]
	exceeded    *framework.Status
	// checkDrivers is whether CSIDriver.spec.preventPodSchedulingIfMissing counts.
	checkDrivers bool
}

func newPlugin(ctx context.Context, _ any, h *framework.Handle) (framework.Plugin, error) {
	core, storage := h.Informers.Core().V1(), h.Informers.Storage().V1()
	attachments := storage.VolumeAttachments().Informer()
	err := client.Index(ctx, attachments, byNode, func(obj any) ([]string, error) {
		attachment, ok := obj.(*storagev1.VolumeAttachment)
		if !ok {
			return nil, nil
		}
		return []string{attachment.Spec.NodeName}, nil
	})
	return &plugin{
		claims: core.PersistentVolumeClaims().Lister(), volumes: core.PersistentVolumes().Lister(), classes: storage.StorageClasses().Lister(),
		nodes: storage.CSINodes().Lister(), drivers: storage.CSIDrivers().Lister(), attachments: attachments.GetIndexer(),
		state:        framework.NewStateKey[*wanted](h),
		exceeded:     framework.NewStatus(framework.Unschedulable, Name, maxVolumeCountExceeded),
		checkDrivers: h.Features.Enabled(feature.VolumeLimitScaling),
	}, err
}

// wanted are the volumes of the pod. failed, if set, is why they are not known;
// VolumeBinding, which rejects such pods too, gives a better reason first.
type wanted struct {
	volumes []attachable
	failed  *framework.Status
}

// Name implements framework.Plugin.
func (*plugin) Name() string { return Name }

// PreFilter implements framework.PreFilterPlugin.
func (p *plugin) PreFilter(_ context.Context, state *framework.CycleState, pod *framework.PodInfo, _ *framework.Snapshot) (*framework.PreFilterResult, *framework.Status) {
	found, err := p.attachables(pod.Pod, true)
	w := &wanted{volumes: found}
	switch {
	case apierrors.IsNotFound(err):
		w.failed = framework.NewStatus(framework.UnschedulableAndUnresolvable, Name, err.Error())
	case err != nil:
		w.failed = framework.AsStatus(Name, err)
	case len(found) == 0:
		return nil, framework.NewStatus(framework.Skip, Name)
	}
	p.state.Put(state, w)
	return nil, nil
}

// Filter implements framework.FilterPlugin.
func (p *plugin) Filter(_ context.Context, state *framework.CycleState, _ *framework.PodInfo, n *framework.NodeInfo) *framework.Status {
	w, _ := p.state.Get(state)
	if w.failed != nil {
		return w.failed
	}
	csiNode, err := p.nodes.Get(n.Name)
	if err != nil && !apierrors.IsNotFound(err) {
		return framework.AsStatus(Name, err)
	}
	if apierrors.IsNotFound(err) {
		csiNode = &storagev1.CSINode{}
	}
	if status := p.missingDriver(w.volumes, csiNode); status != nil {
		return status
	}
	if p.surelyFits(w, n, csiNode) {
		return nil
	}
	u, err := p.usageOf(w, n, csiNode)
	if err != nil {
		return framework.AsStatus(Name, err)
	}
	for id := range u.missing {
		if u.counts[id.driver] > u.limits[id.driver] {
			return p.exceeded
		}
	}
	return nil
}

// surelyFits reports whether the pod exceeds no limit of the node even if each claim,
// each disk and each attachment there is another volume of its drivers. What they are is
// not looked up then, as on most nodes.
func (p *plugin) surelyFits(w *wanted, n *framework.NodeInfo, csiNode *storagev1.CSINode) bool {
	limits := limitsOf(csiNode)
	room, limited := int64(math.MaxInt64), false
	for i := range w.volumes {
		if limit, ok := limits[w.volumes[i].id.driver]; ok {
			room, limited = min(room, limit), true
		}
	}
	if !limited {
		return true
	}
	room -= int64(len(w.volumes))
	for _, other := range n.Pods {
		room -= int64(len(other.Claims))
		for i := range other.Pod.Spec.Volumes {
			if _, inline := ofInline(&other.Pod.Spec.Volumes[i]); inline {
				room--
			}
		}
		if room < 0 {
			return false
		}
	}
	attachments, err := p.attachments.ByIndex(byNode, n.Name)
	return err == nil && int64(len(attachments)) <= room
}

// usage holds the volumes that a node would have with the pod, and its limits.
type usage struct {
	missing        map[volumeID]bool // that would have to be attached, of drivers with a limit
	counts, limits map[string]int64  // by driver
}

func (p *plugin) usageOf(w *wanted, n *framework.NodeInfo, csiNode *storagev1.CSINode) (usage, error) {
	u := usage{missing: map[volumeID]bool{}, counts: map[string]int64{}, limits: limitsOf(csiNode)}
	for i := range w.volumes {
		v := &w.volumes[i]
		if _, limited := u.limits[v.id.driver]; limited && v.counts(csiNode) {
			u.missing[v.id] = true
		}
	}
	if len(u.missing) == 0 {
		return u, nil
	}
	attached, err := p.attached(n, csiNode)
	if err != nil {
		return u, err
	}
	for id := range attached {
		u.counts[id.driver]++
		delete(u.missing, id)
	}
	for id := range u.missing {
		u.counts[id.driver]++
	}
	return u, nil
}

// missingDriver rejects a node that lacks a driver which asks for that.
func (p *plugin) missingDriver(volumes []attachable, csiNode *storagev1.CSINode) *framework.Status {
	if !p.checkDrivers {
		return nil
	}
	for i := range volumes {
		name := volumes[i].id.driver
		if slices.ContainsFunc(csiNode.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == name }) {
			continue
		}
		driver, err := p.drivers.Get(name)
		if apierrors.IsNotFound(err) || err == nil && !preventsScheduling(driver) {
			continue
		}
		if err != nil {
			return framework.AsStatus(Name, err)
		}
		return framework.NewStatus(framework.UnschedulableAndUnresolvable, Name, fmt.Sprintf("%s CSI driver is not installed on the node", name))
	}
	return nil
}

func preventsScheduling(driver *storagev1.CSIDriver) bool {
	return driver.Spec.PreventPodSchedulingIfMissing != nil && *driver.Spec.PreventPodSchedulingIfMissing
}

// attached returns the volumes that are attached to the node or that its pods use.
func (p *plugin) attached(n *framework.NodeInfo, csiNode *storagev1.CSINode) (map[volumeID]bool, error) {
	attached := map[volumeID]bool{}
	for _, other := range n.Pods {
		found, err := p.attachables(other.Pod, false)
		if err != nil {
			return nil, err
		}
		for i := range found {
			if found[i].counts(csiNode) {
				attached[found[i].id] = true
			}
		}
	}
	attachments, err := p.attachments.ByIndex(byNode, n.Name)
	if err != nil {
		return nil, err
	}
	for _, obj := range attachments {
		attachment, ok := obj.(*storagev1.VolumeAttachment)
		if !ok || attachment.Spec.Source.PersistentVolumeName == nil {
			continue
		}
		if pv, err := p.volumes.Get(*attachment.Spec.Source.PersistentVolumeName); err == nil {
			if a, ok := ofVolume(pv); ok {
				attached[volumeID{attachment.Spec.Attacher, a.id.handle}] = true
			}
		}
	}
	return attached, nil
}

// limitsOf returns how many volumes of each driver a node can have; a driver
// without a limit is not there.
func limitsOf(csiNode *storagev1.CSINode) map[string]int64 {
	limits := map[string]int64{}
	for i := range csiNode.Spec.Drivers {
		if a := csiNode.Spec.Drivers[i].Allocatable; a != nil && a.Count != nil {
			limits[csiNode.Spec.Drivers[i].Name] = int64(*a.Count)
		}
	}
	return limits
}

// EventsToRegister implements framework.EnqueueExtensions: the limits of a node
// grow, a volume of a driver of the pod's is no longer attached, or the pod's claim
// comes.
func (p *plugin) EventsToRegister(context.Context) ([]framework.ClusterEventWithHint, error) {
	events := []framework.ClusterEventWithHint{
		framework.On(framework.CSINode, framework.Add|framework.Update, func(_ *framework.PodInfo, old, csiNode *storagev1.CSINode) framework.QueueingHint {
			return framework.QueueIf(old == nil || takesMore(old, csiNode))
		}),
		framework.On(framework.AssignedPod, framework.Delete, func(_ *framework.PodInfo, gone, _ *v1.Pod) framework.QueueingHint {
			return framework.QueueIf(slices.ContainsFunc(gone.Spec.Volumes, func(v v1.Volume) bool {
				_, inline := ofInline(&v)
				return v.PersistentVolumeClaim != nil || v.Ephemeral != nil || inline
			}))
		}),
		framework.On(framework.PersistentVolumeClaim, framework.Add, func(pod *framework.PodInfo, _, claim *v1.PersistentVolumeClaim) framework.QueueingHint {
			return framework.QueueIf(slices.Contains(pod.Claims, claim.Namespace+"/"+claim.Name))
		}),
		framework.On(framework.VolumeAttachment, framework.Delete, func(pod *framework.PodInfo, gone, _ *storagev1.VolumeAttachment) framework.QueueingHint {
			found, err := p.attachables(pod.Pod, true)
			return framework.QueueIf(err != nil || slices.ContainsFunc(found, func(a attachable) bool { return a.id.driver == gone.Spec.Attacher }))
		}),
	}
	if p.checkDrivers {
		events = append(events, framework.On(framework.CSIDriver, framework.Update|framework.Delete, func(_ *framework.PodInfo, old, driver *storagev1.CSIDriver) framework.QueueingHint {
			return framework.QueueIf(preventsScheduling(old) && (driver == nil || !preventsScheduling(driver)))
		}))
	}
	return events, nil
}

// takesMore reports whether a node has come to take volumes that it did not
// take before: of a driver that is new, that it no longer limits, or whose
// limit has grown.
func takesMore(old, csiNode *storagev1.CSINode) bool {
	if old.Annotations[v1.MigratedPluginsAnnotationKey] != csiNode.Annotations[v1.MigratedPluginsAnnotationKey] {
		return true
	}
	before, now := limitsOf(old), limitsOf(csiNode)
	for driver, limit := range before {
		if larger, limited := now[driver]; !limited || larger > limit {
			return true
		}
	}
	return slices.ContainsFunc(csiNode.Spec.Drivers, func(d storagev1.CSINodeDriver) bool {
		return !slices.ContainsFunc(old.Spec.Drivers, func(o storagev1.CSINodeDriver) bool { return o.Name == d.Name })
	})
}
