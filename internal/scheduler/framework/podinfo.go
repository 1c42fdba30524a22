package framework

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	resourcehelper "k8s.io/component-helpers/resource"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	"github.com/coracle-io/coracle/internal/amount"
	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/podquery"
)

const (
	// A container without a request counts with these values when nodes are
	// scored.
	defaultCPU    = 100               // millicores
	defaultMemory = 200 * 1024 * 1024 // bytes
)

// PodInfo is a pod with what the plugins read of it, computed once. It is
// immutable and shared between goroutines.
type PodInfo struct {
	Pod                       *v1.Pod
	Priority                  int32
	Requests                  Resources // Pods is 1
	NonZeroCPU, NonZeroMemory int64
	Ports                     []podquery.HostPort
	// Claims are the pod's PersistentVolumeClaims as "namespace/name", each once.
	Claims []string

	RequiredAffinity, RequiredAntiAffinity   []AffinityTerm
	PreferredAffinity, PreferredAntiAffinity []WeightedTerm
}

// AffinityTerm is a parsed v1.PodAffinityTerm.
type AffinityTerm struct {
	TopologyKey string
	key         string // identifies the pods that the term selects
	selector    labels.Selector
	namespaces  map[string]bool
	nsSelector  labels.Selector // nil: only the names
}

// WeightedTerm is a parsed v1.WeightedPodAffinityTerm.
type WeightedTerm struct {
	AffinityTerm
	Weight int64
}

// Matches reports whether the term selects a pod. namespaces are the labels of
// each namespace.
func (t *AffinityTerm) Matches(pod *v1.Pod, namespaces map[string]map[string]string) bool {
	if !t.namespaces[pod.Namespace] && (t.nsSelector == nil || !t.nsSelector.Matches(labels.Set(namespaces[pod.Namespace]))) {
		return false
	}
	return t.selector.Matches(labels.Set(pod.Labels))
}

// Key is equal for terms that mean the same.
func (t *AffinityTerm) Key() string { return fmt.Sprintf("%q %s", t.TopologyKey, t.key) }

// String is the label selector of the term.
func (t *AffinityTerm) String() string {
	if text := t.selector.String(); text != "" {
		return text
	}
	if _, selectable := t.selector.Requirements(); !selectable {
		return "no label selector"
	}
	return "any labels"
}

// MayMatch reports whether the term selects a pod if the labels of its
// namespace are right. Queueing hints ask it, which know no namespaces.
func (t *AffinityTerm) MayMatch(pod *v1.Pod) bool {
	return (t.nsSelector != nil || t.namespaces[pod.Namespace]) && t.selector.Matches(labels.Set(pod.Labels))
}

// Visible returns a pod as the feature gates show it: without the resources of the pod
// as a whole if PodLevelResources is off, and without those in its status if
// InPlacePodLevelResourcesVerticalScaling is. It does not change pod, and returns it
// itself if there is nothing to hide.
func Visible(pod *v1.Pod, features *feature.Set) *v1.Pod {
	spec := pod.Spec.Resources != nil && !features.Enabled(feature.PodLevelResources)
	status := (pod.Status.Resources != nil || pod.Status.AllocatedResources != nil) && !features.Enabled(feature.InPlacePodLevelResourcesVerticalScaling)
	if !spec && !status {
		return pod
	}
	visible := *pod
	if spec {
		visible.Spec.Resources = nil
	}
	if status {
		visible.Status.Resources, visible.Status.AllocatedResources = nil, nil
	}
	return &visible
}

// IsResizing reports whether the pod runs, and waits for room for a resize that the
// kubelet has deferred.
func (p *PodInfo) IsResizing() bool {
	return p.Pod.Spec.NodeName != "" && resourcehelper.IsPodResizeDeferred(p.Pod)
}

// Update returns the PodInfo of a newer version of the same pod. It does not
// compute fields again that cannot have changed.
func (p *PodInfo) Update(pod *v1.Pod) *PodInfo {
	if old := p.Pod; old.UID != pod.UID || !maps.Equal(old.Labels, pod.Labels) || !SameRequests(old, pod) {
		return NewPodInfo(pod)
	}
	updated := *p
	updated.Pod = pod
	return &updated
}

// SameRequests reports whether two versions of a pod have the same of all that
// their requests are computed from.
func SameRequests(old, pod *v1.Pod) bool {
	return old.Generation == pod.Generation &&
		slices.EqualFunc(old.Status.ContainerStatuses, pod.Status.ContainerStatuses, sameStatus) &&
		slices.EqualFunc(old.Status.InitContainerStatuses, pod.Status.InitContainerStatuses, sameStatus) &&
		sameResources(old.Status.Resources, pod.Status.Resources) &&
		sameList(old.Status.AllocatedResources, pod.Status.AllocatedResources) &&
		resourcehelper.IsPodResizeInfeasible(old) == resourcehelper.IsPodResizeInfeasible(pod)
}

func sameStatus(a, b v1.ContainerStatus) bool {
	return a.Name == b.Name && sameResources(a.Resources, b.Resources) && sameList(a.AllocatedResources, b.AllocatedResources)
}

func sameResources(a, b *v1.ResourceRequirements) bool {
	return a == b || a != nil && b != nil && sameList(a.Requests, b.Requests)
}

