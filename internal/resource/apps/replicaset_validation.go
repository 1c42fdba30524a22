package apps

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

func validateReplicaSet(r *resource.RequestContext, set, old *appsv1.ReplicaSet) field.ErrorList {
	p, s := field.NewPath("spec"), &set.Spec
	errs := validators.NonnegativePointer(p.Child("replicas"), s.Replicas)
	errs = append(errs, validators.Nonnegative(p.Child("minReadySeconds"), s.MinReadySeconds)...)
	errs = append(errs, validateSelector(p.Child("selector"), s.Selector, "deployment")...)
	return append(errs, validateSelected(r, p, s.Selector, &s.Template, replicaSetTemplate(old))...)
}

func validateReplicaSetUpdate(r *resource.RequestContext, set, old *appsv1.ReplicaSet) field.ErrorList {
	errs := validateReplicaSet(r, set, old)
	return append(errs, validators.Immutable(field.NewPath("spec", "selector"), set.Spec.Selector, old.Spec.Selector)...)
}

func validateReplicaSetStatus(_ *resource.RequestContext, r, _ *appsv1.ReplicaSet) field.ErrorList {
	p, s := field.NewPath("status"), &r.Status
	errs := validateCounts(p, count{"replicas", s.Replicas}, count{"fullyLabeledReplicas", s.FullyLabeledReplicas},
		count{"readyReplicas", s.ReadyReplicas}, count{"availableReplicas", s.AvailableReplicas})
	errs = append(errs, validators.NonnegativePointer(p.Child("terminatingReplicas"), s.TerminatingReplicas)...)
	errs = append(errs, validators.Nonnegative(p.Child("observedGeneration"), s.ObservedGeneration)...)
	errs = append(errs, validateAtMost(p, count{"fullyLabeledReplicas", s.FullyLabeledReplicas}, s.Replicas, "status.replicas")...)
	errs = append(errs, validateAtMost(p, count{"readyReplicas", s.ReadyReplicas}, s.Replicas, "status.replicas")...)
	errs = append(errs, validateAtMost(p, count{"availableReplicas", s.AvailableReplicas}, s.Replicas, "status.replicas")...)
	return append(errs, validateAtMost(p, count{"availableReplicas", s.AvailableReplicas}, s.ReadyReplicas, "readyReplicas")...)
}
