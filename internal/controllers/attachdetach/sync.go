package attachdetach

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/pods"
	"github.com/coracle-io/coracle/internal/csivolume"
	"github.com/coracle-io/coracle/internal/nodestatus"
)

// sync compares the VolumeAttachments of a node with its pods. It does not
// change attachments of a node whose volumes this controller does not attach.
func (c *attacher) sync(ctx context.Context, name string) error {
	node, err := c.nodes.Get(name)
	if apierrors.IsNotFound(err) {
		node = nil
	} else if err != nil {
		return err
	}
	if node != nil && !managed(node) {
		return nil
	}
	running, err := pods.OnNode(c.pods, name)
	if err != nil {
		return err
	}
	desired, unknown := c.desired(node, running)
	found, err := c.attachments.GetIndexer().ByIndex(byNode, name)
	if err != nil {
		return err
	}
	attached := []v1.AttachedVolume{} // what the status of the node is to have
	var unwanted []detach
	for _, o := range found {
		a := o.(*storagev1.VolumeAttachment)
		w := desired[a.Name]
		delete(desired, a.Name)
		var volume v1.UniqueVolumeName
		if w != nil {
			c.show(a, w)
			volume = w.name
		} else {
			d, ours := c.detach(a, node, name)
			if !ours {
				continue
			}
			volume = d.volume
			if !d.wait {
				unwanted = append(unwanted, d)
				continue
			}
		}
		if a.Status.Attached && a.DeletionTimestamp == nil {
			attached = append(attached, v1.AttachedVolume{Name: volume})
		}
	}
	errs := []error{c.detachAll(ctx, name, node, attached, unwanted)}
	for _, attachment := range slices.Sorted(maps.Keys(desired)) {
		errs = append(errs, c.attach(ctx, name, attachment, desired[attachment]))
	}
	c.forget(name, found, desired)
	if len(found) > 0 && !c.disableSync {
		c.queue.AddAfter(name, c.syncPeriod)
	}
	if node == nil && len(found) == 0 {
		c.gone.remove(name)
	}
	if unknown {
		errs = append(errs, controller.ErrStale)
	}
	return errors.Join(errs...)
}

// state returns the progress of an attachment.
func (c *attacher) state(attachment, node string, volume v1.UniqueVolumeName) *progress {
	p := c.progress[attachment]
	if p == nil {
		p = &progress{node: node, volume: volume}
		c.progress[attachment] = p
	}
	return p
}

// forget drops the progress of attachments of a node that are neither there nor
// desired.
func (c *attacher) forget(node string, found []any, desired map[string]*volume) {
	there := make(map[string]bool, len(found))
	for _, o := range found {
		there[o.(*storagev1.VolumeAttachment).Name] = true
	}
	maps.DeleteFunc(c.progress, func(name string, p *progress) bool {
		return p.node == node && !there[name] && desired[name] == nil
	})
}

// show records events about an attachment that pods wait for.
func (c *attacher) show(a *storagev1.VolumeAttachment, w *volume) {
	p := c.state(a.Name, a.Spec.NodeName, w.name)
	p.unwanted, p.blocked = time.Time{}, false
	if failed := a.Status.AttachError; failed != nil && !failed.Time.Time.Equal(p.failed) {
		p.failed = failed.Time.Time
		w.events(c.env.Events, v1.EventTypeWarning, "FailedAttachVolume", fmt.Sprintf("AttachVolume.Attach failed for volume %q : %s", w.pv, failed.Message))
	}
	if a.Status.Attached && p.attaching {
		p.attaching = false
		w.events(c.env.Events, v1.EventTypeNormal, "SuccessfulAttachVolume", fmt.Sprintf("AttachVolume.Attach succeeded for volume %q ", w.pv))
	}
}

// attach creates a VolumeAttachment, unless the volume is for one node and
// another has it.
func (c *attacher) attach(ctx context.Context, node, attachment string, w *volume) error {
	p := c.state(attachment, node, w.name)
	p.unwanted = time.Time{}
	if w.exclusive {
		all, err := c.existing.all(ctx)
		if err != nil {
			return err
		}
		for _, other := range all {
			if other.Spec.NodeName == node || other.Spec.Attacher != w.driver || !w.isOf(other) {
				continue
			}
			if !p.blocked {
				p.blocked = true
				c.reportBlocked(w, other.Spec.NodeName)
			}
			return nil // its deletion is an event
		}
	}
	p.blocked, p.attaching = false, true
	err := c.existing.create(ctx, &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: attachment},
		Spec:       storagev1.VolumeAttachmentSpec{NodeName: node, Attacher: w.driver, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &w.pv}},
	})
	if apierrors.IsAlreadyExists(err) {
		return controller.ErrStale
	}
	if err != nil {
		w.events(c.env.Events, v1.EventTypeWarning, "FailedAttachVolume", fmt.Sprintf("AttachVolume.Attach failed for volume %q : %v", w.pv, err))
	}
	return err
}

