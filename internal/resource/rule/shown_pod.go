package rule

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"
)

// shownPodSpec is a pod's spec in the order in which messages show it: the
// host's namespaces belong to the security context there.
type shownPodSpec struct {
	Volumes                       []corev1.Volume
	InitContainers                []corev1.Container
	Containers                    []corev1.Container
	EphemeralContainers           []corev1.EphemeralContainer
	RestartPolicy                 corev1.RestartPolicy
	TerminationGracePeriodSeconds *int64
	ActiveDeadlineSeconds         *int64
	DNSPolicy                     corev1.DNSPolicy
	NodeSelector                  map[string]string
	ServiceAccountName            string
	AutomountServiceAccountToken  *bool
	NodeName                      string
	SecurityContext               *shownSecurityContext
	ImagePullSecrets              []corev1.LocalObjectReference
	Hostname                      string
	Subdomain                     string
	SetHostnameAsFQDN             *bool
	Affinity                      *corev1.Affinity
	SchedulerName                 string
	Tolerations                   []corev1.Toleration
	HostAliases                   []corev1.HostAlias
	PriorityClassName             string
	Priority                      *int32
	PreemptionPolicy              *corev1.PreemptionPolicy
	DNSConfig                     *corev1.PodDNSConfig
	ReadinessGates                []corev1.PodReadinessGate
	RuntimeClassName              *string
	Overhead                      corev1.ResourceList
	EnableServiceLinks            *bool
	TopologySpreadConstraints     []corev1.TopologySpreadConstraint
	OS                            *corev1.PodOS
	SchedulingGates               []corev1.PodSchedulingGate
	ResourceClaims                []corev1.PodResourceClaim
	Resources                     *corev1.ResourceRequirements
	HostnameOverride              *string
	SchedulingGroup               *corev1.PodSchedulingGroup
}

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

func toShownPodSpec(s corev1.PodSpec) shownPodSpec {
	var out shownPodSpec
	copySameFields(reflect.ValueOf(&out).Elem(), reflect.ValueOf(s))
	security := shownSecurityContext{}
	if s.SecurityContext != nil {
		copySameFields(reflect.ValueOf(&security).Elem(), reflect.ValueOf(*s.SecurityContext))
	}
	security.HostNetwork, security.HostPID, security.HostIPC = s.HostNetwork, s.HostPID, s.HostIPC
	security.ShareProcessNamespace, security.HostUsers = s.ShareProcessNamespace, s.HostUsers
	out.SecurityContext = &security
	return out
}

// copySameFields sets each field of to that from has with the same name and
// type.
func copySameFields(to, from reflect.Value) {
	for i := range to.NumField() {
		f := from.FieldByName(to.Type().Field(i).Name)
		if f.IsValid() && f.Type() == to.Field(i).Type() {
			to.Field(i).Set(f)
		}
	}
}
