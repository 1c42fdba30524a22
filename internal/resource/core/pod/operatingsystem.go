package pod

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const deletionCostAnnotation = corev1.PodDeletionCost

// parseDeletionCost parses the cost of deleting a pod in preference to others
// of its ReplicaSet. It refuses leading zeros and plus signs.
func parseDeletionCost(value string) (int32, error) {
	cost, err := strconv.ParseInt(value, 10, 32)
	if err != nil {
		return 0, err
	}
	if strconv.FormatInt(cost, 10) != value {
		return 0, fmt.Errorf("invalid value %q", value)
	}
	return int32(cost), nil
}

// validateOS checks that a pod for one operating system has no fields of the
// other.
func validateOS(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	if spec.OS == nil {
		return nil
	}
	at := path.Child("os", "name")
	switch spec.OS.Name {
	case corev1.Linux:
		return validateLinux(spec, path)
	case corev1.Windows:
		return validateWindows(spec, path)
	case "":
		return field.ErrorList{field.Required(at, "cannot be empty")}
	}
	return field.ErrorList{field.NotSupported(path.Child("os"), spec.OS.Name, []corev1.OSName{corev1.Linux, corev1.Windows})}
}

func validateLinux(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	const message = "windows options cannot be set for a linux pod"
	if s := spec.SecurityContext; s != nil && s.WindowsOptions != nil {
		errs = append(errs, field.Forbidden(path.Child("securityContext", "windowsOptions"), message))
	}
	eachContainer(spec, path, func(c *corev1.Container, at *field.Path) {
		if c.SecurityContext != nil && c.SecurityContext.WindowsOptions != nil {
			errs = append(errs, field.Forbidden(at.Child("securityContext", "windowsOptions"), message))
		}
	})
	return errs
}

func validateWindows(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	forbid := func(set bool, at *field.Path) {
		if set {
			errs = append(errs, field.Forbidden(at, "cannot be set for a windows pod"))
		}
	}
	forbid(spec.HostPID, path.Child("hostPID"))
	forbid(spec.HostIPC, path.Child("hostIPC"))
	forbid(spec.HostUsers != nil, path.Child("hostUsers"))
	forbid(spec.ShareProcessNamespace != nil, path.Child("shareProcessNamespace"))
	if s := spec.SecurityContext; s != nil {
		at := path.Child("securityContext")
		forbid(s.AppArmorProfile != nil, at.Child("appArmorProfile"))
		forbid(s.SELinuxOptions != nil, at.Child("seLinuxOptions"))
		forbid(s.SeccompProfile != nil, at.Child("seccompProfile"))
		forbid(s.FSGroup != nil, at.Child("fsGroup"))
		forbid(s.FSGroupChangePolicy != nil, at.Child("fsGroupChangePolicy"))
		forbid(len(s.Sysctls) > 0, at.Child("sysctls"))
		forbid(s.RunAsUser != nil, at.Child("runAsUser"))
		forbid(s.RunAsGroup != nil, at.Child("runAsGroup"))
		forbid(s.SupplementalGroups != nil, at.Child("supplementalGroups"))
		forbid(s.SupplementalGroupsPolicy != nil, at.Child("supplementalGroupsPolicy"))
		forbid(s.SELinuxChangePolicy != nil, at.Child("seLinuxChangePolicy"))
	}
	eachContainer(spec, path, func(c *corev1.Container, at *field.Path) {
		s := c.SecurityContext
		if s == nil {
			return
		}
		at = at.Child("securityContext")
		forbid(s.AppArmorProfile != nil, at.Child("appArmorProfile"))
		forbid(s.SELinuxOptions != nil, at.Child("seLinuxOptions"))
		forbid(s.SeccompProfile != nil, at.Child("seccompProfile"))
		forbid(s.Capabilities != nil, at.Child("capabilities"))
		forbid(s.ReadOnlyRootFilesystem != nil, at.Child("readOnlyRootFilesystem"))
		forbid(s.Privileged != nil, at.Child("privileged"))
		forbid(s.AllowPrivilegeEscalation != nil, at.Child("allowPrivilegeEscalation"))
		forbid(s.ProcMount != nil, at.Child("procMount"))
		forbid(s.RunAsUser != nil, at.Child("runAsUser"))
		forbid(s.RunAsGroup != nil, at.Child("runAsGroup"))
	})
	return errs
}

// eachContainer calls visit with each init, ordinary and ephemeral container.
func eachContainer(spec *corev1.PodSpec, path *field.Path, visit func(*corev1.Container, *field.Path)) {
	for i := range spec.InitContainers {
		visit(&spec.InitContainers[i], path.Child("initContainers").Index(i))
	}
	for i := range spec.Containers {
		visit(&spec.Containers[i], path.Child("containers").Index(i))
	}
	for i := range spec.EphemeralContainers {
		visit(asContainer(&spec.EphemeralContainers[i]), path.Child("ephemeralContainers").Index(i))
	}
}
