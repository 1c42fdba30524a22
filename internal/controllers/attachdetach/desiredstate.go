package attachdetach

import (
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/tools/record"

	"github.com/coracle-io/coracle/internal/controller/pods"
	"github.com/coracle-io/coracle/internal/csivolume"
	"github.com/coracle-io/coracle/internal/podquery"
)

// volume is a volume that pods of a node need.
type volume struct {
	name               v1.UniqueVolumeName
	driver, handle, pv string
	exclusive          bool // only one node may have it
	pods               []*v1.Pod
}

// isOf reports whether an attachment is of the volume, which may have several
// persistent volumes. If the attachment's name contains the volume's handle, the
// name decides: an earlier persistent volume of the same name may have had another
// handle.
func (v *volume) isOf(a *storagev1.VolumeAttachment) bool {
	if csivolume.IsAttachmentName(a.Name) {
		return a.Name == csivolume.AttachmentName(v.handle, v.driver, a.Spec.NodeName)
	}
	pv := a.Spec.Source.PersistentVolumeName
	return pv != nil && *pv == v.pv
}

// events records an event for each pod.
func (v *volume) events(recorder record.EventRecorder, kind, reason, message string) {
	for _, p := range v.pods {
		recorder.Event(p, kind, reason, message)
	}
}

func hasClaims(p *v1.Pod) bool {
	for range podquery.ClaimNames(p) {
		return true
	}
	return false
}

// isOver reports whether no container of the pod runs now or will run again. Sidecars
// are init containers, and end after the others.
func isOver(p *v1.Pod) bool {
	if podquery.IsFinished(p) {
		return true
	}
	if p.DeletionTimestamp == nil {
		return false
	}
	all := slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses, p.Status.EphemeralContainerStatuses)
	return !slices.ContainsFunc(all, func(s v1.ContainerStatus) bool { return s.State.Terminated == nil && s.State.Waiting == nil })
}

// desired returns the volumes that the pods of a node need, by the names of their
// VolumeAttachments. unknown is true if the volume of a claim is not known yet.
func (c *attacher) desired(node *v1.Node, running []*v1.Pod) (desired map[string]*volume, unknown bool) {
	desired = make(map[string]*volume)
	if node == nil {
		return desired, false
	}
	for _, p := range running {
		if isOver(p) {
			continue
		}
		for i := range p.Spec.Volumes {
			pv, err := c.volumeOf(p, &p.Spec.Volumes[i])
			if err != nil {
				unknown = true
			}
			if pv == nil || !c.attachable(pv) {
				continue
			}
			source := pv.Spec.CSI
			attachment := csivolume.AttachmentName(source.VolumeHandle, source.Driver, node.Name)
			w := desired[attachment]
			if w == nil {
				w = &volume{name: uniqueName(source), driver: source.Driver, handle: source.VolumeHandle, pv: pv.Name, exclusive: isExclusive(pv)}
				desired[attachment] = w
			}
			if !slices.Contains(w.pods, p) {
				w.pods = append(w.pods, p)
			}
		}
	}
	return desired, unknown
}

func uniqueName(source *v1.CSIPersistentVolumeSource) v1.UniqueVolumeName {
	return csivolume.UniqueName(source.Driver, source.VolumeHandle)
}

// volumeOf is pods.PersistentVolume with the controller's caches.
func (c *attacher) volumeOf(p *v1.Pod, vol *v1.Volume) (*v1.PersistentVolume, error) {
	return pods.PersistentVolume(c.claims, c.volumes, p, vol)
}

// uses reports whether a pod has a claim of a volume.
func (c *attacher) uses(p *v1.Pod, volume v1.UniqueVolumeName) bool {
	for i := range p.Spec.Volumes {
		if v, err := c.volumeOf(p, &p.Spec.Volumes[i]); err == nil && v != nil && v.Spec.CSI != nil && uniqueName(v.Spec.CSI) == volume {
			return true
		}
	}
	return false
}

// attachable reports whether a volume has to be attached to nodes.
func (c *attacher) attachable(pv *v1.PersistentVolume) bool {
	if pv.Spec.CSI == nil {
		return false
	}
	driver, err := c.drivers.Get(pv.Spec.CSI.Driver)
	return err != nil || csivolume.AttachRequired(driver)
}

// isExclusive reports whether only one node at a time may have a volume.
func isExclusive(pv *v1.PersistentVolume) bool {
	modes := pv.Spec.AccessModes
	return len(modes) > 0 && !slices.Contains(modes, v1.ReadWriteMany) && !slices.Contains(modes, v1.ReadOnlyMany)
}

// identify returns the volume of an attachment, whose name is a hash of the
// handle: the volume that this controller attached, the volume of the persistent
// volume, or a volume in the status of the node if the persistent volume is gone
// or has another handle now. ours is false for attachments with other names,
// which belong to others.
func (c *attacher) identify(a *storagev1.VolumeAttachment, node *v1.Node) (name v1.UniqueVolumeName, ours bool) {
	if a.Spec.Source.PersistentVolumeName == nil {
		return "", false
	}
	var candidates []v1.UniqueVolumeName
	if p := c.progress[a.Name]; p != nil {
		candidates = append(candidates, p.volume)
	}
	if v, err := c.volumes.Get(*a.Spec.Source.PersistentVolumeName); err == nil && v.Spec.CSI != nil {
		candidates = append(candidates, uniqueName(v.Spec.CSI))
	}
	if node != nil {
		for _, attached := range node.Status.VolumesAttached {
			candidates = append(candidates, attached.Name)
		}
		candidates = append(candidates, node.Status.VolumesInUse...)
	}
	for _, name := range candidates {
		driver, handle, ok := csivolume.SplitUniqueName(name)
		if ok && driver == a.Spec.Attacher && a.Name == csivolume.AttachmentName(handle, driver, a.Spec.NodeName) {
			return name, true
		}
	}
	return "", false
}

// goneNodes has the volumes that deleted nodes had in use.
type goneNodes struct {
	mu    sync.Mutex // guards nodes
	nodes map[string][]v1.UniqueVolumeName
}

func (g *goneNodes) add(node *v1.Node) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.nodes == nil {
		g.nodes = make(map[string][]v1.UniqueVolumeName)
	}
	g.nodes[node.Name] = node.Status.VolumesInUse
}

func (g *goneNodes) remove(node string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.nodes, node)
}

// inUse reports whether a deleted node may still have a volume in use. A volume
// counts as in use if its use is not known.
func (g *goneNodes) inUse(node string, volume v1.UniqueVolumeName) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	volumes, known := g.nodes[node]
	return !known || slices.Contains(volumes, volume)
}
