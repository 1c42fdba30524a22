package coordination

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/rule"
)

// Leases is the resource leases.
func Leases() *resource.Resource {
	return resource.Define(resource.Definition[coordinationv1.Lease, *coordinationv1.Lease]{
		GroupVersion:              coordinationv1.SchemeGroupVersion,
		Kind:                      "Lease",
		Plural:                    "leases",
		UnqualifiedFinalizers:     true,
		ForbidUnconditionalUpdate: true,
		AllowCreateOnUpdate:       true,
		PrepareForCreate: func(r *resource.Request, l *coordinationv1.Lease) {
			feature.Drop(r.Features, leaseFields, &l.Spec, nil)
		},
		PrepareForUpdate: func(r *resource.Request, l, old *coordinationv1.Lease) {
			feature.Drop(r.Features, leaseFields, &l.Spec, &old.Spec)
		},
		Validate:             validateLease,
		UpdateValidatesAlone: true,
		ValidateUpdate:       func(r *resource.Request, l, _ *coordinationv1.Lease) field.ErrorList { return validateLease(r, l) },
		Columns: []metav1.TableColumnDefinition{
			resource.NameColumn(),
			resource.Column("Holder", "string", coordinationv1.LeaseSpec{}.SwaggerDoc()["holderIdentity"]),
			resource.AgeColumn(),
		},
		Row: func(l *coordinationv1.Lease, now time.Time) []any {
			return []any{l.Name, ptr.Deref(l.Spec.HolderIdentity, ""), resource.Age(l.CreationTimestamp, now)}
		},
	})
}

// leaseFields are the parts of a lease that belong to elections which the
// control plane decides (KEP-4355).
var leaseFields = []feature.Field[coordinationv1.LeaseSpec]{
	{
		Gate:  "CoordinatedLeaderElection",
		Used:  func(s *coordinationv1.LeaseSpec) bool { return s.Strategy != nil },
		Clear: func(s *coordinationv1.LeaseSpec) { s.Strategy = nil },
	},
	{
		Gate:  "CoordinatedLeaderElection",
		Used:  func(s *coordinationv1.LeaseSpec) bool { return s.PreferredHolder != nil },
		Clear: func(s *coordinationv1.LeaseSpec) { s.PreferredHolder = nil },
	},
}

func validateLease(_ *resource.Request, l *coordinationv1.Lease) field.ErrorList {
	var errs field.ErrorList
	p := field.NewPath("spec")
	if d := l.Spec.LeaseDurationSeconds; d != nil && *d <= 0 {
		errs = append(errs, field.Invalid(p.Child("leaseDurationSeconds"), *d, "must be greater than 0"))
	}
	if s := l.Spec.Strategy; s != nil {
		errs = append(errs, rule.LeaseStrategy(p.Child("strategy"), *s)...)
	}
	if ptr.Deref(l.Spec.PreferredHolder, "") != "" && ptr.Deref(l.Spec.Strategy, "") == "" {
		errs = append(errs, field.Forbidden(p.Child("preferredHolder"), "may only be specified when `strategy` is defined"))
	}
	return append(errs, rule.NonnegativePointer(p.Child("leaseTransitions"), l.Spec.LeaseTransitions)...)
}
