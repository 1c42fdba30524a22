package pod

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/nativehistogram"
	"github.com/coracle-io/coracle/internal/podquery"
)

// startups measures how long pods of the API server take to start, under upstream's
// names. Its methods may be called from any goroutine.
type startups struct {
	total prometheus.Histogram
	// indicator leaves out pulls of images, init containers, and pods with volumes
	// that are not made on the node:
	// https://github.com/kubernetes/community/blob/master/sig-scalability/slos/pod_startup_latency.md
	indicator prometheus.Histogram

	mu   sync.Mutex             // guards what follows
	pods map[types.UID]*startup // pods that are new to the node and have not started
}

// startup is what is known of a pod that starts.
type startup struct {
	pulls  int           // under way
	since  time.Time     // when the first of them began
	pulled time.Duration // during which there were pulls that have ended
}

func newStartups() *startups {
	const what = "measured from pod creation timestamp to when all its containers are reported as started and observed via watch"
	histogram := func(name, help string) prometheus.Histogram {
		return nativehistogram.New(prometheus.HistogramOpts{Name: name, Help: "[ALPHA] " + help + ", " + what, Buckets: startBuckets()})
	}
	return &startups{
		total: histogram("kubelet_pod_start_total_duration_seconds",
			"Duration in seconds to start a pod since creation, including time to pull images and run init containers"),
		indicator: histogram("kubelet_pod_start_sli_duration_seconds",
			"Duration in seconds to start a pod, excluding time to pull images and run init containers"),
		pods: map[types.UID]*startup{},
	}
}

// watched measures a pod, as the API server shows it now, once all of its containers run.
func (s *startups) watched(pod *v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.pods[pod.UID]
	switch {
	case podquery.Ended(pod.Status.Phase):
		delete(s.pods, pod.UID)
	case known == nil && pod.Status.StartTime == nil:
		s.pods[pod.UID] = &startup{}
	case known != nil && run(pod):
		delete(s.pods, pod.UID)
		took := time.Since(pod.CreationTimestamp.Time)
		s.total.Observe(took.Seconds())
		if stateless(pod) {
			s.indicator.Observe((took - known.pulled - initialized(pod)).Seconds())
		}
	}
}

// forget drops a pod that has been removed.
func (s *startups) forget(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pods, uid)
}

// pull notes that a pull for a pod begins. The caller calls ended at its end.
func (s *startups) pull(uid types.UID) (ended func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pods[uid]
	if p == nil {
		return func() {}
	}
	if p.pulls++; p.pulls == 1 {
		p.since = time.Now()
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if p.pulls--; p.pulls == 0 {
			p.pulled += time.Since(p.since)
		}
	}
}

// run reports whether all containers of a pod run.
func run(pod *v1.Pod) bool {
	for i := range pod.Status.ContainerStatuses {
		if pod.Status.ContainerStatuses[i].State.Running == nil {
			return false
		}
	}
	return len(pod.Status.ContainerStatuses) == len(pod.Spec.Containers)
}

// stateless reports whether a pod has no volumes but those that are made on the node.
func stateless(pod *v1.Pod) bool {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Secret == nil && v.ConfigMap == nil && v.DownwardAPI == nil && v.EmptyDir == nil && v.Projected == nil {
			return false
		}
	}
	return true
}

// initialized returns how long the init containers ran that have ended.
func initialized(pod *v1.Pod) (took time.Duration) {
	for i := range pod.Status.InitContainerStatuses {
		if t := pod.Status.InitContainerStatuses[i].State.Terminated; t != nil {
			took += t.FinishedAt.Sub(t.StartedAt.Time)
		}
	}
	return took
}
