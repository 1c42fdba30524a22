package pod

import (
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/resource/core/resourcelist"
	"github.com/coracle-io/coracle/internal/resource/defaults"
)

// maxImagePath is the longest repository name that registries take.
const maxImagePath = 255

// The parts of an image reference, from the OCI distribution specification.
var (
	imageHostPattern = regexp.MustCompile(`^(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])(?:\.(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9]))*(?::[0-9]+)?$|^\[[a-fA-F0-9:]+\](?::[0-9]+)?$`)
	imageTagPattern  = regexp.MustCompile(`^[\w][\w.-]{0,127}$`)
	imagePathPattern = regexp.MustCompile(`^[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*$`)
)

// Default sets the defaults of a pod: the defaults of [DefaultSpec], requests
// from limits, and host ports for pods in the host network. Those of the pod as a
// whole follow once it is complete ([DefaultPodLevelResources]).
func Default(pod *corev1.Pod) {
	spec := &pod.Spec
	DefaultSpec(spec)
	if *spec.TerminationGracePeriodSeconds < 0 { // a template keeps it
		spec.TerminationGracePeriodSeconds = new(int64(1))
	}
	defaults.Nil(&spec.EnableServiceLinks, true)
	for c := range podquery.Containers(spec) {
		defaultRequests(&c.Resources)
	}
	if spec.HostNetwork {
		defaultHostPorts(spec.InitContainers)
		defaultHostPorts(spec.Containers)
	}
}

// defaultRequests sets missing requests to the limits.
func defaultRequests(r *corev1.ResourceRequirements) {
	for name, limit := range r.Limits {
		setIfMissing(&r.Requests, name, limit)
	}
}

// defaultHostPorts sets missing host ports to the container ports, which pods
// in the host network require.
func defaultHostPorts(containers []corev1.Container) {
	for i := range containers {
		for j := range containers[i].Ports {
			defaults.Zero(&containers[i].Ports[j].HostPort, containers[i].Ports[j].ContainerPort)
		}
	}
}

// DefaultTemplate sets the defaults of a pod template.
func DefaultTemplate(template *corev1.PodTemplateSpec) {
	DefaultSpec(&template.Spec)
}

// DefaultSpec sets the defaults that pods and pod templates share.
func DefaultSpec(spec *corev1.PodSpec) {
	defaults.Zero(&spec.DNSPolicy, corev1.DNSClusterFirst)
	defaults.Zero(&spec.RestartPolicy, corev1.RestartPolicyAlways)
	if spec.SecurityContext == nil {
		spec.SecurityContext = &corev1.PodSecurityContext{}
	}
	defaults.Nil(&spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)
	defaults.Zero(&spec.SchedulerName, corev1.DefaultSchedulerName)
	if spec.DeprecatedServiceAccount != "" && spec.ServiceAccountName == "" {
		spec.ServiceAccountName = spec.DeprecatedServiceAccount
	}
	spec.DeprecatedServiceAccount = spec.ServiceAccountName
	resourcelist.RoundUp(spec.Overhead)
	for i := range spec.Volumes {
		defaultVolume(&spec.Volumes[i].VolumeSource)
	}
	for i := range spec.InitContainers {
		defaultContainer(&spec.InitContainers[i])
	}
	for i := range spec.Containers {
		defaultContainer(&spec.Containers[i])
	}
	for i := range spec.EphemeralContainers {
		defaultContainer(asContainer(&spec.EphemeralContainers[i]))
	}
	if spec.Resources != nil {
		resourcelist.RoundUp(spec.Resources.Limits)
		resourcelist.RoundUp(spec.Resources.Requests)
	}
}

// asContainer returns a view of an ephemeral container as a container. Both
// share memory.
func asContainer(c *corev1.EphemeralContainer) *corev1.Container {
	return (*corev1.Container)(&c.EphemeralContainerCommon)
}

func defaultContainer(c *corev1.Container) {
	defaults.Zero(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	defaults.Zero(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	defaults.Zero(&c.ImagePullPolicy, pullPolicyOf(c.Image))
	for i := range c.Ports {
		defaults.Zero(&c.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil {
			defaultFieldRef(from.FieldRef)
			if from.FileKeyRef != nil {
				defaults.Nil(&from.FileKeyRef.Optional, false)
			}
		}
	}
	resourcelist.RoundUp(c.Resources.Limits)
	resourcelist.RoundUp(c.Resources.Requests)
	defaultProbe(c.LivenessProbe)
	defaultProbe(c.ReadinessProbe)
	defaultProbe(c.StartupProbe)
	if c.Lifecycle != nil {
		defaultHook(c.Lifecycle.PostStart)
		defaultHook(c.Lifecycle.PreStop)
	}
}

// pullPolicyOf returns Always for images with the tag latest, given or implied,
// and IfNotPresent for others.
func pullPolicyOf(image string) corev1.PullPolicy {
	if imageTag(image) == "latest" {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

// imageTag returns the tag of an image reference. It is "latest" if the
// reference has neither tag nor digest, and "" if it has only a digest or is
// malformed.
func imageTag(image string) string {
	name, digest, pinned := strings.Cut(image, "@")
	if !validImageName(name) || pinned && digest == "" {
		return ""
	}
	if colon := strings.LastIndex(name, ":"); colon > strings.LastIndex(name, "/") {
		return name[colon+1:]
	}
	if pinned {
		return ""
	}
	return "latest"
}

// validImageName reports whether name is a reference without digest:
// lower-case path components of letters, digits and separators.
func validImageName(name string) bool {
	path := name
	if colon := strings.LastIndex(name, ":"); colon > strings.LastIndex(name, "/") {
		if !imageTagPattern.MatchString(name[colon+1:]) {
			return false
		}
		path = name[:colon]
	}
	if host, rest, ok := strings.Cut(path, "/"); ok && (strings.ContainsAny(host, ".:") || host == "localhost") {
		if !imageHostPattern.MatchString(host) {
			return false
		}
		path = rest
	}
	return len(path) <= maxImagePath && imagePathPattern.MatchString(path)
}

func defaultFieldRef(ref *corev1.ObjectFieldSelector) {
	if ref != nil {
		defaults.Zero(&ref.APIVersion, "v1")
	}
}

func defaultProbe(p *corev1.Probe) {
	if p == nil {
		return
	}
	defaults.Zero(&p.TimeoutSeconds, 1)
	defaults.Zero(&p.PeriodSeconds, 10)
	defaults.Zero(&p.SuccessThreshold, 1)
	defaults.Zero(&p.FailureThreshold, 3)
	defaultHTTPGet(p.HTTPGet)
	if p.GRPC != nil {
		defaults.Nil(&p.GRPC.Service, "")
	}
}

func defaultHook(h *corev1.LifecycleHandler) {
	if h != nil {
		defaultHTTPGet(h.HTTPGet)
	}
}

func defaultHTTPGet(get *corev1.HTTPGetAction) {
	if get != nil {
		defaults.Zero(&get.Path, "/")
		defaults.Zero(&get.Scheme, corev1.URISchemeHTTP)
	}
}
