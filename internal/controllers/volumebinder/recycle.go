package volumebinder

import (
	"context"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/volume"

	"github.com/coracle-io/coracle/internal/controller"
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
// available again.
func (c *binder) recycle(ctx context.Context, v *v1.PersistentVolume) error {
	want, err := c.recyclers.podFor(v)
	if err != nil {
		return err
	}
	if want == nil {
		return c.fail(ctx, v, "VolumeFailedRecycle", "No recycler plugin found for the volume!")
	}
	pods := c.kube.CoreV1().Pods(namespace)
	pod, err := pods.Get(ctx, want.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = pods.Create(ctx, want, metav1.CreateOptions{})
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
	return controller.IgnoreNotFound(pods.Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}}))
}

// unbind makes a volume available whose data has been deleted.
func (c *binder) unbind(ctx context.Context, v *v1.PersistentVolume) error {
	next := v.DeepCopy()
	next.Spec.ClaimRef = nil
	delete(next.Annotations, volume.AnnBoundByController)
	updated, err := c.kube.CoreV1().PersistentVolumes().Update(ctx, next, metav1.UpdateOptions{})
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
