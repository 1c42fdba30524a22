package apiserverinternal

import (
	"fmt"
	"slices"
	"strings"

	internalv1alpha1 "k8s.io/api/apiserverinternal/v1alpha1"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource/validators"
)

// validateName requires <group>.<resource>.
func validateName(name string, _ bool) []string {
	dot := strings.LastIndex(name, ".")
	if dot < 0 {
		return []string{"name must be in the form of <group>.<resource>"}
	}
	var problems []string
	for _, problem := range utilvalidation.IsDNS1123Subdomain(name[:dot]) {
		problems = append(problems, "the group segment "+problem)
	}
	for _, problem := range utilvalidation.IsDNS1035Label(name[dot+1:]) {
		problems = append(problems, "the resource segment "+problem)
	}
	return problems
}

func validateStatus(p *field.Path, s *internalv1alpha1.StorageVersionStatus) field.ErrorList {
	var errs field.ErrorList
	servers := map[string]bool{}
	for i := range s.StorageVersions {
		v, at := &s.StorageVersions[i], p.Child("storageVersions").Index(i)
		if servers[v.APIServerID] {
			errs = append(errs, field.Duplicate(at.Child("apiServerID"), v.APIServerID))
		}
		servers[v.APIServerID] = true
		errs = append(errs, validateServer(at, v)...)
	}
	errs = append(errs, validateCommon(p.Child("commonEncodingVersion"), s)...)
	return append(errs, validateConditions(p.Child("conditions"), s.Conditions)...)
}

func validateServer(p *field.Path, v *internalv1alpha1.ServerStorageVersion) field.ErrorList {
	errs := validators.Problems(p.Child("apiServerID"), v.APIServerID, validation.NameIsDNSSubdomain(v.APIServerID, false))
	errs = append(errs, validators.Problems(p.Child("encodingVersion"), v.EncodingVersion, versionProblems(v.EncodingVersion))...)
	for i, version := range v.DecodableVersions {
		errs = append(errs, validators.Problems(p.Child("decodableVersions").Index(i), version, versionProblems(version))...)
	}
	if !slices.Contains(v.DecodableVersions, v.EncodingVersion) {
		errs = append(errs, field.Invalid(p.Child("decodableVersions"), v.DecodableVersions,
			"decodableVersions must include encodingVersion "+v.EncodingVersion))
	}
	for i, version := range v.ServedVersions {
		at := p.Child("servedVersions").Index(i)
		errs = append(errs, validators.Problems(at, version, versionProblems(version))...)
		if !slices.Contains(v.DecodableVersions, version) {
			errs = append(errs, field.Invalid(at, version,
				fmt.Sprintf("individual served version : %s must be included in decodableVersions : %s", version, v.DecodableVersions)))
		}
	}
	return errs
}

// versionProblems checks a version with an optional group and slash before it.
func versionProblems(apiVersion string) []string {
	group, version, grouped := strings.Cut(apiVersion, "/")
	if !grouped {
		group, version = "", apiVersion
	}
	if strings.Contains(version, "/") {
		return []string{"an apiVersion is a DNS-1035 label with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyVersion')"}
	}
	var problems []string
	if grouped {
		for _, problem := range utilvalidation.IsDNS1123Subdomain(group) {
			problems = append(problems, "group part: "+problem)
		}
	}
	for _, problem := range utilvalidation.IsDNS1035Label(version) {
		problems = append(problems, "version part: "+problem)
	}
	return problems
}

// validateCommon checks commonEncodingVersion: the version that all servers
// write, or unset if they differ.
func validateCommon(p *field.Path, s *internalv1alpha1.StorageVersionStatus) field.ErrorList {
	var common *string
	for i := range s.StorageVersions {
		written := &s.StorageVersions[i].EncodingVersion
		if common != nil && *common != *written {
			common = nil
			break
		}
		common = written
	}
	given := s.CommonEncodingVersion
	switch {
	case given == nil && common != nil:
		return field.ErrorList{field.Invalid(p, given, "the common encoding version is "+*common)}
	case given != nil && common == nil:
		return field.ErrorList{field.Invalid(p, *given, "should be nil if servers do not agree on the same encoding version, or if there is no server reporting the supported versions yet")}
	case given != nil && *given != *common:
		return field.ErrorList{field.Invalid(p, *given, "the actual common encoding version is "+*common)}
	}
	return nil
}

func validateConditions(p *field.Path, conditions []internalv1alpha1.StorageVersionCondition) field.ErrorList {
	var errs field.ErrorList
	first := map[internalv1alpha1.StorageVersionConditionType]int{}
	for i := range conditions {
		c, at := &conditions[i], p.Index(i)
		if k, found := first[c.Type]; found {
			errs = append(errs, field.Invalid(at.Child("type"), string(c.Type),
				fmt.Sprintf("the type of the condition is not unique, it also appears in conditions[%d]", k)))
		}
		first[c.Type] = i
		errs = append(errs, validators.Problems(at.Child("type"), string(c.Type), utilvalidation.IsQualifiedName(string(c.Type)))...)
		errs = append(errs, validators.Problems(at.Child("status"), string(c.Status), utilvalidation.IsQualifiedName(string(c.Status)))...)
		if c.Reason == "" {
			errs = append(errs, field.Required(at.Child("reason"), "reason cannot be empty"))
		}
		if c.Message == "" {
			errs = append(errs, field.Required(at.Child("message"), "message cannot be empty"))
		}
	}
	return errs
}
