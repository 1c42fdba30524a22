package admission

import (
	"context"

	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/utils/ptr"
)

// groupPriority returns the priority class and the priority of a pod group; nil
// for other kinds.
func groupPriority(obj runtime.Object) (class *string, value **int32) {
	switch obj := obj.(type) {
	case *schedulingv1beta1.PodGroup:
		return &obj.Spec.PriorityClassName, &obj.Spec.Priority
	case *schedulingv1alpha3.CompositePodGroup:
		return &obj.Spec.PriorityClassName, &obj.Spec.Priority
	}
	return nil, nil
}

// admitGroup sets the priority of a new pod group. An update that does not set
// it keeps the old one.
func (p priority) admitGroup(ctx context.Context, a admission.Attributes, name *string, value **int32) error {
	if a.GetOperation() == admission.Update {
		if _, old := groupPriority(a.GetOldObject()); old != nil && *value == nil {
			*value = *old
		}
		return nil
	}
	class, err := p.classOf(ctx, a, *name)
	if err != nil {
		return err
	}
	var computed int32
	if class != nil {
		*name, computed = class.Name, class.Value
	}
	if specified := *value; specified != nil && *specified != computed {
		return refused(a, "the integer value of priority (%d) must not be provided in spec; priority admission controller computed %d from the given PriorityClass name", *specified, computed)
	}
	*value = ptr.To(computed)
	return nil
}
