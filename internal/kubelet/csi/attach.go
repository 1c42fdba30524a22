package csi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/csivolume"
)

// attachPatience is how long a pod waits for its volumes before that is an
// error. It is upstream's value.
const attachPatience = 2*time.Minute + 3*time.Second

// recordNeed records that a pod needs a volume.
func (m *mount) recordNeed() {
	key := podVolume{m.pod.UID, m.record.volume()}
	m.volumes.mu.Lock()
	defer m.volumes.mu.Unlock()
	if m.volumes.needs[key] == nil {
		m.volumes.needs[key] = &need{driver: m.record.Driver, persistent: m.source.PV != nil, since: time.Now()}
	}
}

// withNeed calls f with the need for the volume, unless the pod does not need it any more.
func (m *mount) withNeed(f func(*need)) {
	m.volumes.mu.Lock()
	defer m.volumes.mu.Unlock()
	if n := m.volumes.needs[podVolume{m.pod.UID, m.record.volume()}]; n != nil {
		f(n)
	}
}

// attachable reports whether the volumes of a driver have to be attached to a
// node.
func (v *Volumes) attachable(driver string) (bool, error) {
	object, err := v.driverObject(driver)
	if err != nil {
		return true, err
	}
	return csivolume.AttachRequired(object), nil
}

// awaitAttachment checks that the volume is attached, if it has to be. First the
// status of the node has to show that the volume is in use, because then the
// controller does not detach it. For a mounted volume it only reads the
// attributes of the attachment.
func (m *mount) awaitAttachment(ctx context.Context, mounted bool) error {
	if m.source.PV == nil || mounted && !m.republishes() {
		return nil
	}
	if needed, err := m.volumes.attachable(m.record.Driver); err != nil || !needed {
		return err
	}
	late := func(reason string) error {
		patient := true
		m.withNeed(func(n *need) { patient = time.Since(n.since) < attachPatience })
		if patient {
			return fmt.Errorf("%w: %s", ErrAttaching, reason)
		}
		return fmt.Errorf("unable to attach or mount volumes: unmounted volumes=[%s]: timed out waiting for the condition: %s", m.source.Volume.Name, reason)
	}
	if reason := m.unattached(); reason != "" && !mounted {
		err := late(reason + " for volume " + m.record.Name)
		if !errors.Is(err, ErrAttaching) && m.exceedsLimit(ctx) {
			m.volumes.drivers.ask(ctx, m.record.Driver) // the scheduler believes that there is room
			return ErrAttachmentLimit
		}
		return err
	}
	attachment, err := m.attachmentObject(ctx)
	if err != nil {
		return m.failure("MountVolume.WaitForAttach", fmt.Errorf("volume %s has GET error for volume attachment %s: %w", m.record.Handle, m.record.AttachmentID, err))
	}
	if failed := attachment.Status.AttachError; failed != nil {
		return m.failure("MountVolume.WaitForAttach", errors.New(failed.Message))
	}
	if attachment.DeletionTimestamp != nil || !attachment.Status.Attached {
		return late("volume attachment is being deleted or is not attached for volume " + m.record.Name)
	}
	m.attachment = attachment.Status.AttachmentMetadata
	return nil
}

func (m *mount) attachmentObject(ctx context.Context) (*storagev1.VolumeAttachment, error) {
	return m.volumes.Client.Kubernetes.StorageV1().VolumeAttachments().Get(ctx, m.record.AttachmentID, metav1.GetOptions{})
}

// exceedsLimit reports whether the volume is not attached because the node has as
// many volumes as the driver attaches to it (KEP-4876). That is of no use unless the
// driver has the limit in CSINode updated: the scheduler would choose the node again.
func (m *mount) exceedsLimit(ctx context.Context) bool {
	if m.object == nil || m.object.Spec.NodeAllocatableUpdatePeriodSeconds == nil {
		return false
	}
	attachment, err := m.attachmentObject(ctx)
	if err != nil {
		return false
	}
	failed := attachment.Status.AttachError
	return failed != nil && failed.ErrorCode != nil && codes.Code(*failed.ErrorCode) == codes.ResourceExhausted
}

// NodeChanged wakes the pods that wait for the volumes that a new version of the
// Node object shows.
func (v *Volumes) NodeChanged(before, after *v1.Node) {
	if before != nil && slices.Equal(before.Status.VolumesInUse, after.Status.VolumesInUse) &&
		slices.EqualFunc(before.Status.VolumesAttached, after.Status.VolumesAttached, func(a, b v1.AttachedVolume) bool { return a == b }) {
		return
	}
	v.wakePods("")
}

// unattached returns why the volume is not attached according to the status of
// the node, "" if it is.
func (m *mount) unattached() string {
	volume, node := m.record.volume(), m.volumes.Node()
	if node == nil || !slices.Contains(node.Status.VolumesInUse, volume) {
		m.volumes.Report()
		return "volume has not been added to the list of VolumesInUse in the node's volume status"
	}
	if !slices.ContainsFunc(node.Status.VolumesAttached, func(a v1.AttachedVolume) bool { return a.Name == volume }) {
		return "volume not attached according to node status"
	}
	return ""
}

// wakePods makes the kubelet sync the pods that do not have a volume of a driver
// yet. Without a name it is all drivers.
func (v *Volumes) wakePods(driver string) {
	v.mu.Lock()
	var pods []types.UID
	for key, w := range v.needs {
		if w.refreshed.IsZero() && (driver == "" || driver == w.driver) {
			pods = append(pods, key.pod)
		}
	}
	v.mu.Unlock()
	slices.Sort(pods)
	for _, uid := range slices.Compact(pods) {
		v.Wake(uid)
	}
}

// InUse returns the attachable volumes that the node's pods need or have, and
// the attachable volumes that are not unmounted completely, for the field
// volumesInUse of the node's status.
func (v *Volumes) InUse() []v1.UniqueVolumeName {
	found := map[v1.UniqueVolumeName]string{} // driver
	pods, err := v.ofPods()
	staged, stagedErr := v.staged()
	unreadable := err != nil || stagedErr != nil
	for _, p := range append(pods, staged...) {
		if p.err == nil && (p.Mode != "Ephemeral") {
			found[p.volume()] = p.Driver
		}
		unreadable = unreadable || v.unreadable(&p) != nil
	}
	node := v.Node()
	v.mu.Lock()
	defer v.mu.Unlock()
	if node != nil && !v.resumed {
		v.resumed, v.reported = true, append(v.reported, node.Status.VolumesInUse...)
	}
	for key, w := range v.needs {
		if w.persistent {
			found[key.volume] = w.driver
		}
	}
	maps.DeleteFunc(found, func(_ v1.UniqueVolumeName, driver string) bool {
		needed, err := v.attachable(driver)
		return err == nil && !needed
	})
	if unreadable { // nothing may be detached that was in use
		for _, volume := range v.reported {
			found[volume] = ""
		}
	}
	v.reported = slices.Sorted(maps.Keys(found))
	return slices.Clone(v.reported)
}
