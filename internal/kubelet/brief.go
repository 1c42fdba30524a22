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

// showRunning says from when on the pod's status may be written: after now
// only if it is the first with which a pod that ends by itself is Running.
func showRunning(pod *v1.Pod, previous, next v1.PodPhase, observed *cri.Pod, now time.Time) time.Time {
	if pod.Spec.RestartPolicy == v1.RestartPolicyAlways || pod.DeletionTimestamp != nil ||
		next != v1.PodRunning || previous == v1.PodRunning {
		return now
	}
	from := now
	for _, c := range observed.Containers {
		if c.State == cri.Running && c.StartedAt.Add(brief).After(from) {
			from = c.StartedAt.Add(brief)
		}
	}
	return from
}
