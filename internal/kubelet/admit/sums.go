package admit

import (
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Sums adds up the requests of pods. It remembers the requests of each pod, so
// that a start on a node does not compute the requests of all pods of the node
// again. The zero value is ready. Its methods may be called from any goroutine.
type Sums struct {
	mu    sync.Mutex // guards known
	known map[types.UID]requests
}

// requests holds the resource requests of one version of a pod.
type requests struct {
	pod  *v1.Pod
	list v1.ResourceList
}

// Requests returns the sum of what pods, which do not change, request of the named
// resources. A pod may name tens of thousands of others.
func (s *Sums) Requests(pods []*v1.Pod, names ...v1.ResourceName) v1.ResourceList {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil || len(s.known) > 2*len(pods) { // most are gone
		s.known = make(map[types.UID]requests, len(pods))
	}
	total := v1.ResourceList{}
	for _, pod := range pods {
		r := s.known[pod.UID]
		if r.pod != pod {
			r = requests{pod, resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{UseStatusResources: true})}
			s.known[pod.UID] = r
		}
		for _, name := range names {
			q, requested := r.list[name]
			if !requested {
				continue
			}
			sum := total[name]
			sum.Add(q)
			total[name] = sum
		}
	}
	return total
}
