package core

import (
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	podresource "k8s.io/component-helpers/resource"

	podutil "github.com/coracle-io/coracle/internal/pod"
	"github.com/coracle-io/coracle/internal/resource/fill"
)

// maxImagePath is the longest repository name that registries take.
const maxImagePath = 255

// The parts of an image reference, as the distribution specification has them.
var (
	imageHostPattern = regexp.MustCompile(`^(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])(?:\.(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9]))*(?::[0-9]+)?$|^\[[a-fA-F0-9:]+\](?::[0-9]+)?$`)
	imageTagPattern  = regexp.MustCompile(`^[\w][\w.-]{0,127}$`)
	imagePathPattern = regexp.MustCompile(`^[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*$`)
)

func defaultPod(pod *corev1.Pod) {
	spec := &pod.Spec
	DefaultPodSpec(spec)
	fill.Nil(&spec.EnableServiceLinks, true)
	for c := range podutil.Containers(spec) {
		requestLimits(&c.Resources)
	}
	requestPodLimits(spec)
	if spec.HostNetwork {
		exposeOnHost(spec.InitContainers)
		exposeOnHost(spec.Containers)
	}
}

// requestLimits requests what is limited and not requested.
func requestLimits(r *corev1.ResourceRequirements) {
	for name, limit := range r.Limits {
		if _, ok := r.Requests[name]; ok {
			continue
		}
		if r.Requests == nil {
			r.Requests = corev1.ResourceList{}
		}
		r.Requests[name] = limit.DeepCopy()
	}
}

// requestPodLimits requests for a pod with limits of its own what they leave
// unrequested: what its containers request in total, or else the limit.
func requestPodLimits(spec *corev1.PodSpec) {
	if spec.Resources == nil || len(spec.Resources.Limits)+len(spec.Resources.Requests) == 0 {
		return
	}
	totals := podresource.AggregateContainerRequests(&corev1.Pod{Spec: *spec}, podresource.PodResourcesOptions{})
	for name := range totals {
		if _, ok := spec.Resources.Requests[name]; ok || !podresource.IsSupportedPodLevelResource(name) {
			continue
		}
		if spec.Resources.Requests == nil {
			spec.Resources.Requests = corev1.ResourceList{}
		}
		spec.Resources.Requests[name] = totals[name]
	}
	requestLimits(spec.Resources)
}

// exposeOnHost makes container ports host ports, which they are in the
// network of the host anyway.
func exposeOnHost(containers []corev1.Container) {
	for i := range containers {
		for j := range containers[i].Ports {
			fill.Zero(&containers[i].Ports[j].HostPort, containers[i].Ports[j].ContainerPort)
		}
	}
}

// DefaultPodTemplateSpec fills in what a pod template leaves out.
func DefaultPodTemplateSpec(template *corev1.PodTemplateSpec) {
	DefaultPodSpec(&template.Spec)
}

// DefaultPodSpec fills in what pods and pod templates alike leave out.
func DefaultPodSpec(spec *corev1.PodSpec) {
	fill.Zero(&spec.DNSPolicy, corev1.DNSClusterFirst)
	fill.Zero(&spec.RestartPolicy, corev1.RestartPolicyAlways)
	if spec.SecurityContext == nil {
		spec.SecurityContext = &corev1.PodSecurityContext{}
	}
	fill.Nil(&spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)
	fill.Zero(&spec.SchedulerName, corev1.DefaultSchedulerName)
	if spec.DeprecatedServiceAccount != "" && spec.ServiceAccountName == "" {
		spec.ServiceAccountName = spec.DeprecatedServiceAccount
	}
	spec.DeprecatedServiceAccount = spec.ServiceAccountName
	roundResources(spec.Overhead)
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
		roundResources(spec.Resources.Limits)
		roundResources(spec.Resources.Requests)
	}
}

// asContainer views an ephemeral container as the container that it is.
func asContainer(c *corev1.EphemeralContainer) *corev1.Container {
	return (*corev1.Container)(&c.EphemeralContainerCommon)
}

func defaultContainer(c *corev1.Container) {
	fill.Zero(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	fill.Zero(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	fill.Zero(&c.ImagePullPolicy, pullPolicyOf(c.Image))
	for i := range c.Ports {
		fill.Zero(&c.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil {
			defaultFieldRef(from.FieldRef)
			if from.FileKeyRef != nil {
				fill.Nil(&from.FileKeyRef.Optional, false)
			}
		}
	}
	roundResources(c.Resources.Limits)
	roundResources(c.Resources.Requests)
	defaultProbe(c.LivenessProbe)
	defaultProbe(c.ReadinessProbe)
	defaultProbe(c.StartupProbe)
	if c.Lifecycle != nil {
		defaultHook(c.Lifecycle.PostStart)
		defaultHook(c.Lifecycle.PreStop)
	}
}

// pullPolicyOf pulls always what may move: the tag latest, said or unsaid.
func pullPolicyOf(image string) corev1.PullPolicy {
	if imageTag(image) == "latest" {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

// imageTag is the tag that an image reference means: "latest" if it names
// neither tag nor digest, "" if it names a digest alone or is malformed.
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
		fill.Zero(&ref.APIVersion, "v1")
	}
}

func defaultProbe(p *corev1.Probe) {
	if p == nil {
		return
	}
	fill.Zero(&p.TimeoutSeconds, 1)
	fill.Zero(&p.PeriodSeconds, 10)
	fill.Zero(&p.SuccessThreshold, 1)
	fill.Zero(&p.FailureThreshold, 3)
	defaultHTTPGet(p.HTTPGet)
	if p.GRPC != nil {
		fill.Nil(&p.GRPC.Service, "")
	}
}

func defaultHook(h *corev1.LifecycleHandler) {
	if h != nil {
		defaultHTTPGet(h.HTTPGet)
	}
}

func defaultHTTPGet(get *corev1.HTTPGetAction) {
	if get != nil {
		fill.Zero(&get.Path, "/")
		fill.Zero(&get.Scheme, corev1.URISchemeHTTP)
	}
}

// roundResources rounds what is finer than a thousandth of a unit up.
func roundResources(list corev1.ResourceList) {
	for name, quantity := range list {
		const milli = -3
		quantity.RoundUp(milli)
		_ = quantity.String() // remembered for all the encodings to come
		list[name] = quantity
	}
}
