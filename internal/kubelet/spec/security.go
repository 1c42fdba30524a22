package spec

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/podquery"
)

func maskedPaths() []string {
	return []string{
		"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
		"/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi",
		"/sys/firmware", "/sys/devices/virtual/powercap",
	}
}

func readonlyPaths() []string {
	return []string{"/proc/asound", "/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
}

// effective merges the pod's security context into the container's, but for the
// AppArmor profile.
func effective(pod *v1.Pod, c *v1.Container) *v1.SecurityContext {
	out := &v1.SecurityContext{}
	if c.SecurityContext != nil {
		out = c.SecurityContext.DeepCopy()
	}
	p := pod.Spec.SecurityContext
	if p == nil {
		return out
	}
	if out.SELinuxOptions == nil {
		out.SELinuxOptions = p.SELinuxOptions
	}
	if out.RunAsUser == nil {
		out.RunAsUser = p.RunAsUser
	}
	if out.RunAsGroup == nil {
		out.RunAsGroup = p.RunAsGroup
	}
	if out.RunAsNonRoot == nil {
		out.RunAsNonRoot = p.RunAsNonRoot
	}
	if out.SeccompProfile == nil {
		out.SeccompProfile = p.SeccompProfile
	}
	return out
}

// User returns the user that the pod sets for one of its containers, nil if the
// image decides.
func User(pod *v1.Pod, c *v1.Container) *int64 {
	if c.SecurityContext != nil && c.SecurityContext.RunAsUser != nil {
		return c.SecurityContext.RunAsUser
	}
	if pod.Spec.SecurityContext != nil {
		return pod.Spec.SecurityContext.RunAsUser
	}
	return nil
}

// VerifyNonRoot returns an error for a container with runAsNonRoot that would
// run as root. imageUID is nil if the image has no numeric user.
func VerifyNonRoot(pod *v1.Pod, c *v1.Container, imageUID *int64, imageUser string) error {
	sc := effective(pod, c)
	if sc.RunAsNonRoot == nil || !*sc.RunAsNonRoot {
		return nil
	}
	if sc.RunAsUser != nil {
		if *sc.RunAsUser == 0 {
			return fmt.Errorf("container's runAsUser breaks non-root policy (pod: %q, container: %s)", PodName(pod), c.Name)
		}
		return nil
	}
	switch {
	case imageUID != nil && *imageUID == 0, imageUID == nil && imageUser == "":
		return fmt.Errorf("container has runAsNonRoot and image will run as root (pod: %q, container: %s)", PodName(pod), c.Name)
	case imageUID == nil:
		return fmt.Errorf("container has runAsNonRoot and image has non-numeric user (%s), cannot verify user is non-root (pod: %q, container: %s)", imageUser, PodName(pod), c.Name)
	}
	return nil
}

// maxGroups is how many supplemental groups a pod may have. The container runtime keeps
// them for each container.
const maxGroups = 4096

func checkGroups(pod *v1.Pod) error {
	if sc := pod.Spec.SecurityContext; sc != nil && len(sc.SupplementalGroups) > maxGroups {
		return fmt.Errorf("%w: the pod has %d supplemental groups; a node gives a container at most %d", ErrConfig, len(sc.SupplementalGroups), maxGroups)
	}
	return nil
}

func security(pod *v1.Pod, c *v1.Container, node *Node, in *Instance) *runtimeapi.LinuxContainerSecurityContext {
	sc := effective(pod, c)
	out := &runtimeapi.LinuxContainerSecurityContext{
		NamespaceOptions: namespaces(pod, in.Target, in.UserNamespace),
		NoNewPrivs:       sc.AllowPrivilegeEscalation != nil && !*sc.AllowPrivilegeEscalation,
		ReadonlyRootfs:   sc.ReadOnlyRootFilesystem != nil && *sc.ReadOnlyRootFilesystem,
		Privileged:       sc.Privileged != nil && *sc.Privileged,
		SelinuxOptions:   seLinux(sc.SELinuxOptions),
		MaskedPaths:      slices.Concat(maskedPaths(), node.ThermalThrottle),
		ReadonlyPaths:    readonlyPaths(),
	}
	if sc.ProcMount != nil && *sc.ProcMount == v1.UnmaskedProcMount {
		out.MaskedPaths, out.ReadonlyPaths = []string{}, []string{}
	}
	switch {
	case sc.RunAsUser != nil:
		out.RunAsUser = &runtimeapi.Int64Value{Value: *sc.RunAsUser}
	case in.ImageUID != nil:
		out.RunAsUser = &runtimeapi.Int64Value{Value: *in.ImageUID}
	default:
		out.RunAsUsername = in.ImageUser
	}
	if sc.RunAsGroup != nil {
		out.RunAsGroup = &runtimeapi.Int64Value{Value: *sc.RunAsGroup}
	}
	if sc.Capabilities != nil {
		out.Capabilities = &runtimeapi.Capability{}
		for _, add := range sc.Capabilities.Add {
			out.Capabilities.AddCapabilities = append(out.Capabilities.AddCapabilities, string(add))
		}
		for _, drop := range sc.Capabilities.Drop {
			out.Capabilities.DropCapabilities = append(out.Capabilities.DropCapabilities, string(drop))
		}
	}
	if p := pod.Spec.SecurityContext; p != nil {
		if p.FSGroup != nil {
			out.SupplementalGroups = append(out.SupplementalGroups, *p.FSGroup)
		}
		out.SupplementalGroups = append(out.SupplementalGroups, p.SupplementalGroups...)
		if p.SupplementalGroupsPolicy != nil && *p.SupplementalGroupsPolicy == v1.SupplementalGroupsPolicyStrict {
			out.SupplementalGroupsPolicy = runtimeapi.SupplementalGroupsPolicy_Strict
		}
	}
	for _, group := range in.Groups {
		if !slices.Contains(out.SupplementalGroups, group) {
			out.SupplementalGroups = append(out.SupplementalGroups, group)
		}
	}
	out.Seccomp = seccomp(sc, node)
	out.Apparmor = appArmor(pod, c)
	return out
}

func seccomp(sc *v1.SecurityContext, node *Node) *runtimeapi.SecurityProfile {
	if sc.SeccompProfile == nil || (sc.Privileged != nil && *sc.Privileged) {
		if *node.Configuration.SeccompDefault && (sc.Privileged == nil || !*sc.Privileged) {
			return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}
		}
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}
	}
	switch sc.SeccompProfile.Type {
	case v1.SeccompProfileTypeRuntimeDefault:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}
	case v1.SeccompProfileTypeLocalhost:
		file := ptr.Deref(sc.SeccompProfile.LocalhostProfile, "")
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: filepath.Join(node.RootDirectory, "seccomp", file)}
	}
	return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}
}

