package coordination

import (
	"time"

	"github.com/blang/semver/v4"
	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
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
			// The names are identities of processes, which have underscores.
			ValidateName: func(name string, _ bool) []string { return utilvalidation.IsConfigMapKey(name) },
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
	errs := validators.Required(p.Child("leaseName"), s.LeaseName)
	emulated, problems := parseVersion(p.Child("emulationVersion"), s.EmulationVersion)
	errs = append(errs, problems...)
	errs = append(errs, validators.Required(p.Child("binaryVersion"), s.BinaryVersion)...)
	binary, problems := parseVersion(p.Child("binaryVersion"), s.BinaryVersion)
	errs = append(errs, problems...)
	if s.BinaryVersion != "" && s.EmulationVersion != "" && binary.LT(emulated) {
		errs = append(errs, field.Invalid(p.Child("binaryVersion"), s.BinaryVersion, "must be greater than or equal to `emulationVersion`"))
	}
	if s.Strategy == "" {
		return append(errs, field.Required(p.Child("strategy"), ""))
	}
	if s.Strategy == coordinationv1.OldestEmulationVersion && emulated.EQ(semver.Version{}) {
		errs = append(errs, field.Required(p.Child("emulationVersion"), "must be specified when `strategy` is 'OldestEmulationVersion'"))
	}
	return append(errs, validators.LeaseStrategy(p.Child("strategy"), s.Strategy)...)
}

// parseVersion returns the zero version if there is none, or an invalid one.
func parseVersion(p *field.Path, text string) (semver.Version, field.ErrorList) {
	if text == "" {
		return semver.Version{}, nil
	}
	v, err := semver.Parse(text)
	if err != nil {
		return semver.Version{}, field.ErrorList{field.Invalid(p, text, "must be a valid semantic version")}
	}
	return v, nil
}
