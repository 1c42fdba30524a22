package job

import (
	"fmt"
	"slices"
	"time"

	batch "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"

	podutil "github.com/coracle-io/coracle/internal/pod"
)

// Restarting pods that failed is put off from the first to the last of these,
// doubling with every failure in a row.
const (
	firstBackoff = 10 * time.Second
	lastBackoff  = 10 * time.Minute
)

func backoff(streak int) time.Duration {
	d := firstBackoff
	for range streak - 1 {
		if d >= lastBackoff {
			return lastBackoff
		}
		d *= 2
	}
	return min(d, lastBackoff)
}

// restartedTooOften looks at pods that the kubelet restarts in place.
func (s snapshot) restartedTooOften(o outcome, limit int32) bool {
	if s.job.Spec.Template.Spec.RestartPolicy != v1.RestartPolicyOnFailure {
		return false
	}
	restarts := int64(0)
	for _, pod := range o.active {
		if pod.Status.Phase != v1.PodRunning && pod.Status.Phase != v1.PodPending {
			continue
		}
		for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			restarts += int64(c.RestartCount)
		}
	}
	if limit == 0 {
		return restarts > 0
	}
	return restarts >= int64(limit)
}

// judgeFailure applies the pod failure policy (KEP-3329) to a pod that failed.
func judgeFailure(job *batch.Job, pod *v1.Pod) (batch.PodFailurePolicyAction, string) {
	if job.Spec.PodFailurePolicy == nil {
		return batch.PodFailurePolicyActionCount, ""
	}
	for i, rule := range job.Spec.PodFailurePolicy.Rules {
		if rule.OnExitCodes != nil {
			for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
				t := c.State.Terminated
				if t == nil || t.ExitCode == 0 || rule.OnExitCodes.ContainerName != nil && *rule.OnExitCodes.ContainerName != c.Name {
					continue
				}
				in := slices.Contains(rule.OnExitCodes.Values, t.ExitCode)
				if in == (rule.OnExitCodes.Operator == batch.PodFailurePolicyOnExitCodesOpIn) {
					return rule.Action, fmt.Sprintf("Container %s for pod %s/%s failed with exit code %d matching %s rule at index %d", c.Name, pod.Namespace, pod.Name, t.ExitCode, rule.Action, i)
				}
			}
			continue
		}
		for _, want := range rule.OnPodConditions {
			if c := podutil.Condition(&pod.Status, want.Type); c != nil && c.Status == want.Status {
				return rule.Action, fmt.Sprintf("Pod %s/%s has condition %s matching %s rule at index %d", pod.Namespace, pod.Name, want.Type, rule.Action, i)
			}
		}
	}
	return batch.PodFailurePolicyActionCount, ""
}
