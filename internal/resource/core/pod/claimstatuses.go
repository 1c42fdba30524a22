package pod

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// validateClaimStatuses checks which ResourceClaims the status reports for the
// pod's claims.
func validateClaimStatuses(p *corev1.Pod, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	known, seen := map[string]bool{}, map[string]bool{}
	for i := range p.Spec.ResourceClaims {
		known[p.Spec.ResourceClaims[i].Name] = true
	}
	for i, status := range p.Status.ResourceClaimStatuses {
		at := path.Index(i)
		if !known[status.Name] {
			errs = append(errs, field.Invalid(at.Child("name"), status.Name, "must match the name of an entry in `spec.resourceClaims`"))
		}
		if seen[status.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), status.Name))
		}
		seen[status.Name] = true
		if name := status.ResourceClaimName; name != nil {
			errs = append(errs, validators.Subdomain(at.Child("resourceClaimName"), *name)...)
		}
	}
	return errs
}

// validateExtendedClaimStatus checks the ResourceClaim that was created for
// extended resources, and the resources that it provides.
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
	containers := map[string]*corev1.Container{}
	for c := range podquery.Containers(&p.Spec) {
		containers[c.Name] = c
	}
	seen := map[corev1.ContainerExtendedResourceRequest]bool{}
	for i, mapping := range status.RequestMappings {
		at := mappings.Index(i)
		errs = append(errs, validateMapped(&mapping, containers, at)...)
		errs = append(errs, validators.Label(path.Child("requestName"), mapping.RequestName)...)
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
	return append(errs, validators.Subdomain(at, status.ResourceClaimName)...)
}

// validateMapped checks that the container of a mapping requests the resource.
func validateMapped(mapping *corev1.ContainerExtendedResourceRequest, containers map[string]*corev1.Container, at *field.Path) field.ErrorList {
	c := containers[mapping.ContainerName]
	if c == nil {
		return field.ErrorList{field.Invalid(at.Child("containerName"), mapping.ContainerName,
			"must match the name of an entry in spec.initContainers.name or spec.containers.name")}
	}
	if _, ok := c.Resources.Requests[corev1.ResourceName(mapping.ResourceName)]; !ok {
		return field.ErrorList{field.Invalid(at.Child("resourceName"), mapping.ResourceName,
			"must match the extended resource name of an entry in spec.initContainers.resources.requests or spec.containers.resources.requests")}
	}
	return nil
}