// reportBlocked records that pods wait for a volume that another node has.
func (c *attacher) reportBlocked(w *volume, other string) {
	users, _ := pods.OnNode(c.pods, other)
	for _, p := range w.pods {
		reason := "Volume is already exclusively attached to one node, waiting on detach before it can be attached to another node"
		var names []string
		elsewhere := 0
		for _, user := range users {
			switch {
			case isOver(user) || !c.uses(user, w.name):
			case user.Namespace == p.Namespace:
				names = append(names, user.Name)
			default:
				elsewhere++
			}
		}
		slices.Sort(names)
		switch {
		case len(names) > 0 && elsewhere > 0:
			reason = fmt.Sprintf("Volume is already used by pod(s) %s and %d pod(s) in different namespaces", strings.Join(names, ", "), elsewhere)
		case len(names) > 0:
			reason = "Volume is already used by pod(s) " + strings.Join(names, ", ")
		case elsewhere > 0:
			reason = fmt.Sprintf("Volume is already used by %d pod(s) in different namespaces", elsewhere)
		}
		c.env.Events.Eventf(p, v1.EventTypeWarning, "FailedAttachVolume", "Waiting for detach for volume %q %s", w.pv, reason)
	}
}

// detach is an attachment that no pod needs.
type detach struct {
	attachment *storagev1.VolumeAttachment
	volume     v1.UniqueVolumeName
	forced     string // why it is detached although it is in use
	wait       bool   // until the node has unmounted it
}

// detach decides about an attachment that no pod of its node needs. ours is false
// if the attachment's name belongs to no known volume.
func (c *attacher) detach(a *storagev1.VolumeAttachment, node *v1.Node, name string) (d detach, ours bool) {
	volume, ours := c.identify(a, node)
	if !ours || a.DeletionTimestamp != nil {
		return d, false
	}
	d = detach{attachment: a, volume: volume}
	p := c.state(a.Name, name, volume)
	if p.unwanted.IsZero() {
		p.unwanted = time.Now()
	}
	inUse := c.gone.inUse(name, volume)
	if node != nil {
		inUse = slices.Contains(node.Status.VolumesInUse, volume)
	}
	if !inUse {
		return d, true
	}
	d.forced = c.force(node, p.unwanted)
	if d.forced == "" {
		d.wait = true
		if left := c.maxUnmounting - time.Since(p.unwanted); left > 0 {
			c.queue.AddAfter(name, left)
		}
	}
	return d, true
}

// force returns why a volume that is in use is detached nevertheless from its
// node, which is nil if it is gone, or "" if it is not. No pod has needed the
// volume since the time unwanted.
func (c *attacher) force(node *v1.Node, unwanted time.Time) string {
	switch {
	case node != nil && nodestatus.IsOutOfService(node):
		return "out-of-service"
	case (node == nil || nodestatus.Ready(node) != v1.ConditionTrue) && !c.neverByForce && time.Since(unwanted) >= c.maxUnmounting:
		return "timeout"
	}
	return ""
}

// detachAll makes the status of the node show what is attached, and deletes the
// attachments that are unwanted. An attachment whose volume is in use by then
// stays, unless the node still meets the conditions for a forced detach.
func (c *attacher) detachAll(ctx context.Context, name string, node *v1.Node, attached []v1.AttachedVolume, unwanted []detach) error {
	if node == nil && len(unwanted) > 0 { // it may have been created again
		_, err := c.env.Client.Kubernetes.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			return controller.ErrStale
		}
		if !apierrors.IsNotFound(err) {
			return err
		}
	}
	if node != nil {
		var err error
		if node, err = c.showAttached(ctx, node, attached, len(unwanted) > 0); err != nil {
			return err
		}
		if node == nil && len(unwanted) > 0 { // what it had in use is known only once its deletion is
			return controller.ErrStale
		}
	}
	var errs []error
	for _, d := range unwanted {
		stays := node != nil && (d.forced == "" || c.force(node, c.state(d.attachment.Name, name, d.volume).unwanted) == "")
		if stays && slices.Contains(node.Status.VolumesInUse, d.volume) {
			errs = append(errs, controller.ErrStale)
			continue
		}
		if d.forced != "" {
			klog.FromContext(ctx).Info("Detaching a volume that its node has not unmounted", "node", d.attachment.Spec.NodeName, "volume", d.volume, "reason", d.forced)
		}
		err := c.env.Client.Kubernetes.StorageV1().VolumeAttachments().Delete(ctx, d.attachment.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &d.attachment.UID},
		})
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("detach volume %s from node %s: %w", d.volume, d.attachment.Spec.NodeName, err))
		}
		if err == nil && d.forced != "" {
			c.forced.WithLabelValues(d.forced).Inc()
		}
	}
	return errors.Join(errs...)
}

// showAttached writes what is attached into the status of the node and returns
// the node as it is then. Without a difference it reads the node only if it has
// to be fresh. It returns nil if the node is gone.
func (c *attacher) showAttached(ctx context.Context, node *v1.Node, attached []v1.AttachedVolume, fresh bool) (*v1.Node, error) {
	slices.SortFunc(attached, func(a, b v1.AttachedVolume) int { return strings.Compare(string(a.Name), string(b.Name)) })
	after := slices.DeleteFunc(slices.Clone(node.Status.VolumesAttached), func(a v1.AttachedVolume) bool {
		_, _, isCSI := csivolume.SplitUniqueName(a.Name)
		return isCSI
	})
	after = append(after, attached...)
	api := c.env.Client.Kubernetes.CoreV1().Nodes()
	gone := func(node *v1.Node, err error) (*v1.Node, error) {
		if apierrors.IsNotFound(err) {
			return nil, nil //nolint:nilnil // the node is gone
		}
		return node, err
	}
	if !slices.Equal(after, node.Status.VolumesAttached) {
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"uid": node.UID}, "status": map[string]any{"volumesAttached": after},
		})
		if err != nil {
			return nil, err
		}
		return gone(api.Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status"))
	}
	if fresh {
		return gone(api.Get(ctx, node.Name, metav1.GetOptions{}))
	}
	return node, nil
}
