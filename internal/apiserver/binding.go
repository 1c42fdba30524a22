package apiserver

import (
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"

	"github.com/coracle-io/coracle/internal/apiserver/codec"
	"github.com/coracle-io/coracle/internal/apiserver/faults"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// bind answers a Binding: it gives a pod its node. It serves both
// /namespaces/{ns}/pods/{name}/binding and /namespaces/{ns}/bindings.
func (q *request) bind() error {
	o, err := q.negotiate()
	if err != nil {
		return err
	}
	binding := &corev1.Binding{}
	options, err := q.decodeAction(binding, corev1.SchemeGroupVersion.WithKind("Binding"))
	if err != nil {
		return err
	}
	if err := q.placeInNamespace(binding); err != nil {
		return err
	}
	g := q.gate(admission.Create, options, len(options.DryRun) > 0)
	if err := g.mutate(binding, nil, binding.Name); err != nil {
		return err
	}
	if q.info.Name != "" && binding.Name != q.info.Name {
		return apierrors.NewBadRequest("name in URL does not match name in Binding object")
	}
	if errs := validateBinding(binding); len(errs) > 0 {
		return faults.Invalid(schema.GroupKind{Kind: "Binding"}, binding.Name, errs)
	}
	if err := g.validate(binding, nil, binding.Name); err != nil {
		return err
	}
	if binding.Name == "" {
		return apierrors.NewBadRequest("Name parameter required.")
	}
	q.endpoint, q.sub = q.server.routes.Load().stored("", "pods"), nil
	q.info.Name = binding.Name
	_, _, err = q.store(&change{
		options:  &metav1.UpdateOptions{DryRun: options.DryRun},
		uid:      binding.UID,
		internal: true,
		next: func(current *watchcache.Entry) (resource.Object, error) {
			pod, ok := current.Object.(*corev1.Pod)
			if !ok {
				return nil, fmt.Errorf("%T is not a pod", current.Object)
			}
			return bound(pod, binding, seconds(q.now))
		},
	})
	if err != nil {
		return err
	}
	return q.sendObject(http.StatusCreated, created(), codec.Output{Media: o.Media, Pretty: o.Pretty})
}

// created is the Status that answers an action.
func created() *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusSuccess, Code: http.StatusCreated,
	}
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
		return nil, errModified(schema.GroupResource{Resource: "pods"}, old.Name)
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
	for i := range status.Conditions {
		if c := &status.Conditions[i]; c.Type == corev1.PodScheduled {
			if c.Status != corev1.ConditionTrue {
				c.LastTransitionTime = now
			}
			c.Status, c.Reason, c.Message = corev1.ConditionTrue, "", ""
			return
		}
	}
	status.Conditions = append(status.Conditions, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: now})
}
