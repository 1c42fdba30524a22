package pod

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	podresource "k8s.io/component-helpers/resource"

	"github.com/coracle-io/coracle/internal/amount"
	"github.com/coracle-io/coracle/internal/resource/core/resourcelist"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// resourceRules checks the compute resources of a pod and its containers.
type resourceRules struct {
	*specContext
	claims     map[string]bool // the names in spec.resourceClaims
	claimNames string          // their list in errors, built on first use
}

func (r *resourceRules) validateResources(q *corev1.ResourceRequirements, path *field.Path) field.ErrorList {
	errs := r.validateRequirements(q, path, resourcelist.ValidateContainerName)
	seen, partly := map[string]bool{}, map[string]bool{} // claims and their requests, and claims of which a request was seen
	for i, claim := range q.Claims {
		at, key := path.Child("claims").Index(i), claim.Name+"/"+claim.Request
		switch {
		case claim.Name == "":
			errs = append(errs, field.Required(at, ""))
			continue
		case seen[claim.Name], claim.Request == "" && partly[claim.Name]:
			errs = append(errs, field.Duplicate(at, claim.Name))
		case claim.Request == "":
			seen[claim.Name] = true
		default:
			errs = append(errs, validators.Label(at.Child("request"), claim.Request)...)
			if seen[key] {
				errs = append(errs, field.Duplicate(at, key))
			}
			seen[key], partly[claim.Name] = true, true
		}
		if !r.claims[claim.Name] {
			errs = append(errs, r.unknownClaim(claim.Name, at))
		}
	}
	return errs
}

// unknownClaim returns the error for a container that names an unknown claim.
// It lists the known ones.
func (r *resourceRules) unknownClaim(name string, at *field.Path) *field.Error {
	if r.claimNames == "" { // built once, because a pod can have many claims and many such containers
		r.claimNames = "must be one of the names in pod.spec.resourceClaims which is empty"
		if len(r.claims) > 0 {
			r.claimNames = "must be one of the names in pod.spec.resourceClaims: " + strings.Join(slices.Sorted(maps.Keys(r.claims)), ", ")
		}
	}
	err := field.NotFound(at, name)
	err.Detail = r.claimNames
	return err
}

// validateRequirements checks limits and requests against each other.
func (r *resourceRules) validateRequirements(q *corev1.ResourceRequirements, path *field.Path, checkName func(corev1.ResourceName, *field.Path) field.ErrorList) field.ErrorList {
	var errs field.ErrorList
	limits, requests := path.Child("limits"), path.Child("requests")
	hugePages, cpuOrMemory := false, false
	for name, limit := range q.Limits {
		at := limits.Key(string(name))
		errs = append(errs, checkName(name, at)...)
		errs = append(errs, resourcelist.ValidateQuantity(string(name), limit, at)...)
		errs = append(errs, r.validateWholePages(name, limit, at)...)
		hugePages = hugePages || resourcelist.IsHugePages(name)
		cpuOrMemory = cpuOrMemory || name == corev1.ResourceCPU || name == corev1.ResourceMemory
	}
	for name, request := range q.Requests {
		at := requests.Key(string(name))
		errs = append(errs, checkName(name, at)...)
		errs = append(errs, resourcelist.ValidateQuantity(string(name), request, at)...)
		limit, limited := q.Limits[name]
		switch {
		case limited && request.Cmp(limit) != 0 && !resourcelist.IsOvercommittable(name):
			errs = append(errs, field.Invalid(requests, request.String(), fmt.Sprintf("must be equal to %s limit of %s", name, limit.String())))
		case limited && request.Cmp(limit) > 0:
			errs = append(errs, field.Invalid(requests, request.String(), resourcelist.LimitMessage(name, limit)))
		case !limited && !resourcelist.IsOvercommittable(name):
			errs = append(errs, field.Required(limits, "Limit must be set for non overcommitable resources"))
		}
		errs = append(errs, r.validateWholePages(name, request, at)...)
		hugePages = hugePages || resourcelist.IsHugePages(name)
		cpuOrMemory = cpuOrMemory || name == corev1.ResourceCPU || name == corev1.ResourceMemory
	}
	if hugePages && !cpuOrMemory {
		errs = append(errs, field.Forbidden(path, "HugePages require cpu or memory"))
	}
	return errs
}

