package pods

import (
	"context"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
)

// Reasons of events and conditions about a controller's pods.
const (
	FailedCreate     = "FailedCreate"
	SuccessfulCreate = "SuccessfulCreate"
	FailedDelete     = "FailedDelete"
	SuccessfulDelete = "SuccessfulDelete"
)

// Control creates and deletes pods for owners and records events about it.
type Control struct {
	Kube   kubernetes.Interface
	Events record.EventRecorder
}

// FromTemplate makes a pod of a template for an owner, who becomes its
// controlling owner. The name is generated from the owner's name.
func FromTemplate(template *v1.PodTemplateSpec, owner metav1.Object, ref metav1.OwnerReference) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName:    namePrefix(owner.GetName()),
			Namespace:       owner.GetNamespace(),
			Labels:          maps.Clone(template.Labels),
			Annotations:     maps.Clone(template.Annotations),
			Finalizers:      slices.Clone(template.Finalizers),
			OwnerReferences: []metav1.OwnerReference{ref},
		},
		Spec: *template.Spec.DeepCopy(),
	}
}

// namePrefix is an owner's name and a hyphen, or the name alone if that would
// not be a valid beginning of a pod's name.
func namePrefix(owner string) string {
	prefix := owner + "-"
	if len(validation.IsDNS1123Subdomain(prefix+"x")) != 0 {
		return owner
	}
	return prefix
}

// Create creates a pod. A failure is recorded as an event of the owner,
// except where the namespace is being deleted, where it is to be expected.
func (c Control) Create(ctx context.Context, pod *v1.Pod, owner runtime.Object) (*v1.Pod, error) {
	created, err := c.Kube.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		if !apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause) {
			c.Events.Eventf(owner, v1.EventTypeWarning, FailedCreate, "Error creating: %v", err)
		}
		return nil, err
	}
	klog.FromContext(ctx).V(4).Info("Created pod", "pod", klog.KObj(created))
	c.Events.Eventf(owner, v1.EventTypeNormal, SuccessfulCreate, "Created pod: %v", created.Name)
	return created, nil
}

// Delete deletes a pod, gracefully. A pod that is gone already is a NotFound
// error.
func (c Control) Delete(ctx context.Context, pod *v1.Pod, owner runtime.Object) error {
	err := c.Kube.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &pod.UID},
	})
	switch {
	case apierrors.IsNotFound(err):
		return err
	case err != nil:
		c.Events.Eventf(owner, v1.EventTypeWarning, FailedDelete, "Error deleting: %v", err)
		return fmt.Errorf("deleting pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	klog.FromContext(ctx).V(4).Info("Deleted pod", "pod", klog.KObj(pod))
	c.Events.Eventf(owner, v1.EventTypeNormal, SuccessfulDelete, "Deleted pod: %v", pod.Name)
	return nil
}

// Patch sends a strategic merge patch for a pod.
func (c Control) Patch(ctx context.Context, pod *v1.Pod, patch []byte) error {
	_, err := c.Kube.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	return err
}
