package framework

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	resourcehelper "k8s.io/component-helpers/resource"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	"github.com/coracle-io/coracle/internal/amount"
	podutil "github.com/coracle-io/coracle/internal/pod"
)

const (
	anyAddress = "0.0.0.0"
	// what a container that requests nothing counts for when nodes are ranked
	defaultCPU    = 100               // millicores
	defaultMemory = 200 * 1024 * 1024 // bytes
)

// Pod is a pod with what the plugins read of it, worked out once.
type Pod struct {
	Pod                       *v1.Pod
	Priority                  int32
	Requests                  Resources // Pods is 1
	NonZeroCPU, NonZeroMemory int64
	Ports                     []HostPort

	RequiredAffinity, RequiredAntiAffinity   []AffinityTerm
	PreferredAffinity, PreferredAntiAffinity []WeightedTerm
}

// AffinityTerm is a parsed v1.PodAffinityTerm.
type AffinityTerm struct {
	TopologyKey string
	key         string // which pods the term speaks of
	selector    labels.Selector
	namespaces  map[string]bool
	nsSelector  labels.Selector // nil: only the names
}

// WeightedTerm is a parsed v1.WeightedPodAffinityTerm.
type WeightedTerm struct {
	AffinityTerm
	Weight int64
}

// Matches reports whether a pod is one that the term speaks of.
func (t *AffinityTerm) Matches(pod *v1.Pod, namespaces map[string]map[string]string) bool {
	if !t.namespaces[pod.Namespace] && (t.nsSelector == nil || !t.nsSelector.Matches(labels.Set(namespaces[pod.Namespace]))) {
		return false
	}
	return t.selector.Matches(labels.Set(pod.Labels))
}

// NewPod works out a pod. The selectors of a stored pod are valid; one that
// is not selects nothing.
func NewPod(pod *v1.Pod) *Pod {
	p := &Pod{Pod: pod, Priority: corev1helpers.PodPriority(pod)}
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{UseStatusResources: true})
	p.Requests = ResourcesOf(requests)
	p.Requests.Pods = 1
	floor := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{
		UseStatusResources: true,
		NonMissingContainerRequests: v1.ResourceList{
			v1.ResourceCPU:    *resource.NewMilliQuantity(defaultCPU, resource.DecimalSI),
			v1.ResourceMemory: *resource.NewQuantity(defaultMemory, resource.BinarySI),
		},
	})
	p.NonZeroCPU, p.NonZeroMemory = amount.Milli(*floor.Cpu()), amount.Value(*floor.Memory())
	p.Ports = hostPorts(&pod.Spec)
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

// nonZero is what the pod counts for when nodes are ranked.
func (p *Pod) nonZero() Resources { return Resources{CPU: p.NonZeroCPU, Memory: p.NonZeroMemory} }

// hostPorts are the host ports of all containers that run as long as the pod.
func hostPorts(s *v1.PodSpec) (ports []HostPort) {
	add := func(c *v1.Container) {
		for _, port := range c.Ports {
			if port.HostPort > 0 {
				ports = append(ports, hostPort(port))
			}
		}
	}
	for i := range s.Containers {
		add(&s.Containers[i])
	}
	for i := range s.InitContainers {
		if podutil.IsSidecar(&s.InitContainers[i]) {
			add(&s.InitContainers[i])
		}
	}
	return ports
}

func hostPort(port v1.ContainerPort) HostPort {
	h := HostPort{IP: port.HostIP, Protocol: port.Protocol, Port: port.HostPort}
	if h.IP == "" {
		h.IP = anyAddress
	}
	if h.Protocol == "" {
		h.Protocol = v1.ProtocolTCP
	}
	return h
}

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
	t := AffinityTerm{TopologyKey: term.TopologyKey, namespaces: map[string]bool{}, selector: selectorOf(term.LabelSelector)}
	for _, ns := range term.Namespaces {
		t.namespaces[ns] = true
	}
	if term.NamespaceSelector != nil {
		t.nsSelector = selectorOf(term.NamespaceSelector)
	} else if len(term.Namespaces) == 0 {
		t.namespaces[pod.Namespace] = true
	}
	t.key = termKey(&t)
	return t
}

func selectorOf(s *metav1.LabelSelector) labels.Selector {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return labels.Nothing()
	}
	return selector
}
