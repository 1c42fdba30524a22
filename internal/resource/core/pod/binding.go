package pod

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// Bindings is the resource bindings: a create binds a pod to a node.
func Bindings() *resource.Resource {
	return resource.Define(resource.Definition[corev1.Binding, *corev1.Binding]{
		GroupVersion: corev1.SchemeGroupVersion,
		Names:        resource.Names{Kind: "Binding", Plural: "bindings"},
		Verbs:        []string{"create"},
		Action:       resource.Bind,
		Strategy:     resource.Strategy[*corev1.Binding]{Validate: func(_ *resource.RequestContext, b *corev1.Binding) field.ErrorList { return ValidateBinding(b) }},
	})
}

// ValidateBinding checks that a binding names a node, by a name that a node can have.
func ValidateBinding(b *corev1.Binding) field.ErrorList {
	var errs field.ErrorList
	if b.Target.Kind != "" && b.Target.Kind != "Node" {
		errs = append(errs, field.NotSupported(field.NewPath("target", "kind"), b.Target.Kind, []string{"Node", "<empty>"}))
	}
	name := field.NewPath("target", "name")
	if b.Target.Name == "" {
		return append(errs, field.Required(name, ""))
	}
	return append(errs, validators.Problems(name, b.Target.Name, validation.NameIsDNSSubdomain(b.Target.Name, false))...)
}
