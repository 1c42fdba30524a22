package pod

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilsysctl "k8s.io/component-helpers/node/util/sysctl"

	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// The form of sysctl names: segments of lower-case letters, digits and
// separators.
const (
	sysctlPattern   = `^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$`
	sysctlMaxLength = 253
)

var sysctlName = regexp.MustCompile(sysctlPattern)

// securityRules checks the security contexts of a pod and its containers.
type securityRules struct{ *specContext }

// validatePodSecurity checks the pod's security context and its use of the
// host's namespaces.
func (r *securityRules) validatePodSecurity(at *field.Path) field.ErrorList {
	s := r.spec.SecurityContext
	var errs field.ErrorList
	if r.spec.HostNetwork {
		errs = append(errs, r.validateHostNetwork(at)...)
	}
	if share := r.spec.ShareProcessNamespace; share != nil && *share && r.spec.HostPID {
		errs = append(errs, field.Invalid(at.Child("securityContext", "shareProcessNamespace"), *share,
			"ShareProcessNamespace and HostPID cannot both be enabled"))
	}
	errs = append(errs, r.validateUserNamespace(at)...)
	if s == nil {
		return errs
	}
	at = at.Child("securityContext")
	errs = append(errs, validateID(s.RunAsUser, at.Child("runAsUser"))...)
	errs = append(errs, validateID(s.RunAsGroup, at.Child("runAsGroup"))...)
	errs = append(errs, validateID(s.FSGroup, at.Child("fsGroup"))...)
	for i := range s.SupplementalGroups {
		errs = append(errs, validateID(&s.SupplementalGroups[i], at.Child("supplementalGroups").Index(i))...)
	}
	if s.SupplementalGroupsPolicy != nil {
		errs = append(errs, validators.Enum(at.Child("supplementalGroupsPolicy"), *s.SupplementalGroupsPolicy,
			corev1.SupplementalGroupsPolicyMerge, corev1.SupplementalGroupsPolicyStrict)...)
	}
	errs = append(errs, r.validateSysctls(s.Sysctls, at.Child("sysctls"))...)
	if s.FSGroupChangePolicy != nil {
		errs = append(errs, validators.Enum(at.Child("fsGroupChangePolicy"), *s.FSGroupChangePolicy,
			corev1.FSGroupChangeOnRootMismatch, corev1.FSGroupChangeAlways)...)
	}
	if s.SELinuxChangePolicy != nil {
		errs = append(errs, validators.Enum(at.Child("seLinuxChangePolicy"), *s.SELinuxChangePolicy,
			corev1.SELinuxChangePolicyRecursive, corev1.SELinuxChangePolicyMountOption)...)
	}
	errs = append(errs, validateSeccompProfile(s.SeccompProfile, at.Child("seccompProfile"))...)
	errs = append(errs, validateAppArmorProfile(s.AppArmorProfile, at.Child("appArmorProfile"))...)
	return append(errs, validateWindowsOptions(s.WindowsOptions, at.Child("windowsOptions"))...)
}

func (r *securityRules) validateHostNetwork(at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range r.spec.Containers {
		for j, port := range r.spec.Containers[i].Ports {
			if port.HostPort != port.ContainerPort && (port.HostPort != 0 || r.metadata != nil) {
				errs = append(errs, field.Invalid(at.Child("containers").Index(i).Child("ports").Index(j).Child("hostPort"),
					port.HostPort, "must match `containerPort` when `hostNetwork` is true"))
			}
		}
	}
	return errs
}

// validateUserNamespace checks that a pod with a user namespace does not use
// the host's namespaces.
func (r *securityRules) validateUserNamespace(at *field.Path) field.ErrorList {
	if !podquery.HasUserNamespace(r.spec) {
		return nil
	}
	var errs field.ErrorList
	forbid := func(is bool, at *field.Path) {
		if is {
			errs = append(errs, field.Forbidden(at, "when `hostUsers` is false"))
		}
	}
	forbid(r.spec.HostNetwork && !r.HostNetworkOfUsers, at.Child("hostNetwork"))
	forbid(r.spec.HostPID, at.Child("HostPID"))
	forbid(r.spec.HostIPC, at.Child("HostIPC"))
	eachContainer(r.spec, at, func(c *corev1.Container, at *field.Path) {
		forbid(len(c.VolumeDevices) > 0 && !r.VolumeDevicesOfUsers, at.Child("volumeDevices"))
	})
	return errs
}

func validateID(id *int64, at *field.Path) field.ErrorList {
	if id == nil || *id >= 0 && *id <= math.MaxInt32 {
		return nil
	}
	return field.ErrorList{field.Invalid(at, *id, utilvalidation.InclusiveRangeError(0, math.MaxInt32))}
}

// IsSysctlName reports whether a name has the form of a sysctl's, with dots or slashes.
func IsSysctlName(name string) bool {
	return len(name) <= sysctlMaxLength && sysctlName.MatchString(name)
}

func (r *securityRules) validateSysctls(sysctls []corev1.Sysctl, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, sysctl := range sysctls {
		at := at.Index(i).Child("name")
		switch name := sysctl.Name; {
		case name == "":
			errs = append(errs, field.Required(at, ""))
		case !IsSysctlName(name):
			errs = append(errs, field.Invalid(at, name,
				fmt.Sprintf("must have at most %d characters and match regex %s", sysctlMaxLength, sysctlPattern)))
		case seen[name]:
			errs = append(errs, field.Duplicate(at, name))
		}
		if !r.HostSysctls {
			errs = append(errs, validateHostSysctl(r.spec, sysctl.Name, at)...)
		}
		seen[sysctl.Name] = true
	}
	return errs
}

