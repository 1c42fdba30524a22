package resourceclaim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
	library "k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/coracle-io/coracle/internal/controller"
)

// syncPod creates the claims of a pod, and reserves its claims if it was bound
// to a node without the scheduler.
func (c *claims) syncPod(ctx context.Context, pod *v1.Pod) error {
	if pod.DeletionTimestamp != nil || isDone(pod) {
		return nil
	}
	var statuses []v1.PodResourceClaimStatus
	for i := range pod.Spec.ResourceClaims {
		podClaim := &pod.Spec.ResourceClaims[i]
		name, err := c.ensure(ctx, pod, podClaim)
		if err != nil {
			c.env.Events.Eventf(pod, v1.EventTypeWarning, "FailedResourceClaimCreation", "PodResourceClaim %s: %v", podClaim.Name, err)
			return fmt.Errorf("pod %s, PodResourceClaim %s: %w", cache.MetaObjectToName(pod), podClaim.Name, err)
		}
		if name != "" {
			statuses = append(statuses, v1.PodResourceClaimStatus{Name: podClaim.Name, ResourceClaimName: &name})
		}
	}
	if len(statuses) > 0 {
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"uid": pod.UID},
			"status":   map[string]any{"resourceClaimStatuses": statuses},
		})
		if err != nil {
			return err
		}
		_, err = c.kube.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		return controller.IgnoreNotFoundOrConflict(err)
	}
	if pod.Spec.NodeName == "" {
		return nil // the scheduler reserves
	}
	for name, mustCheckOwner := range library.PodClaims(pod) {
		if err := c.reserve(ctx, pod, name, mustCheckOwner); err != nil {
			return err
		}
	}
	return nil
}

// ensure creates the claim of an entry that names a template. It returns the
// name of the claim if the pod's status does not have it yet.
func (c *claims) ensure(ctx context.Context, pod *v1.Pod, podClaim *v1.PodResourceClaim) (string, error) {
	if podClaim.ResourceClaimTemplateName == nil {
		return "", nil
	}
	switch name, _, err := library.Name(pod, podClaim); {
	case err == nil && name == nil:
		return "", nil // none is needed
	case err == nil:
		claim, err := c.claims.ResourceClaims(pod.Namespace).Get(*name)
		if err == nil {
			return "", library.IsForPod(pod, claim, false)
		}
		if !apierrors.IsNotFound(err) {
			return "", err
		}
	case !errors.Is(err, library.ErrClaimNotFound):
		return "", err
	}
	claim, err := c.find(pod, podClaim.Name)
	if err == nil && claim == nil {
		claim, err = c.create(ctx, pod, podClaim)
	}
	if err != nil {
		return "", err
	}
	if reported, _, err := library.Name(pod, podClaim); err == nil && *reported == claim.Name {
		return "", nil
	}
	return claim.Name, nil
}

// find returns the claim that was created for an entry, or nil.
func (c *claims) find(pod *v1.Pod, name string) (*resourceapi.ResourceClaim, error) {
	// Read created first: a claim leaves it once the index shows the claim. Read
	// the informer's version before the index.
	at := owner{pod.UID, name}
	c.mu.Lock()
	created := c.created[at]
	c.mu.Unlock()
	seen := c.claimOf.LastStoreSyncResourceVersion()
	owned, err := c.claimOf.ByIndex(byOwner, string(pod.UID))
	if err != nil {
		return nil, err
	}
	for _, obj := range owned {
		claim, ok := obj.(*resourceapi.ResourceClaim)
		if ok && claim.Namespace == pod.Namespace && claim.Annotations[resourceapi.PodResourceClaimAnnotation] == name && claim.DeletionTimestamp == nil {
			return claim, nil
		}
	}
	if created == nil {
		return nil, nil
	}
	if newer, err := resourceversion.CompareResourceVersion(created.ResourceVersion, seen); err == nil && newer <= 0 {
		c.seen(created) // and the index does not show it: it was deleted
		return nil, nil
	}
	return created, nil
}

func (c *claims) create(ctx context.Context, pod *v1.Pod, podClaim *v1.PodResourceClaim) (*resourceapi.ResourceClaim, error) {
	template, err := c.templates.ResourceClaimTemplates(pod.Namespace).Get(*podClaim.ResourceClaimTemplateName)
	if err != nil {
		return nil, fmt.Errorf("resource claim template %q: %w", *podClaim.ResourceClaimTemplateName, err)
	}
	annotations := map[string]string{}
	maps.Copy(annotations, template.Spec.Annotations)
	annotations[resourceapi.PodResourceClaimAnnotation] = podClaim.Name
	ref := metav1.NewControllerRef(pod, v1.SchemeGroupVersion.WithKind("Pod"))
	ref.BlockOwnerDeletion = nil // a pod that is deleted in the foreground need not wait for its claims
	created, err := c.kube.ResourceV1().ResourceClaims(pod.Namespace).Create(ctx, &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: pod.Name + "-" + podClaim.Name + "-", Labels: template.Spec.Labels, Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{*ref},
		},
		Spec: template.Spec.Spec,
	}, metav1.CreateOptions{})
	c.createdForPod(&template.Spec.Spec, err)
	if err != nil {
		return nil, fmt.Errorf("create ResourceClaim : %w", err) // upstream names the claim here, which has no name yet
	}
	c.mu.Lock()
	c.created[owner{pod.UID, podClaim.Name}] = created
	c.mu.Unlock()
	current, exists, err := c.podIndex.GetByKey(cache.MetaObjectToName(pod).String())
	if err == nil && (!exists || current.(*v1.Pod).UID != pod.UID) {
		c.forget(pod) // podChanged may have been called before
	}
	return created, nil
}

// seen forgets that a claim was created, because the informer has shown it.
func (c *claims) seen(claim *resourceapi.ResourceClaim) {
	ref := podOwner(claim)
	if ref == nil {
		return
	}
	at := owner{ref.UID, claim.Annotations[resourceapi.PodResourceClaimAnnotation]}
	c.mu.Lock()
	defer c.mu.Unlock()
	if created := c.created[at]; created != nil && created.UID == claim.UID {
		delete(c.created, at)
	}
}

// forget forgets the claims that were created for a pod that is gone.
func (c *claims) forget(pod *v1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range pod.Spec.ResourceClaims {
		delete(c.created, owner{pod.UID, pod.Spec.ResourceClaims[i].Name})
	}
}

// reserve reserves an allocated claim for a pod on a node.
func (c *claims) reserve(ctx context.Context, pod *v1.Pod, name string, mustCheckOwner bool) error {
	claim, err := c.claims.ResourceClaims(pod.Namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if mustCheckOwner && library.IsForPod(pod, claim, false) != nil {
		return nil
	}
	if claim.Status.Allocation == nil || claim.DeletionTimestamp != nil || library.IsReservedForPod(pod, claim, false) {
		return nil
	}
	update := claim.DeepCopy()
	update.Status.ReservedFor = append(update.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: pod.UID})
	_, err = c.kube.ResourceV1().ResourceClaims(claim.Namespace).UpdateStatus(ctx, update, metav1.UpdateOptions{})
	return err
}
