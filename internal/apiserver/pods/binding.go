// Package pods has the actions on pods that clients ask for by creating an
// object: a Binding puts a pod on a node, an Eviction deletes it if its
// disruption budget allows.
package pods

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"

	"github.com/coracle-io/coracle/internal/apiserver/faults"
	"github.com/coracle-io/coracle/internal/apiserver/registry"
	"github.com/coracle-io/coracle/internal/apiserver/status"
	podutil "github.com/coracle-io/coracle/internal/pod"
	"github.com/coracle-io/coracle/internal/resource"
)

// Bind gives a pod the node that a Binding names. It serves both
// /namespaces/{ns}/pods/{name}/binding and /namespaces/{ns}/bindings.
func Bind(q *registry.Request, binding *corev1.Binding, options *metav1.CreateOptions) error {
	if err := q.PlaceInNamespace(binding); err != nil {
		return err
	}
	g := q.Gate(admission.Create, options, len(options.DryRun) > 0)
	if err := g.Mutate(binding, nil, binding.Name); err != nil {
		return err
	}
	if q.Info.Name != "" && binding.Name != q.Info.Name {
		return apierrors.NewBadRequest("name in URL does not match name in Binding object")
	}
	if errs := validateBinding(binding); len(errs) > 0 {
		return faults.Invalid(schema.GroupKind{Kind: "Binding"}, binding.Name, errs)
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
	_, err := pod.GuaranteedUpdate(binding.UID, options.DryRun, func(current resource.Object) (resource.Object, error) {
		old, ok := current.(*corev1.Pod)
		if !ok {
			return nil, fmt.Errorf("%T is not a pod", current)
		}
		return bound(old, binding, resource.Seconds(q.Now))
	})
	return err
}

func validateBinding(b *corev1.Binding) field.ErrorList {
	var errs field.ErrorList
	target := field.NewPath("target")
	if b.Target.Kind != "" && b.Target.Kind != "Node" {
		errs = append(errs, field.NotSupported(target.Child("kind"), b.Target.Kind, []string{"Node", "<empty>"}))
	}
	if b.Target.Name == "" {
		errs = append(errs, field.Required(target.Child("name"), ""))
	}
	return errs
}

// bound returns the pod on the node that the binding names, or the conflict
// that keeps it from there.
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
	pod := old.DeepCopy()
	pod.Spec.NodeName = b.Target.Name
	for k, v := range b.Annotations {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, k, v)
	}
	for _, key := range topologyLabels {
		if v, ok := b.Labels[key]; ok {
			metav1.SetMetaDataLabel(&pod.ObjectMeta, key, v)
		}
	}
	setPodScheduled(&pod.Status, now)
	return pod, nil
}

// topologyLabels are copied from a binding to the pod (KEP-4742).
var topologyLabels = []string{"topology.kubernetes.io/zone", "topology.kubernetes.io/region"}

func setPodScheduled(status *corev1.PodStatus, now metav1.Time) {
	c := podutil.Condition(status, corev1.PodScheduled)
	if c == nil {
		status.Conditions = append(status.Conditions, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: now})
		return
	}
	if c.Status != corev1.ConditionTrue {
		c.LastTransitionTime = now
	}
	c.Status, c.Reason, c.Message = corev1.ConditionTrue, "", ""
}
