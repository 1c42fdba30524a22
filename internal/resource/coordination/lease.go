package coordination

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// Leases is the resource leases.
func Leases() *resource.Resource {
	return resource.Define(resource.Definition[coordinationv1.Lease, *coordinationv1.Lease]{
		GroupVersion:          coordinationv1.SchemeGroupVersion,
		Names:                 resource.Names{Kind: "Lease", Plural: "leases"},
		UnqualifiedFinalizers: true,
		UpdateValidatesAlone:  true,
		Strategy: resource.Strategy[*coordinationv1.Lease]{
			ForbidUnconditionalUpdate: true,
			AllowCreateOnUpdate:       true,
			PrepareForCreate: func(r *resource.RequestContext, l *coordinationv1.Lease) {
				feature.Drop(r.Features, leaseFields(), &l.Spec, nil)
			},
			PrepareForUpdate: func(r *resource.RequestContext, l, old *coordinationv1.Lease) {
				feature.Drop(r.Features, leaseFields(), &l.Spec, &old.Spec)
			},
			Validate: validateLease,
			ValidateUpdate: func(r *resource.RequestContext, l, _ *coordinationv1.Lease) field.ErrorList {
				return validateLease(r, l)
			},
		},
		Table: resource.Table[*coordinationv1.Lease]{
			Columns: []metav1.TableColumnDefinition{
				resource.NameColumn(),
				resource.Column("Holder", "string", coordinationv1.LeaseSpec{}.SwaggerDoc()["holderIdentity"]),
				resource.AgeColumn(),
			},
			Row: func(l *coordinationv1.Lease, now time.Time) []any {
				return []any{l.Name, ptr.Deref(l.Spec.HolderIdentity, ""), resource.Age(l.CreationTimestamp, now)}
			},
		},
	})
}

// leaseFields are the fields of a lease that belong to coordinated leader
// election (KEP-4355).
func leaseFields() []feature.Field[coordinationv1.LeaseSpec] {
	return []feature.Field[coordinationv1.LeaseSpec]{
		{
			Gate:  feature.CoordinatedLeaderElection,
			Used:  func(s *coordinationv1.LeaseSpec) bool { return s.Strategy != nil },
			Clear: func(s *coordinationv1.LeaseSpec) { s.Strategy = nil },
		},
		{
			Gate:  feature.CoordinatedLeaderElection,
			Used:  func(s *coordinationv1.LeaseSpec) bool { return s.PreferredHolder != nil },
			Clear: func(s *coordinationv1.LeaseSpec) { s.PreferredHolder = nil },
		},
	}
}

func validateLease(_ *resource.RequestContext, l *coordinationv1.Lease) field.ErrorList {
	var errs field.ErrorList
	p := field.NewPath("spec")
	if d := l.Spec.LeaseDurationSeconds; d != nil && *d <= 0 {
		errs = append(errs, field.Invalid(p.Child("leaseDurationSeconds"), *d, "must be greater than 0"))
	}
	errs = append(errs, validators.NonnegativePointer(p.Child("leaseTransitions"), l.Spec.LeaseTransitions)...)
	if s := l.Spec.Strategy; s != nil {
		errs = append(errs, validators.LeaseStrategy(p.Child("strategy"), *s)...)
	}
	if ptr.Deref(l.Spec.PreferredHolder, "") != "" && ptr.Deref(l.Spec.Strategy, "") == "" {
		errs = append(errs, field.Forbidden(p.Child("preferredHolder"), "may only be specified if `strategy` is defined"))
	}
	return errs
}
