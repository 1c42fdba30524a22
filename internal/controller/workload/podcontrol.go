package workload

import (
	"context"
	"errors"
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

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Reasons of events and conditions about the pods of a controller.
const (
	FailedCreate     = "FailedCreate"
	SuccessfulCreate = "SuccessfulCreate"
	FailedDelete     = "FailedDelete"
	SuccessfulDelete = "SuccessfulDelete"
)

// PodControl creates and deletes pods for owners. It maintains Expectations and
// records events on the owners.
type PodControl struct {
	Expectations *Expectations

	kube   kubernetes.Interface
	events record.EventRecorder
}

// NewPodControl returns a PodControl without expectations.
func NewPodControl(env *controller.Env) *PodControl {
	return &PodControl{Expectations: newExpectations(), kube: env.Client.Kubernetes, events: env.Events}
}

// Owner is an object for which pods are created.
type Owner interface {
	metav1.Object
	runtime.Object
}

// PodFromTemplate returns a new pod with the template of an owner and ref as its
// only owner reference. The API server generates the name from the owner's name.
func PodFromTemplate(template *v1.PodTemplateSpec, owner metav1.Object, ref metav1.OwnerReference) *v1.Pod {
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

// namePrefix returns an owner's name and a hyphen, or the name alone if the
// result would not be a valid prefix of a pod name.
func namePrefix(owner string) string {
	prefix := owner + "-"
	if len(validation.IsDNS1123Subdomain(prefix+"x")) != 0 {
		return owner
	}
	return prefix
}

// CreatePods creates n pods for an owner, in batches (see SlowStartBatch).
// newPod returns the i-th pod. CreatePods returns the number of created pods and
// the first error. It is not an error if the namespace is being deleted. The
// remaining pods are then not tried, because they would be refused as well.
func (c *PodControl) CreatePods(ctx context.Context, owner Owner, n int, newPod func(i int) *v1.Pod) (created int, err error) {
	c.Expectations.ExpectCreations(owner.GetUID(), n)
	created, err = SlowStartBatch(ctx, n, func(ctx context.Context, i int) error {
		return c.create(ctx, newPod(i), owner)
	})
	for range n - created {
		c.Expectations.ObserveCreation(owner.GetUID())
	}
	if apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause) {
		return created, nil
	}
	return created, err
}

func (c *PodControl) create(ctx context.Context, pod *v1.Pod, owner Owner) error {
	created, err := c.kube.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		if !apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause) {
			c.events.Eventf(owner, v1.EventTypeWarning, FailedCreate, "Error creating: %v", err)
		}
		return err
	}
	klog.FromContext(ctx).V(4).Info("Created pod", "pod", klog.KObj(created))
	c.events.Eventf(owner, v1.EventTypeNormal, SuccessfulCreate, "Created pod: %v", created.Name)
	return nil
}

// DeletePods deletes pods of an owner gracefully and concurrently. before, if
// not nil, is called ahead of each deletion; if it fails, the pod is not
// deleted. It is not an error if a pod does not exist. DeletePods returns the
// pods that it could not delete. They may nevertheless be terminating, if the
// answer of the API server was lost.
func (c *PodControl) DeletePods(ctx context.Context, owner Owner, toDelete []*v1.Pod, before func(*v1.Pod) error) (failed []*v1.Pod, err error) {
	uids := make([]types.UID, len(toDelete))
	for i, p := range toDelete {
		uids[i] = p.UID
	}
	c.Expectations.ExpectDeletions(owner.GetUID(), uids...)
	errs := supervise.ForEach(len(toDelete), func(i int) error {
		pod, err := toDelete[i], error(nil)
		if before != nil {
			err = before(pod)
		}
		if err == nil {
			err = c.delete(ctx, pod, owner)
		}
		if err != nil {
			c.Expectations.ObserveDeletion(owner.GetUID(), pod.UID)
		}
		return controller.IgnoreNotFound(err)
	})
	for i, err := range errs {
		if err != nil {
			failed = append(failed, toDelete[i])
		}
	}
	return failed, errors.Join(errs...)
}

func (c *PodControl) delete(ctx context.Context, pod *v1.Pod, owner Owner) error {
	err := c.kube.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &pod.UID},
	})
	switch {
	case apierrors.IsNotFound(err):
		return err
	case err != nil:
		c.events.Eventf(owner, v1.EventTypeWarning, FailedDelete, "Error deleting: %v", err)
		return fmt.Errorf("deleting pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	klog.FromContext(ctx).V(4).Info("Deleted pod", "pod", klog.KObj(pod))
	c.events.Eventf(owner, v1.EventTypeNormal, SuccessfulDelete, "Deleted pod: %v", pod.Name)
	return nil
}

// Patch sends a strategic merge patch for a pod.
func (c *PodControl) Patch(ctx context.Context, pod *v1.Pod, patch []byte) error {
	_, err := c.kube.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	return err
}

// SlowStartBatch calls f for 0 to count-1 in batches of 1, 2, 4, ... The calls
// of a batch are concurrent. It stops after the first batch with a failed call,
// so that a thousand creations that exceed a quota cost only one request. It
// returns the number of successful calls and the first error. A panic of f
// counts as an error.
func SlowStartBatch(ctx context.Context, count int, f func(ctx context.Context, i int) error) (succeeded int, err error) {
	for batch := 1; succeeded < count; batch *= 2 {
		first := succeeded
		for _, result := range supervise.ForEach(min(batch, count-first), func(i int) error { return f(ctx, first+i) }) {
			if result == nil {
				succeeded++
			} else if err == nil {
				err = result
			}
		}
		if err != nil {
			return succeeded, err
		}
	}
	return succeeded, nil
}
