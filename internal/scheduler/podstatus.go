package scheduler

import (
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// podStatuses orders what is written to the status of waiting pods: the writes
// of a pod follow one another, and a binding waits for them. It remembers the
// nominated node that was written last, so that the watch event of an own
// write is not taken for a nomination by another component.
type podStatuses struct {
	expects func(types.UID) bool // whether the pod still waits for a node

	mu   sync.Mutex // guards pods
	pods map[types.UID]*podStatus
}

// podStatus holds the written and observed status of a pod in the API.
type podStatus struct {
	nominated string        // last written or observed
	expected  []string      // written nominated nodes that were not observed yet, oldest first
	last      chan struct{} // closed when the last write that began has ended
	writes    int           // under way or waiting for their turn
}

func newPodStatuses(expects func(types.UID) bool) *podStatuses {
	return &podStatuses{expects: expects, pods: map[types.UID]*podStatus{}}
}

// begin takes the next turn to write the status of a pod. The caller waits for
// previous, writes, and calls end.
func (s *podStatuses) begin(pod *v1.Pod) (previous <-chan struct{}, end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.get(pod)
	ended := make(chan struct{})
	previous, p.last = p.last, ended
	p.writes++
	return previous, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		close(ended)
		if p.writes--; p.writes == 0 && !s.expects(pod.UID) {
			delete(s.pods, pod.UID)
		}
	}
}

// settled returns a channel that is closed once all writes have ended that
// were begun for the pod.
func (s *podStatuses) settled(uid types.UID) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.pods[uid]; p != nil {
		return p.last
	}
	return closed
}

var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// nominated returns the nominated node that the pod has in the API.
func (s *podStatuses) nominated(pod *v1.Pod) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.pods[pod.UID]; p != nil {
		return p.nominated
	}
	return pod.Status.NominatedNodeName
}

// writing notes the nominated node that is about to be written. undo takes it
// back after a write that failed; refused is whether it certainly had no effect.
// If it may have had, its watch event is still expected.
func (s *podStatuses) writing(pod *v1.Pod, node string) (undo func(refused bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.get(pod)
	before := p.nominated
	p.nominated = node
	if n := len(p.expected); n == 0 || p.expected[n-1] != node {
		p.expected = append(p.expected, node)
	}
	return func(refused bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		i := slices.Index(p.expected, node)
		if i < 0 {
			return // it was observed: the write took effect
		}
		p.nominated = before
		if refused {
			p.expected = slices.Delete(p.expected, i, i+1)
		}
	}
}

// observe takes the nominated node that a watch event brought. own reports
// that the scheduler wrote it.
func (s *podStatuses) observe(pod *v1.Pod) (own bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.get(pod)
	node := pod.Status.NominatedNodeName
	if i := slices.Index(p.expected, node); i >= 0 {
		p.expected = slices.Delete(p.expected, 0, i+1)
		if len(p.expected) == 0 {
			p.nominated = node
		}
		return true
	}
	p.nominated = node
	return false
}

// forget drops the state of a pod that is bound or gone.
func (s *podStatuses) forget(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.pods[uid]; p != nil && p.writes == 0 {
		delete(s.pods, uid)
	}
}

// get returns the state of a pod. The lock is held.
func (s *podStatuses) get(pod *v1.Pod) *podStatus {
	p := s.pods[pod.UID]
	if p == nil {
		p = &podStatus{nominated: pod.Status.NominatedNodeName, last: closed}
		s.pods[pod.UID] = p
	}
	return p
}
