package volumebinder

import (
	"context"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/volume"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/pods"
	"github.com/coracle-io/coracle/internal/podquery"
)

// The pods that recycle volumes are in the namespace default. Their names are recycler and
// the name of the volume; the annotation recycles has its UID.
const (
	recycler  = "recycler-for-"
	recycles  = "coracle.io/recycles-volume"
	namespace = metav1.NamespaceDefault
	image     = "registry.k8s.io/build-image/debian-base:bookworm-v1.0.6"
)

// recycle deletes the data of a released volume with a pod, and then makes the volume
// available again. It waits while a pod uses the volume.
func (c *binder) recycle(ctx context.Context, v *v1.PersistentVolume) error {
	want, err := c.recyclers.podFor(v)
	if err != nil {
		return err
	}
	if want == nil {
		return c.fail(ctx, v, "VolumeFailedRecycle", "No recycler plugin found for the volume!")
	}
	users, err := c.users(v.Spec.ClaimRef)
	if err != nil {
		return err
	}
	if len(users) > 0 {
		c.env.Events.Eventf(v, v1.EventTypeNormal, "VolumeFailedRecycle", "Volume is used by pods: %s", listed(users))
		c.queue.AddAfter(controller.Key{Name: v.Name}, retryAfter)
		return nil
	}
	recyclers := c.kube.CoreV1().Pods(namespace)
	pod, err := recyclers.Get(ctx, want.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = recyclers.Create(ctx, want, metav1.CreateOptions{})
		return err // the pod's events enqueue the volume
	}
	if err != nil {
		return err
	}
	ours := pod.Annotations[recycles] == use(v)
	switch {
	case ours && pod.Status.Phase == v1.PodSucceeded:
		err = c.unbind(ctx, v)
	case ours && pod.Status.Phase == v1.PodFailed:
		err = c.fail(ctx, v, "VolumeFailedRecycle", fmt.Sprintf("Recycle failed: pod failed, pod.Status.Message: %s", pod.Status.Message))
	case ours:
		return nil
	}
	if err != nil {
		return err
	}
	// The pod has done its work, or belongs to a former use or to a former volume with the same name.
	return controller.IgnoreNotFound(recyclers.Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}}))
}

// users returns the unfinished pods of a claim that was deleted. If there is another claim with the
// same name, it returns none, because they use the volume of that one.
func (c *binder) users(claim *v1.ObjectReference) (names []string, err error) {
	_, err = c.claims.PersistentVolumeClaims(claim.Namespace).Get(claim.Name)
	if !apierrors.IsNotFound(err) {
		return nil, err
	}
	all, err := pods.OfClaim(c.pods, &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, Name: claim.Name}})
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		if !podquery.IsFinished(p) {
			names = append(names, p.Namespace+"/"+p.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// freed returns a volume without its claim. If a user has reserved it for a claim, it stays reserved
// for the next claim with that name.
func freed(v *v1.PersistentVolume) *v1.PersistentVolume {
	next := v.DeepCopy()
	if _, ours := v.Annotations[volume.AnnBoundByController]; !ours {
		next.Spec.ClaimRef.UID = ""
		return next
	}
	next.Spec.ClaimRef = nil
	delete(next.Annotations, volume.AnnBoundByController)
	return next
}

// unbind makes a volume available whose data has been deleted.
func (c *binder) unbind(ctx context.Context, v *v1.PersistentVolume) error {
	updated, err := c.kube.CoreV1().PersistentVolumes().Update(ctx, freed(v), metav1.UpdateOptions{})
	if err != nil {
		return controller.IgnoreNotFound(err)
	}
	c.env.Events.Event(v, v1.EventTypeNormal, "VolumeRecycled", "Volume recycled")
	_, err = c.setVolumePhase(ctx, updated, v1.VolumeAvailable, "")
	return controller.IgnoreNotFound(err)
}

// use identifies a use of a volume. A pod that was left over has deleted the data of an
// earlier claim only.
func use(v *v1.PersistentVolume) string {
	if v.Spec.ClaimRef == nil {
		return string(v.UID)
	}
	return string(v.UID) + "/" + string(v.Spec.ClaimRef.UID)
}

// recycledBy returns the name of the volume that a pod recycles, or "".
func recycledBy(pod *v1.Pod) string {
	if _, ok := pod.Annotations[recycles]; !ok || pod.Namespace != namespace {
		return ""
	}
	name, _ := strings.CutPrefix(pod.Name, recycler)
	return name
}