// validateWholePages checks that an amount of huge pages is a multiple of the
// page size in the name.
func (r *resourceRules) validateWholePages(name corev1.ResourceName, quantity resource.Quantity, at *field.Path) field.ErrorList {
	if !resourcelist.IsHugePages(name) || r.BrokenHugePages || wholePages(name, quantity) {
		return nil
	}
	return field.ErrorList{field.Invalid(at, quantity.String(),
		fmt.Sprintf("%s is not positive integer multiple of %s", quantity.String(), name))}
}

func wholePages(name corev1.ResourceName, quantity resource.Quantity) bool {
	page, err := amount.Parse(strings.TrimPrefix(string(name), corev1.ResourceHugePagesPrefix))
	return err == nil && page.Sign() > 0 && amount.Milli(page)%1000 == 0 && quantity.Value()%amount.Value(page) == 0
}

// validatePodLevelResources checks the resources of the pod as a whole, which
// must suffice for its containers.
func (r *resourceRules) validatePodLevelResources(path *field.Path) field.ErrorList {
	spec, q := r.spec, r.spec.Resources
	if spec.OS != nil && spec.OS.Name == corev1.Windows {
		return field.ErrorList{field.Forbidden(path, "may not be set for a windows pod")}
	}
	var errs field.ErrorList
	if len(q.Claims) > 0 {
		errs = append(errs, field.Forbidden(path.Child("claims"), "claims cannot be set for Resources at pod-level"))
	}
	errs = append(errs, r.validateRequirements(q, path, func(name corev1.ResourceName, path *field.Path) field.ErrorList {
		errs := resourcelist.ValidateName(name, path)
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
		if limit, ok := q.Limits[name]; ok && resourcelist.IsHugePages(name) && total.Cmp(limit) > 0 {
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

// resizeResources are the resources of a container that can change while it
// runs.
func resizeResources() []corev1.ResourceName {
	return []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}
}

func (r *resourceRules) validateResizePolicy(c *corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[corev1.ResourceName]bool{}
	for i, p := range c.ResizePolicy {
		at := path.Index(i)
		if seen[p.ResourceName] {
			errs = append(errs, field.Duplicate(at, p.ResourceName))
		}
		seen[p.ResourceName] = true
		switch {
		case slices.Contains(resizeResources(), p.ResourceName):
		case p.ResourceName == "":
			errs = append(errs, field.Required(path, ""))
		default:
			errs = append(errs, field.NotSupported(path, p.ResourceName, resizeResources()))
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

// validateResourceClaims checks the pod's resource claims and collects their
// names for the containers.
func (r *resourceRules) validateResourceClaims(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	r.claims = map[string]bool{}
	for i := range r.spec.ResourceClaims {
		claim, at := &r.spec.ResourceClaims[i], path.Index(i)
		errs = append(errs, r.validateResourceClaimName(claim, at.Child("name"))...)
		if claim.Name != "" {
			r.claims[claim.Name] = true
		}
		if claim.ResourceClaimName != nil && claim.ResourceClaimTemplateName != nil {
			errs = append(errs, field.Invalid(at, validators.BadValue(*claim), "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"))
		}
		if claim.ResourceClaimName == nil && claim.ResourceClaimTemplateName == nil {
			errs = append(errs, field.Invalid(at, validators.BadValue(*claim), "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"))
		}
		if name := claim.ResourceClaimName; name != nil {
			errs = append(errs, validators.Subdomain(at.Child("resourceClaimName"), *name)...)
		}
		if name := claim.ResourceClaimTemplateName; name != nil {
			errs = append(errs, validators.Subdomain(at.Child("resourceClaimTemplateName"), *name)...)
		}
	}
	return errs
}

// validateResourceClaimName checks that a name is unique, and checks the name
// of the object that is created for it.
func (r *resourceRules) validateResourceClaimName(claim *corev1.PodResourceClaim, at *field.Path) field.ErrorList {
	switch {
	case claim.Name == "":
		return field.ErrorList{field.Required(at, "")}
	case r.claims[claim.Name]:
		return field.ErrorList{field.Duplicate(at, claim.Name)}
	}
	errs := validators.Label(at, claim.Name)
	if len(errs) == 0 && r.metadata != nil && claim.ResourceClaimTemplateName != nil {
		object := r.metadata.Name + "-" + claim.Name
		for _, msg := range utilvalidation.IsDNS1123Subdomain(object) {
			errs = append(errs, field.Invalid(at, object, "final ResourceClaim name: "+msg))
		}
	}
	return errs
}
