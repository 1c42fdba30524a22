package source

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/coracle-io/coracle/internal/timespan"
)

// Mirror keeps the API server's images of static pods.
type Mirror struct {
	Client kubernetes.Interface
}

// deletionRest is how long a mirror is left alone after somebody deleted it.
const deletionRest = 2 * time.Second

// Rest returns how long from now a mirror is still to be left alone: 0 unless
// it was just deleted by others. Clients that wait for the end of a deletion
// look whether the object is still there and then watch it: one that was
// replaced in between would keep kubectl delete waiting for ever.
func Rest(mirror *v1.Pod, now time.Time) time.Duration {
	if mirror == nil || mirror.DeletionTimestamp == nil || mirror.DeletionGracePeriodSeconds == nil {
		return 0
	}
	asked := mirror.DeletionTimestamp.Add(-timespan.Seconds(*mirror.DeletionGracePeriodSeconds))
	return max(asked.Add(deletionRest).Sub(now), 0)
}

// Ensure makes the mirror of a static pod be there and up to date. mirror is
// what the API server is known to have, nil for nothing.
func (m *Mirror) Ensure(ctx context.Context, pod, mirror *v1.Pod, node *v1.Node) error {
	if mirror != nil {
		if mirror.DeletionTimestamp == nil && mirror.Annotations[v1.MirrorPodAnnotationKey] == pod.Annotations[AnnotationHash] {
			return nil
		}
		if err := m.Delete(ctx, mirror); err != nil {
			return err
		}
	}
	image := pod.DeepCopy()
	image.UID, image.ResourceVersion = "", ""
	image.Annotations[v1.MirrorPodAnnotationKey] = pod.Annotations[AnnotationHash]
	controller := true
	image.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID, Controller: &controller}}
	_, err := m.Client.CoreV1().Pods(pod.Namespace).Create(ctx, image, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create the mirror of static pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// Delete removes a mirror at once.
func (m *Mirror) Delete(ctx context.Context, mirror *v1.Pod) error {
	zero := int64(0)
	err := m.Client.CoreV1().Pods(mirror.Namespace).Delete(ctx, mirror.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &mirror.UID}})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete the mirror pod %s/%s: %w", mirror.Namespace, mirror.Name, err)
	}
	return nil
}
