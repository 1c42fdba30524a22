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

// Mirror creates and deletes the mirror pods of static pods.
type Mirror struct {
	Client kubernetes.Interface
}

// recreateDelay is how long after its deletion by another client a mirror pod is
// created again.
const recreateDelay = 2 * time.Second

// RecreateDelay returns how long to wait from now before a mirror pod that
// another client deleted is created again; 0 for other mirror pods. seen is when
// this kubelet has first seen the deletion: the clock may have been set back
// since it was requested. A client that waits for a deletion first gets the
// object and then watches it. If the pod were replaced in between, kubectl
// delete would wait forever.
func RecreateDelay(mirror *v1.Pod, seen, now time.Time) time.Duration {
	if mirror == nil || mirror.DeletionTimestamp == nil || mirror.DeletionGracePeriodSeconds == nil {
		return 0
	}
	requested := mirror.DeletionTimestamp.Add(-timespan.Seconds(*mirror.DeletionGracePeriodSeconds))
	return max(min(requested.Sub(now), seen.Sub(now))+recreateDelay, 0)
}

// IsMirrorOf reports whether mirror, which may be nil, is the mirror pod of this
// version of a static pod.
func IsMirrorOf(mirror, pod *v1.Pod) bool {
	return MirrorShows(mirror, pod) && mirror.DeletionTimestamp == nil
}

// MirrorShows reports whether mirror, which may be nil, was made for this version
// of a static pod. It may be about to be deleted.
func MirrorShows(mirror, pod *v1.Pod) bool {
	return mirror != nil && mirror.Annotations[v1.MirrorPodAnnotationKey] == pod.Annotations[AnnotationHash]
}

// Ensure creates the mirror pod of a static pod, or replaces one that is out of
// date. mirror is the mirror pod that the API server is known to have, nil for
// none.
func (m *Mirror) Ensure(ctx context.Context, pod, mirror *v1.Pod, node *v1.Node) error {
	if IsMirrorOf(mirror, pod) {
		return nil
	}
	if mirror != nil {
		if err := m.Delete(ctx, mirror); err != nil {
			return err
		}
	}
	created := pod.DeepCopy()
	created.UID, created.ResourceVersion = "", ""
	created.Annotations[v1.MirrorPodAnnotationKey] = pod.Annotations[AnnotationHash]
	controller := true
	created.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID, Controller: &controller}}
	_, err := m.Client.CoreV1().Pods(pod.Namespace).Create(ctx, created, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create the mirror of static pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// Delete deletes a mirror pod without a grace period.
func (m *Mirror) Delete(ctx context.Context, mirror *v1.Pod) error {
	zero := int64(0)
	err := m.Client.CoreV1().Pods(mirror.Namespace).Delete(ctx, mirror.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &mirror.UID}})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete the mirror pod %s/%s: %w", mirror.Namespace, mirror.Name, err)
	}
	return nil
}
