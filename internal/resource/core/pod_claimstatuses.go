package core

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	podutil "github.com/coracle-io/coracle/internal/pod"
)

// validateClaimStatuses checks which objects stand for the pod's claims.
func validateClaimStatuses(p *corev1.Pod, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, status := range p.Status.ResourceClaimStatuses {
		at := path.Index(i).Child("name")
		known := slices.ContainsFunc(p.Spec.ResourceClaims, func(c corev1.PodResourceClaim) bool { return c.Name == status.Name })
		if !known {
			errs = append(errs, field.Invalid(at, status.Name, "must match the name of an entry in `spec.resourceClaims`"))
		}
		if seen[status.Name] {
			errs = append(errs, field.Duplicate(at, status.Name))
		}
		seen[status.Name] = true
		if name := status.ResourceClaimName; name != nil {
			errs = append(errs, invalid(at, *name, nameIsDNSSubdomain(*name))...)
		}
	}
	return errs
}

// validateExtendedClaimStatus checks the claim that was made for extended
// resources, and for which of them.
func validateExtendedClaimStatus(p *corev1.Pod, path *field.Path) field.ErrorList {
	status := p.Status.ExtendedResourceClaimStatus
	if status == nil {
		return nil
	}
	var errs field.ErrorList
	mappings := path.Child("requestMappings")
	if len(status.RequestMappings) == 0 {
		errs = append(errs, field.Required(mappings, "at least one request mapping is required"))
	}
	seen := map[corev1.ContainerExtendedResourceRequest]bool{}
	for i, mapping := range status.RequestMappings {
		at := mappings.Index(i)
		errs = append(errs, validateMapped(&mapping, &p.Spec, at)...)
		errs = append(errs, invalid(path.Child("requestName"), mapping.RequestName, utilvalidation.IsDNS1123Label(mapping.RequestName))...)
		if seen[mapping] {
			errs = append(errs, field.Duplicate(at.Child("containerName"), mapping.ContainerName),
				field.Duplicate(at.Child("resourceName"), mapping.ResourceName),
				field.Duplicate(at.Child("requestName"), mapping.RequestName))
		}
		seen[mapping] = true
	}
	at := path.Child("resourceClaimName")
	if status.ResourceClaimName == "" {
		return append(errs, field.Required(at, ""))
	}
	return append(errs, invalid(at, status.ResourceClaimName, nameIsDNSSubdomain(status.ResourceClaimName))...)
}

func validateMapped(mapping *corev1.ContainerExtendedResourceRequest, spec *corev1.PodSpec, at *field.Path) field.ErrorList {
	for c := range podutil.Containers(spec) {
		if c.Name != mapping.ContainerName {
			continue
		}
		if _, ok := c.Resources.Requests[corev1.ResourceName(mapping.ResourceName)]; ok {
			return nil
		}
		return field.ErrorList{field.Invalid(at.Child("resourceName"), mapping.ResourceName,
			"must match the extended resource name of an entry in spec.initContainers.resources.requests or spec.containers.resources.requests")}
	}
	return field.ErrorList{field.Invalid(at.Child("containerName"), mapping.ContainerName,
		"must match the name of an entry in spec.initContainers.name or spec.containers.name")}
}
