package storagemigration

import (
	"strings"

	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

func validateMigration(_ *resource.RequestContext, m *storagemigrationv1.StorageVersionMigration) field.ErrorList {
	p, name := field.NewPath("spec", "resource"), m.Spec.Resource.Resource
	var errs field.ErrorList
	if name == "" {
		errs = append(errs, field.Required(p.Child("resource"), "resource is required to be set"))
	} else if problems := utilvalidation.IsDNS1035Label(name); len(problems) > 0 {
		errs = append(errs, field.Invalid(p.Child("resource"), name, strings.Join(problems, ",")))
	}
	if group := m.Spec.Resource.Group; group != "" {
		if problems := utilvalidation.IsDNS1123Subdomain(group); len(problems) > 0 {
			errs = append(errs, field.Invalid(p.Child("group"), group, strings.Join(problems, ",")))
		}
	}
	return errs
}

// validateMigrationStatus allows a migration to end once, either in success or
// in failure, and keeps its resource version.
func validateMigrationStatus(_ *resource.RequestContext, m, old *storagemigrationv1.StorageVersionMigration) field.ErrorList {
	p, version := field.NewPath("status"), m.Status.ResourceVersion
	var errs field.ErrorList
	if _, err := resourceversion.CompareResourceVersion(version, version); version != "" && err != nil {
		errs = append(errs, field.Invalid(p.Child("resourceVersion"), version, err.Error()))
	}
	conditions := p.Child("conditions")
	errs = append(errs, metav1validation.ValidateConditions(m.Status.Conditions, conditions)...)
	if before := old.Status.ResourceVersion; before != "" && before != version {
		errs = append(errs, field.Invalid(p.Child("resourceVersion"), version, "field is immutable"))
	}
	is := func(m *storagemigrationv1.StorageVersionMigration, t storagemigrationv1.MigrationConditionType) bool {
		return meta.IsStatusConditionTrue(m.Status.Conditions, string(t))
	}
	const succeeded, failed = storagemigrationv1.MigrationSucceeded, storagemigrationv1.MigrationFailed
	for _, fault := range []struct {
		found   bool
		message string
	}{
		{is(m, succeeded) && is(m, failed), "Both success and failed conditions cannot be true at the same time"},
		{is(old, succeeded) && !is(m, succeeded), "Success condition cannot be set to false once it is true"},
		{is(old, failed) && !is(m, failed), "Failed condition cannot be set to false once it is true"},
	} {
		if fault.found {
			errs = append(errs, field.Invalid(conditions, validators.Shown(m.Status.Conditions), fault.message))
		}
	}
	return errs
}
