package resourceclaim

import (
	"context"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/controller"
)

// syncClaim removes from a claim what is no longer used.
func (c *claims) syncClaim(ctx context.Context, claim *resourceapi.ResourceClaim) error {
	users := make([]resourceapi.ResourceClaimConsumerReference, 0, len(claim.Status.ReservedFor))
	for _, user := range claim.Status.ReservedFor {
		if user.APIGroup != "" || user.Resource != "pods" {
			users = append(users, user) // not this controller's
			continue
		}
		uses, err := c.podUses(ctx, claim.Namespace, user.Name, user.UID)
		if err != nil {
			return err
		}
		if uses {
			users = append(users, user)
		}
	}
	api := c.kube.ResourceV1().ResourceClaims(claim.Namespace)
	current := claim
	released := len(users) < len(claim.Status.ReservedFor)
	protected := slices.Contains(claim.Finalizers, resourceapi.Finalizer)
	if released || protected && claim.DeletionTimestamp != nil && len(users) == 0 && claim.Status.Allocation != nil {
		update := claim.DeepCopy()
		update.Status.ReservedFor = users
		if len(users) == 0 && protected {
			update.Status.Allocation, update.Status.Devices = nil, nil
		}
		updated, err := api.UpdateStatus(ctx, update, metav1.UpdateOptions{})
		if err != nil {
			return controller.IgnoreNotFound(err)
		}
		current = updated
	}
	// The scheduler adds the finalizer before it allocates, so that it stays on a claim
	// that was never in use.
	if protected && current.Status.Allocation == nil && (released || current.DeletionTimestamp != nil) {
		update := current.DeepCopy()
		update.Finalizers = slices.DeleteFunc(update.Finalizers, func(name string) bool { return name == resourceapi.Finalizer })
		updated, err := api.Update(ctx, update, metav1.UpdateOptions{})
		if err != nil {
			return controller.IgnoreNotFound(err)
		}
		current = updated
	}
	if len(users) > 0 || current.DeletionTimestamp != nil {
		return nil
	}
	return c.deleteIfDone(ctx, current)
}

// podUses reports whether a pod exists that may use its claims. The informer
// may not show a new pod yet, so podUses asks the API.
func (c *claims) podUses(ctx context.Context, namespace, name string, uid types.UID) (bool, error) {
	pod, err := c.pods.Pods(namespace).Get(name)
	if apierrors.IsNotFound(err) || err == nil && pod.UID != uid {
		pod, err = c.kube.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
	}
	if err != nil {
		return false, fmt.Errorf("get pod %s: %w", name, err)
	}
	return pod.UID == uid && !isDone(pod), nil
}

// deleteIfDone deletes a claim that was created for a pod that is done. The
// garbage collector deletes claims of pods that are gone.
func (c *claims) deleteIfDone(ctx context.Context, claim *resourceapi.ResourceClaim) error {
	ref := podOwner(claim)
	if ref == nil {
		return nil
	}
	pod, err := c.pods.Pods(claim.Namespace).Get(ref.Name)
	if err != nil {
		return controller.IgnoreNotFound(err)
	}
	if pod.UID != ref.UID || !isDone(pod) {
		return nil
	}
	err = c.kube.ResourceV1().ResourceClaims(claim.Namespace).Delete(ctx, claim.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(claim.UID))})
	return controller.IgnoreNotFound(err)
}