// appArmor returns the profile of the container's field, else of its annotation, which
// static pods may have alone, else of the pod, else nil.
func appArmor(pod *v1.Pod, c *v1.Container) *runtimeapi.SecurityProfile {
	var field *v1.AppArmorProfile
	if c.SecurityContext != nil {
		field = c.SecurityContext.AppArmorProfile
	}
	if field == nil {
		switch profile := pod.Annotations[v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+c.Name]; {
		case profile == v1.DeprecatedAppArmorBetaProfileRuntimeDefault:
			return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}
		case profile == v1.DeprecatedAppArmorBetaProfileNameUnconfined:
			return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}
		case strings.HasPrefix(profile, v1.DeprecatedAppArmorBetaProfileNamePrefix):
			return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost,
				LocalhostRef: strings.TrimPrefix(profile, v1.DeprecatedAppArmorBetaProfileNamePrefix)}
		}
		if pod.Spec.SecurityContext == nil || pod.Spec.SecurityContext.AppArmorProfile == nil {
			return nil
		}
		field = pod.Spec.SecurityContext.AppArmorProfile
	}
	switch field.Type {
	case v1.AppArmorProfileTypeRuntimeDefault:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}
	case v1.AppArmorProfileTypeLocalhost:
		if field.LocalhostProfile != nil {
			return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: *field.LocalhostProfile}
		}
	}
	return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}
}

// NeedsAppArmor reports whether a container of the pod has an AppArmor profile.
func NeedsAppArmor(pod *v1.Pod) bool {
	for c := range podquery.AllContainers(&pod.Spec) {
		profile := appArmor(pod, c)
		if profile != nil && profile.ProfileType != runtimeapi.SecurityProfile_Unconfined {
			return true
		}
	}
	return false
}

func seLinux(o *v1.SELinuxOptions) *runtimeapi.SELinuxOption {
	if o == nil {
		return nil
	}
	return &runtimeapi.SELinuxOption{User: o.User, Role: o.Role, Type: o.Type, Level: o.Level}
}
