package core

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	podresource "k8s.io/component-helpers/resource"
)

func (r *podRules) validateResources(q *corev1.ResourceRequirements, path *field.Path) field.ErrorList {
	errs := validateRequirements(q, path, validateContainerResourceName)
	seen := map[corev1.ResourceClaim]bool{}
	for i, claim := range q.Claims {
		at := path.Child("claims").Index(i)
		if claim.Name == "" {
			errs = append(errs, field.Required(at, ""))
			continue
		}
		switch {
		case seen[claim]:
			errs = append(errs, field.Duplicate(at, claim.Name))
		case claim.Request != "" && seen[corev1.ResourceClaim{Name: claim.Name}]:
			errs = append(errs, field.Duplicate(at, claim.Name))
		}
		seen[claim] = true
		if !r.claims[claim.Name] {
			errs = append(errs, field.NotFound(at, claim.Name))
		}
	}
	return errs
}

// validateRequirements checks limits and requests against each other.
func validateRequirements(q *corev1.ResourceRequirements, path *field.Path, checkName func(corev1.ResourceName, *field.Path) field.ErrorList) field.ErrorList {
	var errs field.ErrorList
	limits, requests := path.Child("limits"), path.Child("requests")
	hugePages, cpuOrMemory := false, false
	for name, limit := range q.Limits {
		at := limits.Key(string(name))
		errs = append(errs, checkName(name, at)...)
		errs = append(errs, validateResourceQuantity(string(name), limit, at)...)
		hugePages = hugePages || isHugePages(name)
		cpuOrMemory = cpuOrMemory || name == corev1.ResourceCPU || name == corev1.ResourceMemory
	}
	for name, request := range q.Requests {
		at := requests.Key(string(name))
		errs = append(errs, checkName(name, at)...)
		errs = append(errs, validateResourceQuantity(string(name), request, at)...)
		limit, limited := q.Limits[name]
		switch {
		case limited && request.Cmp(limit) != 0 && !overcommittable(name):
			errs = append(errs, field.Invalid(requests, request.String(), fmt.Sprintf("must be equal to %s limit of %s", name, limit.String())))
		case limited && request.Cmp(limit) > 0:
			errs = append(errs, field.Invalid(requests, request.String(), limitMessage(name, limit)))
		case !limited && !overcommittable(name):
			errs = append(errs, field.Required(limits, "Limit must be set for non overcommitable resources"))
		}
		hugePages = hugePages || isHugePages(name)
		cpuOrMemory = cpuOrMemory || name == corev1.ResourceCPU || name == corev1.ResourceMemory
	}
	if hugePages && !cpuOrMemory {
		errs = append(errs, field.Forbidden(path, "HugePages require cpu or memory"))
	}
	return errs
}

// validatePodLevelResources checks resources of the pod as a whole, which
// must be enough for its containers.
func validatePodLevelResources(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	q := spec.Resources
	var errs field.ErrorList
	if len(q.Claims) > 0 {
		errs = append(errs, field.Forbidden(path.Child("claims"), "claims cannot be set for Resources at pod-level"))
	}
	errs = append(errs, validateRequirements(q, path, func(name corev1.ResourceName, path *field.Path) field.ErrorList {
		errs := validateContainerResourceName(name, path)
		if len(errs) == 0 && !podresource.IsSupportedPodLevelResource(name) {
			errs = append(errs, field.NotSupported(path, name, podresource.SupportedPodLevelResources().UnsortedList()))
		}
		return errs
	})...)
	pod := &corev1.Pod{Spec: *spec}
	for name, total := range podresource.AggregateContainerRequests(pod, podresource.PodResourcesOptions{}) {
		if request, ok := q.Requests[name]; ok && podresource.IsSupportedPodLevelResource(name) && total.Cmp(request) > 0 {
			errs = append(errs, field.Invalid(path.Child("requests").Key(string(name)), request.String(),
				fmt.Sprintf("must be greater than or equal to aggregate container requests of %s", total.String())))
		}
	}
	for i := range spec.Containers {
		for name, limit := range spec.Containers[i].Resources.Limits {
			if most, ok := q.Limits[name]; ok && limit.Cmp(most) > 0 {
				errs = append(errs, field.Invalid(
					field.NewPath("spec", "containers").Index(i).Child("resources", "limits"), limit.String(),
					fmt.Sprintf("must be less than or equal to pod limits of %s", most.String())))
			}
		}
	}
	return errs
}

var resizeResources = map[corev1.ResourceName]bool{corev1.ResourceCPU: true, corev1.ResourceMemory: true}

func (r *podRules) validateResizePolicy(c *corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[corev1.ResourceName]bool{}
	for i, p := range c.ResizePolicy {
		at := path.Index(i)
		if seen[p.ResourceName] {
			errs = append(errs, field.Duplicate(at, p.ResourceName))
		}
		seen[p.ResourceName] = true
		switch {
		case resizeResources[p.ResourceName]:
		case p.ResourceName == "":
			errs = append(errs, field.Required(path, ""))
		default:
			errs = append(errs, field.NotSupported(path, p.ResourceName, []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}))
		}
		switch p.RestartPolicy {
		case corev1.NotRequired, corev1.RestartContainer:
		case "":
			errs = append(errs, field.Required(path, ""))
		default:
			errs = append(errs, field.NotSupported(path, p.RestartPolicy, []corev1.ResourceResizeRestartPolicy{corev1.NotRequired, corev1.RestartContainer}))
		}
		if r.spec.RestartPolicy == corev1.RestartPolicyNever && p.RestartPolicy == corev1.RestartContainer {
			errs = append(errs, field.Invalid(path, p.RestartPolicy, "must be 'NotRequired' when `restartPolicy` is 'Never'"))
		}
	}
	return errs
}

// validateResourceClaims checks the claims on devices and remembers their
// names for the containers.
func (r *podRules) validateResourceClaims(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	r.claims = map[string]bool{}
	for i := range r.spec.ResourceClaims {
		claim, at := &r.spec.ResourceClaims[i], path.Index(i)
		switch claim.Name {
		case "":
			errs = append(errs, field.Required(at.Child("name"), ""))
		default:
			errs = append(errs, invalid(at.Child("name"), claim.Name, utilvalidation.IsDNS1123Label(claim.Name))...)
			if r.claims[claim.Name] {
				errs = append(errs, field.Duplicate(at.Child("name"), claim.Name))
			}
			r.claims[claim.Name] = true
		}
		if claim.ResourceClaimName != nil && claim.ResourceClaimTemplateName != nil {
			errs = append(errs, field.Invalid(at, shown(*claim), "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"))
		}
		if claim.ResourceClaimName == nil && claim.ResourceClaimTemplateName == nil {
			errs = append(errs, field.Invalid(at, shown(*claim), "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"))
		}
		if name := claim.ResourceClaimName; name != nil {
			errs = append(errs, invalid(at.Child("resourceClaimName"), *name, validation.NameIsDNSSubdomain(*name, false))...)
		}
		if name := claim.ResourceClaimTemplateName; name != nil {
			errs = append(errs, invalid(at.Child("resourceClaimTemplateName"), *name, validation.NameIsDNSSubdomain(*name, false))...)
		}
	}
	return errs
}
