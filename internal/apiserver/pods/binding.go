// Package pods implements the actions on pods that clients request by
// creating an object: a Binding assigns a pod to a node, and an Eviction
// deletes it if its disruption budget allows that.
package pods

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/coracle-io/coracle/internal/apiserver/errorlist"
	"github.com/coracle-io/coracle/internal/apiserver/registry"
	"github.com/coracle-io/coracle/internal/apiserver/status"
	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/resource"
	corepod "github.com/coracle-io/coracle/internal/resource/core/pod"
)

// Bind assigns a pod to the node of a Binding. It serves both
// /namespaces/{ns}/pods/{name}/binding and /namespaces/{ns}/bindings.
func Bind(q *registry.Request, binding *corev1.Binding, options *metav1.CreateOptions) error {
	if err := q.PlaceInNamespace(binding); err != nil {
		return err
	}
	g := q.Admitter(admission.Create, options, len(options.DryRun) > 0)
	if err := g.Mutate(binding, nil, binding.Name); err != nil {
		return err
	}
	if q.Info.Name != "" && binding.Name != q.Info.Name {
		return apierrors.NewBadRequest("name in URL does not match name in Binding object")
	}
	if errs := corepod.ValidateBinding(binding); len(errs) > 0 {
		return errorlist.Invalid(schema.GroupKind{Kind: "Binding"}, binding.Name, errs)
	}
	if err := g.Validate(binding, nil, binding.Name); err != nil {
		return err
	}
	if binding.Name == "" {
		return apierrors.NewBadRequest("Name parameter required.")
	}
	pod := *q
	pod.Endpoint, pod.Subresource = q.Registry.Routes().Stored("", "pods"), nil
	pod.Info.Name = binding.Name
	_, err := pod.UpdateUnchecked(binding.UID, options.DryRun, func(current resource.Object) (resource.Object, error) {
		old, ok := current.(*corev1.Pod)
		if !ok {
			return nil, fmt.Errorf("%T is not a pod", current)
		}
		pod, err := bound(old, binding, resource.Seconds(q.Now))
		if err == nil && q.Registry.Features.Enabled(feature.ClearingNominatedNodeNameAfterBinding) {
			pod.Status.NominatedNodeName = ""
		}
		return pod, err
	})
	return err
}

// bound returns the pod assigned to the node of the binding, or a Conflict. The
// pod shares what stays the same with old: stored objects are never changed.
func bound(old *corev1.Pod, b *corev1.Binding, now metav1.Time) (*corev1.Pod, error) {
	conflict := func(format string, args ...any) error {
		return apierrors.NewConflict(schema.GroupResource{Resource: "pods/binding"}, old.Name, fmt.Errorf(format, args...))
	}
	switch {
	case old.DeletionTimestamp != nil:
		return nil, conflict("pod %s is being deleted, cannot be assigned to a host", old.Name)
	case old.Spec.NodeName != "":
		return nil, conflict("pod %v is already assigned to node %q", old.Name, old.Spec.NodeName)
	case len(old.Spec.SchedulingGates) > 0:
		return nil, conflict("pod %v has non-empty .spec.schedulingGates", old.Name)
	case b.ResourceVersion != "" && b.ResourceVersion != old.ResourceVersion:
		return nil, status.Modified(schema.GroupResource{Resource: "pods"}, old.Name)
	}
	pod := new(*old)
	pod.Spec.NodeName = b.Target.Name
	if len(b.Annotations) > 0 {
		pod.Annotations = maps.Clone(pod.Annotations)
	}
	for k, v := range b.Annotations {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, k, v)
	}
	if len(b.Labels) > 0 {
		pod.Labels = maps.Clone(pod.Labels)
	}
	// KEP-4742
	for _, key := range []string{"topology.kubernetes.io/zone", "topology.kubernetes.io/region"} {
		if v, ok := b.Labels[key]; ok {
			metav1.SetMetaDataLabel(&pod.ObjectMeta, key, v)
		}
	}
	pod.Status.Conditions = slices.Clone(pod.Status.Conditions)
	setPodScheduled(pod, now)
	return pod, nil
}

func setPodScheduled(pod *corev1.Pod, now metav1.Time) {
	c := podquery.Condition(&pod.Status, corev1.PodScheduled)
	if c == nil {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
			Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: now, ObservedGeneration: pod.Generation,
		})
		return
	}
	if c.Status != corev1.ConditionTrue {
		c.LastTransitionTime = now
	}
	c.Status, c.Reason, c.Message, c.ObservedGeneration = corev1.ConditionTrue, "", "", pod.Generation
}
