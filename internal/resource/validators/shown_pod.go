package validators

import (
	"bytes"
	"reflect"

	corev1 "k8s.io/api/core/v1"
)

// showPodSpec writes a pod's spec with the fields in the order of upstream's
// internal type, which has the host's namespaces in the security context.
func showPodSpec(out *bytes.Buffer, spec corev1.PodSpec) error {
	v := reflect.ValueOf(spec)
	out.WriteByte('{')
	first := true
	for _, name := range podSpecFields() {
		f, _ := v.Type().FieldByName(name)
		value := v.FieldByName(name)
		if name == "SecurityContext" {
			value = reflect.ValueOf(securityContextOf(&spec))
		}
		if err := showField(out, f, value, &first); err != nil {
			return err
		}
	}
	out.WriteByte('}')
	return nil
}

func podSpecFields() []string {
	return []string{
		"Volumes", "InitContainers", "Containers", "EphemeralContainers", "RestartPolicy",
		"TerminationGracePeriodSeconds", "ActiveDeadlineSeconds", "DNSPolicy", "NodeSelector", "ServiceAccountName",
		"AutomountServiceAccountToken", "NodeName", "SecurityContext", "ImagePullSecrets", "Hostname", "Subdomain",
		"SetHostnameAsFQDN", "Affinity", "SchedulerName", "Tolerations", "HostAliases", "PriorityClassName",
		"Priority", "PreemptionPolicy", "DNSConfig", "ReadinessGates", "RuntimeClassName", "Overhead",
		"EnableServiceLinks", "TopologySpreadConstraints", "OS", "SchedulingGates", "ResourceClaims", "Resources",
		"HostnameOverride", "SchedulingGroup",
	}
}

// shownSecurityContext is upstream's internal type of a pod's security context.
type shownSecurityContext struct {
	HostNetwork              bool
	HostPID                  bool
	HostIPC                  bool
	ShareProcessNamespace    *bool
	HostUsers                *bool
	SELinuxOptions           *corev1.SELinuxOptions
	WindowsOptions           *corev1.WindowsSecurityContextOptions
	RunAsUser                *int64
	RunAsGroup               *int64
	RunAsNonRoot             *bool
	SupplementalGroups       []int64
	SupplementalGroupsPolicy *corev1.SupplementalGroupsPolicy
	FSGroup                  *int64
	FSGroupChangePolicy      *corev1.PodFSGroupChangePolicy
	Sysctls                  []corev1.Sysctl
	SeccompProfile           *corev1.SeccompProfile
	AppArmorProfile          *corev1.AppArmorProfile
	SELinuxChangePolicy      *corev1.PodSELinuxChangePolicy
}

func securityContextOf(s *corev1.PodSpec) *shownSecurityContext {
	var out shownSecurityContext
	if s.SecurityContext != nil {
		copySameFields(reflect.ValueOf(&out).Elem(), reflect.ValueOf(*s.SecurityContext))
	}
	out.HostNetwork, out.HostPID, out.HostIPC = s.HostNetwork, s.HostPID, s.HostIPC
	out.ShareProcessNamespace, out.HostUsers = s.ShareProcessNamespace, s.HostUsers
	return &out
}

// copySameFields sets each field of to from the field of from with the same
// name and type.
func copySameFields(to, from reflect.Value) {
	for i := range to.NumField() {
		f := from.FieldByName(to.Type().Field(i).Name)
		if f.IsValid() && f.Type() == to.Field(i).Type() {
			to.Field(i).Set(f)
		}
	}
}
