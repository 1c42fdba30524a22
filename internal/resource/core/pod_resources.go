package core

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	podresource "k8s.io/component-helpers/resource"
)

func (r *podRules) validateResources(q *corev1.ResourceRequirements, path *field.Path) field.ErrorList {
	errs := r.validateRequirements(q, path, validateContainerResourceName)
	seen := map[string]bool{}
	for i, claim := range q.Claims {
		at := path.Child("claims").Index(i)
		if claim.Name == "" {
			errs = append(errs, field.Required(at, ""))
			continue
		}
		key := claim.Name
		if claim.Request != "" {
			errs = append(errs, invalid(at.Child("request"), claim.Request, utilvalidation.IsDNS1123Label(claim.Request))...)
			key += "/" + claim.Request
		}
		if seen[key] || seen[claim.Name] {
			errs = append(errs, field.Duplicate(at, key))
		}
		seen[key] = true
		if !r.claims[claim.Name] {
			errs = append(errs, r.unknownClaim(claim.Name, at))
		}
	}
	return errs
}

// unknownClaim tells which claims a container could name instead.
func (r *podRules) unknownClaim(name string, at *field.Path) *field.Error {
	if r.claimsTold == "" { // once: there may be as many claims as containers that name others
		r.claimsTold = "must be one of the names in pod.spec.resourceClaims which is empty"
		if len(r.claims) > 0 {
			r.claimsTold = "must be one of the names in pod.spec.resourceClaims: " + strings.Join(slices.Sorted(maps.Keys(r.claims)), ", ")
		}
	}
	err := field.NotFound(at, name)
	err.Detail = r.claimsTold
	return err
}

// validateRequirements checks limits and requests against each other.
func (r *podRules) validateRequirements(q *corev1.ResourceRequirements, path *field.Path, checkName func(corev1.ResourceName, *field.Path) field.ErrorList) field.ErrorList {
	var errs field.ErrorList
	limits, requests := path.Child("limits"), path.Child("requests")
	hugePages, cpuOrMemory := false, false
	for name, limit := range q.Limits {
		at := limits.Key(string(name))
		errs = append(errs, checkName(name, at)...)
		errs = append(errs, validateResourceQuantity(string(name), limit, at)...)
		errs = append(errs, r.validateWholePages(name, limit, at)...)
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
		errs = append(errs, r.validateWholePages(name, request, at)...)
		hugePages = hugePages || isHugePages(name)
		cpuOrMemory = cpuOrMemory || name == corev1.ResourceCPU || name == corev1.ResourceMemory
	}
	if hugePages && !cpuOrMemory {
		errs = append(errs, field.Forbidden(path, "HugePages require cpu or memory"))
	}
	return errs
}

// validateWholePages: huge pages come in pages of the size that their name
// tells.
func (r *podRules) validateWholePages(name corev1.ResourceName, quantity resource.Quantity, at *field.Path) field.ErrorList {
	if !isHugePages(name) || r.BrokenHugePages || wholePages(name, quantity) {
		return nil
	}
	return field.ErrorList{field.Invalid(at, quantity.String(),
		fmt.Sprintf("%s is not positive integer multiple of %s", quantity.String(), name))}
}

func wholePages(name corev1.ResourceName, quantity resource.Quantity) bool {
	page, err := resource.ParseQuantity(strings.TrimPrefix(string(name), corev1.ResourceHugePagesPrefix))
	return err == nil && page.Sign() > 0 && page.MilliValue()%1000 == 0 && quantity.Value()%page.Value() == 0
}

// validatePodLevelResources checks resources of the pod as a whole, which
// must be enough for its containers.
func (r *podRules) validatePodLevelResources(path *field.Path) field.ErrorList {
	spec, q := r.spec, r.spec.Resources
	if spec.OS != nil && spec.OS.Name == corev1.Windows {
		return field.ErrorList{field.Forbidden(path, "may not be set for a windows pod")}
	}
	var errs field.ErrorList
	if len(q.Claims) > 0 {
		errs = append(errs, field.Forbidden(path.Child("claims"), "claims cannot be set for Resources at pod-level"))
	}
	errs = append(errs, r.validateRequirements(q, path, func(name corev1.ResourceName, path *field.Path) field.ErrorList {
		errs := validateResourceName(name, path)
		if len(errs) == 0 && !podresource.IsSupportedPodLevelResource(name) {
			errs = append(errs, field.NotSupported(path, name, sets.List(podresource.SupportedPodLevelResources())))
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
	for name, total := range podresource.AggregateContainerLimits(pod, podresource.PodResourcesOptions{}) {
		if limit, ok := q.Limits[name]; ok && isHugePages(name) && total.Cmp(limit) > 0 {
			errs = append(errs, field.Invalid(path.Child("limits").Key(string(name)), limit.String(),
				fmt.Sprintf("must be greater than or equal to aggregate container limits of %s", total.String())))
		}
	}
	for i := range spec.Containers {
		for name, limit := range spec.Containers[i].Resources.Limits {
			if most, ok := q.Limits[name]; ok && limit.Cmp(most) > 0 {
				errs = append(errs, field.Invalid(path.Child("containers").Index(i).Key(string(name)).Child("limits"), limit.String(),
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
		if r.spec.RestartPolicy == corev1.RestartPolicyNever && p.RestartPolicy != corev1.NotRequired {
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
		errs = append(errs, r.validateResourceClaimName(claim, at.Child("name"))...)
		if claim.Name != "" {
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

// validateResourceClaimName checks a name that no claim before had, and the
// name of the object that is made for it.
func (r *podRules) validateResourceClaimName(claim *corev1.PodResourceClaim, at *field.Path) field.ErrorList {
	switch {
	case claim.Name == "":
		return field.ErrorList{field.Required(at, "")}
	case r.claims[claim.Name]:
		return field.ErrorList{field.Duplicate(at, claim.Name)}
	}
	errs := invalid(at, claim.Name, utilvalidation.IsDNS1123Label(claim.Name))
	if len(errs) == 0 && r.metadata != nil && claim.ResourceClaimTemplateName != nil {
		object := r.metadata.Name + "-" + claim.Name
		for _, msg := range nameIsDNSSubdomain(object) {
			errs = append(errs, field.Invalid(at, object, "final ResourceClaim name: "+msg))
		}
	}
	return errs
}
