package dynamicresources

import (
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource/validators"
)

// maxQualifiedName is the maximum length of a domain, a slash and an
// identifier, in bytes.
const maxQualifiedName = resourcev1.DeviceMaxDomainLength + 1 + resourcev1.DeviceMaxIDLength

func validateDriverName(p *field.Path, name string) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(p, "")}
	}
	var errs field.ErrorList
	if len(name) > resourcev1.DriverNameMaxLength {
		errs = append(errs, field.TooLong(p, name, resourcev1.DriverNameMaxLength))
	}
	return append(errs, validators.Problems(p, name, utilvalidation.IsDNS1123Subdomain(strings.ToLower(name)))...)
}

// validatePoolName requires DNS subdomains, separated by slashes.
func validatePoolName(p *field.Path, name string) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(p, "")}
	}
	var errs field.ErrorList
	if len(name) > resourcev1.PoolNameMaxLength {
		errs = append(errs, field.TooLong(p, name, resourcev1.PoolNameMaxLength))
	}
	for _, part := range strings.Split(name, "/") {
		errs = append(errs, validators.Subdomain(p, part)...)
	}
	return errs
}

// validateQualifiedName requires an identifier with an optional driver name
// and slash before it. It accepts more slashes, as upstream does, because
// objects with such names exist.
func validateQualifiedName(p *field.Path, name string) field.ErrorList {
	domain, id, qualified := strings.Cut(name, "/")
	if !qualified {
		return validateIdentifier(p, name)
	}
	if strings.Contains(id, "/") {
		return nil
	}
	var errs field.ErrorList
	if domain == "" {
		errs = append(errs, field.Invalid(p, "", "the domain must not be empty"))
	} else {
		errs = append(errs, validateDriverName(p, domain)...)
	}
	if id == "" {
		return append(errs, field.Invalid(p, "", "the name must not be empty"))
	}
	return append(errs, validateIdentifier(p, id)...)
}

func validateIdentifier(p *field.Path, id string) field.ErrorList {
	var errs field.ErrorList
	if len(id) > resourcev1.DeviceMaxIDLength {
		errs = append(errs, field.TooLong(p, id, resourcev1.DeviceMaxIDLength))
	}
	return append(errs, validators.Problems(p, id, utilvalidation.IsCIdentifier(id))...)
}

func validateFullyQualifiedName(p *field.Path, name resourcev1.FullyQualifiedName) field.ErrorList {
	errs := validateQualifiedName(p, string(name))
	if !strings.Contains(string(name), "/") {
		errs = append(errs, field.Invalid(p, name, "a fully qualified name must be a domain and a name separated by a slash"))
	}
	return errs
}

// validateConditionName requires a name of the form of label keys.
func validateConditionName(p *field.Path, name *string) field.ErrorList {
	return validators.Problems(p, *name, utilvalidation.IsQualifiedName(*name))
}
