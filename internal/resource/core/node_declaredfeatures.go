package core

import (
	"fmt"
	"regexp"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var declaredFeature = regexp.MustCompile(`^[A-Z][a-zA-Z0-9]*(/[a-zA-Z][a-zA-Z0-9]*)*$`)

// validateDeclaredFeatures checks the features that a node declares
// (KEP-5328): sorted names of feature gates, or of parts of them.
func validateDeclaredFeatures(names []string) field.ErrorList {
	path := field.NewPath("status", "declaredFeatures")
	var errs field.ErrorList
	for i, name := range names {
		if i > 0 && name == names[i-1] {
			errs = append(errs, field.Duplicate(path.Index(i), name))
		} else if i > 0 && name < names[i-1] {
			errs = append(errs, field.Invalid(path.Index(i), name, "list must be sorted alphabetically"))
		}
		if wrong := declaredFeatureProblem(name); wrong != "" {
			errs = append(errs, field.Invalid(path.Index(i), name, fmt.Sprintf("invalid feature name %q: %s", name, wrong)))
		}
	}
	return errs
}

func declaredFeatureProblem(name string) string {
	switch {
	case len(name) > utilvalidation.DNS1123SubdomainMaxLength:
		return utilvalidation.MaxLenError(utilvalidation.DNS1123SubdomainMaxLength)
	case !declaredFeature.MatchString(name):
		return "must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes"
	}
	return ""
}
