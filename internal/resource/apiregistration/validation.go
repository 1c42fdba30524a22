package apiregistration

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// The upper limits of priorities. The lower limit is 1.
const (
	maxGroupPriority   = 20000
	maxVersionPriority = 1000
)

// setLocalAvailable sets the condition Available of an APIService without a
// backend, which this server serves itself.
func setLocalAvailable(r *resource.RequestContext, s *apiregistrationv1.APIService) {
	if s.Spec.Service != nil {
		return
	}
	for i := range s.Status.Conditions {
		if s.Status.Conditions[i].Type == apiregistrationv1.Available {
			return
		}
	}
	s.Status.Conditions = append(s.Status.Conditions, apiregistrationv1.APIServiceCondition{
		Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionTrue,
		Reason: "Local", Message: "Local APIServices are always available", LastTransitionTime: metav1.NewTime(r.Now),
	})
}

func validateAPIService(_ *resource.RequestContext, s *apiregistrationv1.APIService) field.ErrorList {
	p, spec := field.NewPath("spec"), &s.Spec
	var errs field.ErrorList
	if name := spec.Version + "." + spec.Group; s.Name != "" && len(content.IsPathSegmentName(s.Name)) == 0 && s.Name != name {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), s.Name, fmt.Sprintf("must be `spec.version+\".\"+spec.group`: %q", name)))
	}
	switch {
	case spec.Group != "":
		errs = append(errs, validators.Subdomain(p.Child("group"), spec.Group)...)
	case spec.Version != "v1":
		errs = append(errs, field.Required(p.Child("group"), "only v1 may have an empty group and it better be legacy kube"))
	}
	errs = append(errs, validators.Problems(p.Child("version"), spec.Version, utilvalidation.IsDNS1035Label(spec.Version))...)
	if n := spec.GroupPriorityMinimum; n <= 0 || n > maxGroupPriority {
		errs = append(errs, field.Invalid(p.Child("groupPriorityMinimum"), n, "must be positive and less than 20000"))
	}
	if n := spec.VersionPriority; n <= 0 || n > maxVersionPriority {
		errs = append(errs, field.Invalid(p.Child("versionPriority"), n, "must be positive and less than 1000"))
	}
	if spec.Service == nil {
		return append(errs, validateLocal(p, spec)...)
	}
	at := p.Child("service")
	if spec.Service.Namespace == "" {
		errs = append(errs, field.Required(at.Child("namespace"), ""))
	}
	if spec.Service.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), ""))
	}
	port := ptr.Deref(spec.Service.Port, 0)
	if problems := utilvalidation.IsValidPortNum(int(port)); len(problems) > 0 {
		errs = append(errs, field.Invalid(at.Child("port"), port, "port is not valid: "+strings.Join(problems, ", ")))
	}
	if spec.InsecureSkipTLSVerify && len(spec.CABundle) > 0 {
		errs = append(errs, field.Invalid(p.Child("insecureSkipTLSVerify"), true, "may not be true if caBundle is present"))
	}
	return errs
}

func validateLocal(p *field.Path, spec *apiregistrationv1.APIServiceSpec) field.ErrorList {
	var errs field.ErrorList
	if len(spec.CABundle) > 0 {
		errs = append(errs, field.Invalid(p.Child("caBundle"), fmt.Sprintf("%d bytes", len(spec.CABundle)), "local APIServices may not have a caBundle"))
	}
	if spec.InsecureSkipTLSVerify {
		errs = append(errs, field.Invalid(p.Child("insecureSkipTLSVerify"), true, "local APIServices may not have insecureSkipTLSVerify"))
	}
	return errs
}

func validateAPIServiceStatus(_ *resource.RequestContext, s, _ *apiregistrationv1.APIService) field.ErrorList {
	var errs field.ErrorList
	for i, c := range s.Status.Conditions {
		errs = append(errs, validators.OneOf(field.NewPath("status", "conditions").Index(i).Child("status"), c.Status,
			apiregistrationv1.ConditionTrue, apiregistrationv1.ConditionFalse, apiregistrationv1.ConditionUnknown)...)
	}
	return errs
}
