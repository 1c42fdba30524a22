package core

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateContainerStatuses checks what is reported of containers: one that
// ended for good does not run again.
func validateContainerStatuses(p, old *corev1.Pod, path *field.Path) field.ErrorList {
	is, was, spec := &p.Status, &old.Status, &old.Spec
	containers, init, ephemeral := path.Child("containerStatuses"), path.Child("initContainerStatuses"), path.Child("ephemeralContainerStatuses")
	errs := validateNotRestarted(is.ContainerStatuses, was.ContainerStatuses, containers,
		func(name string, exitCode int32) bool { return mayRestart(spec, spec.Containers, name, exitCode) })
	errs = append(errs, validateNotRestarted(is.InitContainerStatuses, was.InitContainerStatuses, init,
		func(name string, exitCode int32) bool { return mayRestart(spec, spec.InitContainers, name, exitCode) })...)
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
	var errs field.ErrorList
	for i := range was {
		ended := was[i].State.Terminated
		if ended == nil {
			continue
		}
		again := slices.ContainsFunc(is, func(s corev1.ContainerStatus) bool {
			return s.Name == was[i].Name && s.State.Terminated == nil
		})
		if again && !mayRestart(was[i].Name, ended.ExitCode) {
			errs = append(errs, field.Forbidden(path.Index(i).Child("state"), "may not be transitioned to non-terminated state"))
		}
	}
	return errs
}

// mayRestart reports whether a container that ended like this starts again:
// by a rule of its own, by its own policy or else by the pod's, or because a
// rule of another restarts all of them.
func mayRestart(spec *corev1.PodSpec, containers []corev1.Container, name string, exitCode int32) bool {
	i := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == name })
	if i < 0 {
		return false
	}
	if anyContainer(spec, restartsAll) {
		return true
	}
	c := &containers[i]
	if c.RestartPolicy == nil {
		return spec.RestartPolicy == corev1.RestartPolicyAlways ||
			spec.RestartPolicy == corev1.RestartPolicyOnFailure && exitCode != 0
	}
	for _, r := range c.RestartPolicyRules {
		if r.ExitCodes == nil {
			continue
		}
		listed := slices.Contains(r.ExitCodes.Values, exitCode)
		if listed == (r.ExitCodes.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn) {
			return true
		}
	}
	return *c.RestartPolicy == corev1.ContainerRestartPolicyAlways ||
		*c.RestartPolicy == corev1.ContainerRestartPolicyOnFailure && exitCode != 0
}

func restartsAll(c *corev1.Container) bool {
	return slices.ContainsFunc(c.RestartPolicyRules, func(r corev1.ContainerRestartRule) bool {
		return r.Action == corev1.ContainerRestartRuleActionRestartAllContainers
	})
}

// validateContainerUsers checks whom containers run as, which is told of
// Linux alone.
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
		errs = append(errs, validateID(&user.UID, at.Child("uid"))...)
		errs = append(errs, validateID(&user.GID, at.Child("gid"))...)
		for j := range user.SupplementalGroups {
			errs = append(errs, validateID(&user.SupplementalGroups[j], at.Child("supplementalGroups").Index(j))...)
		}
	}
	return errs
}

// validateResourceHealth checks what is told of the health of devices: each
// is one that the container asks for.
func validateResourceHealth(statuses []corev1.ContainerStatus, containers []corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range statuses {
		for j := range statuses[i].AllocatedResourcesStatus {
			status := &statuses[i].AllocatedResourcesStatus[j]
			at := path.Index(i).Child("allocatedResourcesStatus").Index(j)
			errs = append(errs, validateAskedFor(statuses[i].Name, status.Name, containers, at.Child("name"))...)
			seen := map[corev1.ResourceID]bool{}
			for k, device := range status.Resources {
				at := at.Child("resources").Index(k)
				errs = append(errs, oneOf(device.Health, at.Child("health"), corev1.ResourceHealthStatusHealthy,
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

func validateAskedFor(container string, name corev1.ResourceName, containers []corev1.Container, at *field.Path) field.ErrorList {
	i := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == container })
	if i < 0 {
		return nil
	}
	resources := &containers[i].Resources
	if _, ok := resources.Requests[name]; ok {
		return nil
	}
	reference, isClaim := strings.CutPrefix(string(name), "claim:")
	if !isClaim {
		return field.ErrorList{field.Invalid(at, name, "must match one of the container's resource requests")}
	}
	for _, claim := range resources.Claims {
		if reference == claim.Name && claim.Request == "" || reference == claim.Name+"/"+claim.Request {
			return nil
		}
	}
	return field.ErrorList{field.Invalid(at, name,
		"must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty")}
}
