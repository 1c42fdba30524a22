package admission

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
)

// priority sets the priority of a pod from its priority class.
type priority struct {
	onWrite
	classes fresh[*schedulingv1.PriorityClass]
}

func newPriority(c *Config) admission.Interface {
	return priority{classes: freshOf[*schedulingv1.PriorityClass](c, objects.PriorityClasses)}
}

func (p priority) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if name, value := groupPriority(a.GetObject()); name != nil && a.GetSubresource() == "" {
		return p.admitGroup(ctx, a, name, value)
	}
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok || !is(a, "", "pods", "") {
		return nil
	}
	if a.GetOperation() == admission.Update {
		old, ok := a.GetOldObject().(*corev1.Pod)
		if ok && pod.Spec.Priority == nil {
			pod.Spec.Priority = old.Spec.Priority
		}
		if ok && pod.Spec.PreemptionPolicy == nil {
			pod.Spec.PreemptionPolicy = old.Spec.PreemptionPolicy
		}
		return nil
	}
	class, err := p.classOf(ctx, a, pod.Spec.PriorityClassName)
	if err != nil {
		return err
	}
	var value int32
	policy := corev1.PreemptLowerPriority
	if class != nil {
		pod.Spec.PriorityClassName = class.Name
		value = class.Value
		if class.PreemptionPolicy != nil {
			policy = *class.PreemptionPolicy
		}
	}
	if specified := pod.Spec.Priority; specified != nil && *specified != value {
		return refused(a, "the integer value of priority (%d) must not be provided in pod spec; priority admission controller computed %d from the given PriorityClass name", *specified, value)
	}
	if specified := pod.Spec.PreemptionPolicy; specified != nil && *specified != policy {
		return refused(a, "the string value of PreemptionPolicy (%s) must not be provided in pod spec; priority admission controller computed %s from the given PriorityClass name", *specified, policy)
	}
	pod.Spec.Priority, pod.Spec.PreemptionPolicy = ptr.To(value), ptr.To(policy)
	return nil
}

// classOf returns the priority class of a name. For no name it returns the
// global default, or nil if there is none.
func (p priority) classOf(ctx context.Context, a admission.Attributes, name string) (*schedulingv1.PriorityClass, error) {
	if name == "" {
		return p.globalDefault(), nil
	}
	class, ok := p.classes.find(ctx, "", name)
	if !ok {
		return nil, refused(a, "no PriorityClass with name %v was found", name)
	}
	return class, nil
}

// globalDefault returns the global default with the lowest value.
func (p priority) globalDefault() *schedulingv1.PriorityClass {
	var found *schedulingv1.PriorityClass
	for c := range p.classes.All("") {
		if c.GlobalDefault && (found == nil || c.Value < found.Value) {
			found = c
		}
	}
	return found
}

// Validate refuses a second global default.
func (p priority) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	class, ok := a.GetObject().(*schedulingv1.PriorityClass)
	if !ok || !class.GlobalDefault || !is(a, schedulingv1.GroupName, "priorityclasses", "") {
		return nil
	}
	if d := p.globalDefault(); d != nil && (a.GetOperation() == admission.Create || d.Name != class.Name) {
		return refused(a, "PriorityClass %v is already marked as default. Only one default can exist", d.Name)
	}
	return nil
}
