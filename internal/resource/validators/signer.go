package validators

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// MinCertificateSeconds is the shortest lifetime that a pod can ask for its
// certificate.
const MinCertificateSeconds = 60 * 60

// MaxCertificateSeconds returns the longest lifetime that a pod can ask a signer for.
// The signers of Kubernetes have a lower limit.
func MaxCertificateSeconds(signer string) int32 {
	const day = 24 * 60 * 60
	domain, _, _ := strings.Cut(signer, "/")
	if domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io") {
		return day
	}
	return 91 * day
}

// SignerName requires the form domain/path, with at least two labels
// in the domain.
func SignerName(p *field.Path, name string) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(p, "")}
	}
	segments := strings.Split(name, "/")
	if len(segments) != 2 {
		return field.ErrorList{field.Invalid(p, name, "must be a fully qualified domain and path of the form 'example.com/signer-name'")}
	}
	var errs field.ErrorList
	domain, path := segments[0], segments[1]
	for _, problem := range utilvalidation.IsDNS1123Subdomain(domain) {
		errs = append(errs, field.Invalid(p, domain, fmt.Sprintf("validating label %q: %s", domain, problem)))
	}
	if len(strings.Split(domain, ".")) < 2 {
		errs = append(errs, field.Invalid(p, domain, "should be a domain with at least two segments separated by dots"))
	}
	for _, label := range strings.Split(path, ".") {
		for _, problem := range utilvalidation.IsDNS1123Label(label) {
			errs = append(errs, field.Invalid(p, path, fmt.Sprintf("validating label %q: %s", label, problem)))
		}
	}
	const longest = utilvalidation.DNS1123SubdomainMaxLength + utilvalidation.DNS1123LabelMaxLength + 1
	if len(name) > longest {
		errs = append(errs, field.TooLong(p, name, longest))
	}
	return errs
}

// UserAnnotations checks what the author of a pod tells the signer of its
// certificates: annotations whose keys have a domain.
func UserAnnotations(p *field.Path, annotations map[string]string) field.ErrorList {
	errs := validation.ValidateAnnotations(annotations, p)
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		errs = append(errs, utilvalidation.IsDomainPrefixedKey(p.Key(key), key)...)
	}
	return errs
}