// validateHostSysctl refuses a sysctl of a namespace that the pod shares with
// the host. The parts of its name are separated by dots or slashes.
func validateHostSysctl(spec *corev1.PodSpec, name string, at *field.Path) field.ErrorList {
	switch namespace, _, _ := utilsysctl.GetNamespace(name); {
	case spec.HostNetwork && namespace == utilsysctl.NetNamespace:
		return field.ErrorList{field.Invalid(at, name, "may not be specified when 'hostNetwork' is true")}
	case spec.HostIPC && namespace == utilsysctl.IPCNamespace:
		return field.ErrorList{field.Invalid(at, name, "may not be specified when 'hostIPC' is true")}
	}
	return nil
}

// hasHostSysctls reports whether a stored pod has sysctls that a new one must
// not have.
func hasHostSysctls(spec *corev1.PodSpec) bool {
	return spec.SecurityContext != nil && slices.ContainsFunc(spec.SecurityContext.Sysctls, func(s corev1.Sysctl) bool {
		return len(validateHostSysctl(spec, s.Name, nil)) > 0
	})
}

func seccompTypes() []corev1.SeccompProfileType {
	return []corev1.SeccompProfileType{
		corev1.SeccompProfileTypeLocalhost, corev1.SeccompProfileTypeRuntimeDefault, corev1.SeccompProfileTypeUnconfined,
	}
}

func validateSeccompProfile(p *corev1.SeccompProfile, at *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	var errs field.ErrorList
	if p.Type == "" {
		errs = append(errs, field.Required(at.Child("type"), "type is required when seccompProfile is set"))
	} else {
		errs = validators.Enum(at.Child("type"), p.Type, seccompTypes()...)
	}
	switch {
	case p.Type == corev1.SeccompProfileTypeLocalhost && p.LocalhostProfile == nil:
		errs = append(errs, field.Required(at.Child("localhostProfile"), "must be set when seccomp type is Localhost"))
	case p.Type == corev1.SeccompProfileTypeLocalhost:
		errs = append(errs, validators.DescendingPath(at.Child("localhostProfile"), *p.LocalhostProfile)...)
	case p.LocalhostProfile != nil:
		errs = append(errs, field.Invalid(at.Child("localhostProfile"), validators.BadValue(p), "can only be set when seccomp type is Localhost"))
	}
	return errs
}

func validateAppArmorProfile(p *corev1.AppArmorProfile, at *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	const longest = 4095
	var errs field.ErrorList
	localhost := at.Child("localhostProfile")
	switch p.Type {
	case corev1.AppArmorProfileTypeLocalhost:
		if p.LocalhostProfile == nil {
			errs = append(errs, field.Required(localhost, "must be set when AppArmor type is Localhost"))
			break
		}
		name := strings.TrimSpace(*p.LocalhostProfile)
		if name != *p.LocalhostProfile {
			errs = append(errs, field.Invalid(localhost, *p.LocalhostProfile, "must not be padded with whitespace"))
		} else if name == "" {
			errs = append(errs, field.Required(localhost, "must be set when AppArmor type is Localhost"))
		}
		if len(*p.LocalhostProfile) > longest {
			errs = append(errs, field.TooLongMaxLength(localhost, *p.LocalhostProfile, longest))
		}
	case corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined:
		if p.LocalhostProfile != nil {
			errs = append(errs, field.Invalid(localhost, p.LocalhostProfile, "can only be set when AppArmor type is Localhost"))
		}
	case "":
		errs = append(errs, field.Required(at.Child("type"), "type is required when appArmorProfile is set"))
	default:
		errs = append(errs, field.NotSupported(at.Child("type"), p.Type, []corev1.AppArmorProfileType{
			corev1.AppArmorProfileTypeLocalhost, corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined}))
	}
	return errs
}

func (r *containerRules) validateContainerSecurity(s *corev1.SecurityContext, at *field.Path) field.ErrorList {
	if s == nil {
		return nil
	}
	var errs field.ErrorList
	if r.ForbidPrivileged && s.Privileged != nil && *s.Privileged {
		errs = append(errs, field.Forbidden(at.Child("privileged"), "disallowed by cluster policy"))
	}
	errs = append(errs, validateID(s.RunAsUser, at.Child("runAsUser"))...)
	errs = append(errs, validateID(s.RunAsGroup, at.Child("runAsGroup"))...)
	if s.ProcMount != nil {
		if *s.ProcMount != corev1.DefaultProcMount && *s.ProcMount != corev1.UnmaskedProcMount {
			errs = append(errs, field.NotSupported(at.Child("procMount"), *s.ProcMount,
				[]corev1.ProcMountType{corev1.DefaultProcMount, corev1.UnmaskedProcMount}))
		}
		if *s.ProcMount == corev1.UnmaskedProcMount && !podquery.HasUserNamespace(r.spec) {
			errs = append(errs, field.Invalid(at.Child("procMount"), *s.ProcMount, "`hostUsers` must be false to use `Unmasked`"))
		}
	}
	errs = append(errs, validateSeccompProfile(s.SeccompProfile, at.Child("seccompProfile"))...)
	if s.AllowPrivilegeEscalation != nil && !*s.AllowPrivilegeEscalation {
		if s.Privileged != nil && *s.Privileged {
			errs = append(errs, field.Invalid(at, validators.BadValue(s), "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"))
		}
		if s.Capabilities != nil {
			for _, added := range s.Capabilities.Add {
				if added == "CAP_SYS_ADMIN" {
					errs = append(errs, field.Invalid(at, validators.BadValue(s), "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"))
				}
			}
		}
	}
	errs = append(errs, validateWindowsOptions(s.WindowsOptions, at.Child("windowsOptions"))...)
	return append(errs, validateAppArmorProfile(s.AppArmorProfile, at.Child("appArmorProfile"))...)
}