// sameList tells nil from an empty list, as the computation of requests does.
func sameList(a, b v1.ResourceList) bool {
	return (a == nil) == (b == nil) && maps.EqualFunc(a, b, func(p, q resource.Quantity) bool { return p.Cmp(q) == 0 })
}

// NewPodInfo parses a pod. The selectors of a stored pod are valid; one that
// is not selects nothing.
func NewPodInfo(pod *v1.Pod) *PodInfo {
	p := &PodInfo{Pod: pod, Priority: corev1helpers.PodPriority(pod)}
	p.setRequests()
	for port := range podquery.HostPorts(&pod.Spec) {
		p.Ports = append(p.Ports, port)
	}
	for name := range podquery.ClaimNames(pod) {
		if key := pod.Namespace + "/" + name; !slices.Contains(p.Claims, key) {
			p.Claims = append(p.Claims, key)
		}
	}
	if a := pod.Spec.Affinity; a != nil {
		if a.PodAffinity != nil {
			p.RequiredAffinity = required(pod, a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
			p.PreferredAffinity = preferred(pod, a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
		}
		if a.PodAntiAffinity != nil {
			p.RequiredAntiAffinity = required(pod, a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
			p.PreferredAntiAffinity = preferred(pod, a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
		}
	}
	return p
}

// setRequests computes what the pod requests.
func (p *PodInfo) setRequests() {
	// Only a kubelet that resizes pods writes what is counted of their status.
	options := resourcehelper.PodResourcesOptions{UseStatusResources: hasStatusResources(p.Pod), InPlacePodLevelResourcesVerticalScalingEnabled: true}
	p.Requests = ResourcesOf(resourcehelper.PodRequests(p.Pod, options))
	p.Requests.Pods = 1
	p.NonZeroCPU, p.NonZeroMemory = p.Requests.CPU, p.Requests.Memory
	if requestAll(p.Pod.Spec.Containers) && requestAll(p.Pod.Spec.InitContainers) && !options.UseStatusResources {
		return
	}
	options.NonMissingContainerRequests = v1.ResourceList{
		v1.ResourceCPU:    *resource.NewMilliQuantity(defaultCPU, resource.DecimalSI),
		v1.ResourceMemory: *resource.NewQuantity(defaultMemory, resource.BinarySI),
	}
	floor := resourcehelper.PodRequests(p.Pod, options)
	p.NonZeroCPU, p.NonZeroMemory = amount.Milli(*floor.Cpu()), amount.Value(*floor.Memory())
}

// hasStatusResources reports whether the status of a pod may say other requests
// than its spec.
func hasStatusResources(pod *v1.Pod) bool {
	s := &pod.Status
	return len(s.ContainerStatuses) > 0 || len(s.InitContainerStatuses) > 0 || s.Resources != nil || s.AllocatedResources != nil ||
		resourcehelper.IsPodResizeInfeasible(pod)
}

// requestAll reports whether each container requests CPU and memory.
func requestAll(containers []v1.Container) bool {
	for i := range containers {
		requests := containers[i].Resources.Requests
		if _, ok := requests[v1.ResourceCPU]; !ok {
			return false
		}
		if _, ok := requests[v1.ResourceMemory]; !ok {
			return false
		}
	}
	return true
}

// RequestsSignature is a text that is the same for pods that request the same.
func (p *PodInfo) RequestsSignature() string {
	r := &p.Requests
	text := make([]byte, 0, 64)
	for _, n := range [...]int64{r.CPU, r.Memory, r.EphemeralStorage, p.NonZeroCPU, p.NonZeroMemory} {
		text = binary.AppendVarint(text, n)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Scalar)) {
		text = binary.AppendVarint(append(append(text, name...), 0), r.Scalar[name])
	}
	return string(text)
}

// nonZero returns the CPU and memory that the pod counts for when nodes are
// scored.
func (p *PodInfo) nonZero() Resources { return Resources{CPU: p.NonZeroCPU, Memory: p.NonZeroMemory} }

func required(pod *v1.Pod, terms []v1.PodAffinityTerm) []AffinityTerm {
	out := make([]AffinityTerm, 0, len(terms))
	for i := range terms {
		out = append(out, newTerm(pod, &terms[i]))
	}
	return out
}

func preferred(pod *v1.Pod, terms []v1.WeightedPodAffinityTerm) []WeightedTerm {
	out := make([]WeightedTerm, 0, len(terms))
	for i := range terms {
		out = append(out, WeightedTerm{AffinityTerm: newTerm(pod, &terms[i].PodAffinityTerm), Weight: int64(terms[i].Weight)})
	}
	return out
}

// newTerm parses a term. The API server has merged matchLabelKeys and
// mismatchLabelKeys (KEP-3633) into the selector when the pod was created.
func newTerm(pod *v1.Pod, term *v1.PodAffinityTerm) AffinityTerm {
	t := AffinityTerm{TopologyKey: term.TopologyKey, namespaces: map[string]bool{}, selector: podquery.Selector(term.LabelSelector)}
	for _, ns := range term.Namespaces {
		t.namespaces[ns] = true
	}
	if term.NamespaceSelector != nil {
		t.nsSelector = podquery.Selector(term.NamespaceSelector)
	} else if len(term.Namespaces) == 0 {
		t.namespaces[pod.Namespace] = true
	}
	t.key = keyOf(&t)
	return t
}
