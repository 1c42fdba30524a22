package coordination

import (
	"time"

	"github.com/blang/semver/v4"
	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// LeaseCandidates is the resource leasecandidates (KEP-4355), which is not
// served by default.
func LeaseCandidates() *resource.Resource {
	return resource.Define(resource.Definition[coordinationv1beta1.LeaseCandidate, *coordinationv1beta1.LeaseCandidate]{
		GroupVersion:          coordinationv1beta1.SchemeGroupVersion,
		Names:                 resource.Names{Kind: "LeaseCandidate", Plural: "leasecandidates"},
		UnqualifiedFinalizers: true,
		Strategy: resource.Strategy[*coordinationv1beta1.LeaseCandidate]{
			ForbidUnconditionalUpdate: true,
			AllowCreateOnUpdate:       true,
			Validate: func(_ *resource.RequestContext, c *coordinationv1beta1.LeaseCandidate) field.ErrorList {
				return validateCandidate(field.NewPath("spec"), &c.Spec)
			},
			ValidateUpdate: func(_ *resource.RequestContext, c, old *coordinationv1beta1.LeaseCandidate) field.ErrorList {
				return validation.ValidateImmutableField(c.Spec.LeaseName, old.Spec.LeaseName, field.NewPath("spec", "leaseName"))
			},
		},
		Table: resource.Table[*coordinationv1beta1.LeaseCandidate]{
			Columns: []metav1.TableColumnDefinition{
				resource.NameColumn(),
				resource.Column("LeaseName", "string", coordinationv1beta1.LeaseCandidateSpec{}.SwaggerDoc()["leaseName"]),
				resource.Column("BinaryVersion", "string", coordinationv1beta1.LeaseCandidateSpec{}.SwaggerDoc()["binaryVersion"]),
				resource.Column("EmulationVersion", "string", coordinationv1beta1.LeaseCandidateSpec{}.SwaggerDoc()["emulationVersion"]),
				resource.Column("Strategy", "string", coordinationv1beta1.LeaseCandidateSpec{}.SwaggerDoc()["strategy"]),
				resource.AgeColumn(),
			},
			Row: func(c *coordinationv1beta1.LeaseCandidate, now time.Time) []any {
				return []any{c.Name, c.Spec.LeaseName, c.Spec.BinaryVersion, c.Spec.EmulationVersion, string(c.Spec.Strategy), resource.Age(c.CreationTimestamp, now)}
			},
		},
	})
}

func validateCandidate(p *field.Path, s *coordinationv1beta1.LeaseCandidateSpec) field.ErrorList {
	var errs field.ErrorList
	if s.LeaseName == "" {
		errs = append(errs, field.Required(p.Child("leaseName"), ""))
	} else {
		errs = append(errs, validators.Problems(p.Child("leaseName"), s.LeaseName, validation.NameIsDNSSubdomain(s.LeaseName, false))...)
	}
	binary := parseVersion(p.Child("binaryVersion"), s.BinaryVersion, &errs)
	switch {
	case s.EmulationVersion != "":
		emulated := parseVersion(p.Child("emulationVersion"), s.EmulationVersion, &errs)
		if binary != nil && emulated != nil && binary.LT(*emulated) {
			errs = append(errs, field.Invalid(p.Child("binaryVersion"), s.BinaryVersion, "must be greater than or equal to `emulationVersion`"))
		}
	case s.Strategy == coordinationv1.OldestEmulationVersion:
		errs = append(errs, field.Required(p.Child("emulationVersion"), "must be specified when `strategy` is 'OldestEmulationVersion'"))
	}
	if s.Strategy == "" {
		return append(errs, field.Required(p.Child("strategy"), ""))
	}
	return append(errs, validators.LeaseStrategy(p.Child("strategy"), s.Strategy)...)
}

func parseVersion(p *field.Path, text string, errs *field.ErrorList) *semver.Version {
	v, err := semver.Parse(text)
	if err != nil {
		*errs = append(*errs, field.Invalid(p, text, err.Error()))
		return nil
	}
	return &v
}
