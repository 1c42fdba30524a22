package pod

import (
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// validateContainerStatuses checks the reported container states: a container
// that terminated and does not restart cannot run again.
func validateContainerStatuses(p, old *corev1.Pod, path *field.Path) field.ErrorList {
	is, was, spec := &p.Status, &old.Status, &old.Spec
	containers, init, ephemeral := path.Child("containerStatuses"), path.Child("initContainerStatuses"), path.Child("ephemeralContainerStatuses")
	errs := validateNotRestarted(is.ContainerStatuses, was.ContainerStatuses, containers, mayRestart(spec, spec.Containers))
	errs = append(errs, validateNotRestarted(is.InitContainerStatuses, was.InitContainerStatuses, init, mayRestart(spec, spec.InitContainers))...)
	errs = append(errs, validateNotRestarted(is.EphemeralContainerStatuses, was.EphemeralContainerStatuses, ephemeral,
		func(string, int32) bool { return false })...)

	windows := p.Spec.OS != nil && p.Spec.OS.Name == corev1.Windows
	errs = append(errs, validateContainerUsers(is.ContainerStatuses, windows, containers)...)
	errs = append(errs, validateContainerUsers(is.InitContainerStatuses, windows, init)...)
	errs = append(errs, validateContainerUsers(is.EphemeralContainerStatuses, windows, ephemeral)...)

	errs = append(errs, validateResourceHealth(is.ContainerStatuses, p.Spec.Containers, containers)...)
	errs = append(errs, validateResourceHealth(is.InitContainerStatuses, p.Spec.InitContainers, init)...)
	for i := range is.EphemeralContainerStatuses {
		if len(is.EphemeralContainerStatuses[i].AllocatedResourcesStatus) > 0 {
			errs = append(errs, field.Forbidden(ephemeral.Index(i).Child("allocatedResourcesStatus"), "must not be specified in container status"))
		}
	}
	return errs
}

func validateNotRestarted(is, was []corev1.ContainerStatus, path *field.Path, mayRestart func(name string, exitCode int32) bool) field.ErrorList {
	runs := map[string]bool{} // the containers that have not terminated
	for i := range is {
		runs[is[i].Name] = runs[is[i].Name] || is[i].State.Terminated == nil
	}
	var errs field.ErrorList
	for i := range was {
		ended := was[i].State.Terminated
		if ended == nil {
			continue
		}
		if runs[was[i].Name] && !mayRestart(was[i].Name, ended.ExitCode) {
			errs = append(errs, field.Forbidden(path.Index(i).Child("state"), "may not be transitioned to non-terminated state"))
		}
	}
	return errs
}

// mayRestart returns a function that reports whether a container that exited
// with exitCode can start again: by its rules and policy, or because a rule of
// another container restarts all.
func mayRestart(spec *corev1.PodSpec, containers []corev1.Container) func(name string, exitCode int32) bool {
	all, named := anyContainer(spec, restartsAll), byName(containers)
	return func(name string, exitCode int32) bool {
		c := named[name]
		return c != nil && (all || podquery.Restarts(spec, c, exitCode))
	}
}

func byName(containers []corev1.Container) map[string]*corev1.Container {
	named := make(map[string]*corev1.Container, len(containers))
	for i := range containers {
		named[containers[i].Name] = &containers[i]
	}
	return named
}

func restartsAll(c *corev1.Container) bool {
	return slices.ContainsFunc(c.RestartPolicyRules, func(r corev1.ContainerRestartRule) bool {
		return r.Action == corev1.ContainerRestartRuleActionRestartAllContainers
	})
}

// validateContainerUsers checks the reported users of containers, which exist
// only on Linux.
func validateContainerUsers(statuses []corev1.ContainerStatus, windows bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range statuses {
		if statuses[i].User == nil || statuses[i].User.Linux == nil {
			continue
		}
		user, at := statuses[i].User.Linux, path.Index(i).Child("user", "linux")
		if windows {
			errs = append(errs, field.Forbidden(at, "cannot be set for a windows pod"))
			continue
		}
		// A user of an image may have any of Linux's IDs, unlike one of a spec.
		if user.UID < 0 || user.UID > math.MaxUint32 {
			errs = append(errs, field.Invalid(at.Child("uid"), user.UID, utilvalidation.InclusiveRangeError(0, math.MaxUint32)))
		}
		errs = append(errs, validateID(&user.GID, at.Child("gid"))...)
		for j := range user.SupplementalGroups {
			errs = append(errs, validateID(&user.SupplementalGroups[j], at.Child("supplementalGroups").Index(j))...)
		}
	}
	return errs
}

// validateResourceHealth checks the reported health of devices: each belongs
// to a resource that the container requests.
func validateResourceHealth(statuses []corev1.ContainerStatus, containers []corev1.Container, path *field.Path) field.ErrorList {
	named := byName(containers)
	var errs field.ErrorList
	for i := range statuses {
		container := named[statuses[i].Name]
		claims := claimReferences(container)
		for j := range statuses[i].AllocatedResourcesStatus {
			status := &statuses[i].AllocatedResourcesStatus[j]
			at := path.Index(i).Child("allocatedResourcesStatus").Index(j)
			errs = append(errs, validateAskedFor(container, claims, status.Name, at.Child("name"))...)
			seen := map[corev1.ResourceID]bool{}
			for k, device := range status.Resources {
				at := at.Child("resources").Index(k)
				errs = append(errs, validators.Enum(at.Child("health"), device.Health, corev1.ResourceHealthStatusHealthy,
					corev1.ResourceHealthStatusUnhealthy, corev1.ResourceHealthStatusUnknown)...)
				if seen[device.ResourceID] {
					errs = append(errs, field.Duplicate(at.Child("resourceID"), device.ResourceID))
				}
				seen[device.ResourceID] = true
			}
		}
	}
	return errs
}

// claimReferences returns how a status refers to the resource claims of a
// container.
func claimReferences(c *corev1.Container) map[string]bool {
	references := map[string]bool{}
	if c == nil {
		return references
	}
	for _, claim := range c.Resources.Claims {
		if claim.Request == "" {
			references[claim.Name] = true
		}
		references[claim.Name+"/"+claim.Request] = true
	}
	return references
}

// validateAskedFor checks that a container requests a resource, or has a claim
// that claims contains. It accepts any if there is no such container.
func validateAskedFor(c *corev1.Container, claims map[string]bool, name corev1.ResourceName, at *field.Path) field.ErrorList {
	if c == nil {
		return nil
	}
	if _, ok := c.Resources.Requests[name]; ok {
		return nil
	}
	reference, isClaim := strings.CutPrefix(string(name), "claim:")
	if !isClaim {
		return field.ErrorList{field.Invalid(at, name, "must match one of the container's resource requests")}
	}
	if claims[reference] {
		return nil
	}
	return field.ErrorList{field.Invalid(at, name,
		"must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty")}
}
