package kubelet

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/kubelet/cri"
)

// brief is how long a container must have run before a pod that ends by
// itself is shown as Running. Whoever waits for that to attach (`kubectl run
// -i --rm`) would come too late for what a shorter command says; of a pod that
// is Succeeded or Failed they read the log. It also saves a write.
const brief = 300 * time.Millisecond

// showRunning says until when the pod's status is held back: it is the first
// with which a pod that ends by itself is Running, and shown too soon. The zero
// time lets it be written.
func showRunning(pod *v1.Pod, previous, next v1.PodPhase, observed *cri.Pod, now time.Time) (until time.Time) {
	if pod.Spec.RestartPolicy == v1.RestartPolicyAlways || pod.DeletionTimestamp != nil ||
		next != v1.PodRunning || previous == v1.PodRunning {
		return until
	}
	for _, c := range observed.Containers {
		if shown := c.StartedAt.Add(brief); c.State == cri.Running && shown.After(now) && shown.After(until) {
			until = shown
		}
	}
	return until
}
