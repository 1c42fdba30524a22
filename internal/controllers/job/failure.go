package job

import (
	"fmt"
	"slices"
	"time"

	batch "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/podquery"
)

// Initial and maximum back-off before failed pods are replaced. It doubles with every
// consecutive failure.
const (
	initialBackoff = 10 * time.Second
	maxBackoff     = 10 * time.Minute
)

// backoff returns the back-off after a number of consecutive failures, at least one.
func backoff(failures int) time.Duration {
	d := initialBackoff
	for range failures - 1 {
		if d >= maxBackoff {
			return maxBackoff
		}
		d *= 2
	}
	return min(d, maxBackoff)
}

// pastBackoffLimitOnFailure reports whether the containers of pods with the restart
// policy OnFailure have been restarted more often than the back-off limit allows.
func (s snapshot) pastBackoffLimitOnFailure(o podGroups, limit int32) bool {
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

// matchPodFailurePolicy returns the action of the pod failure policy (KEP-3329) for a
// failed pod, and a message if a rule matches. Rules of unknown actions and operators do not
// match.
func matchPodFailurePolicy(job *batch.Job, pod *v1.Pod) (batch.PodFailurePolicyAction, string) {
	if job.Spec.PodFailurePolicy == nil {
		return batch.PodFailurePolicyActionCount, ""
	}
	for i, rule := range job.Spec.PodFailurePolicy.Rules {
		switch rule.Action {
		case batch.PodFailurePolicyActionCount, batch.PodFailurePolicyActionFailIndex, batch.PodFailurePolicyActionFailJob, batch.PodFailurePolicyActionIgnore:
		default:
			continue
		}
		if rule.OnExitCodes != nil {
			for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
				t := c.State.Terminated
				if t == nil || t.ExitCode == 0 || rule.OnExitCodes.ContainerName != nil && *rule.OnExitCodes.ContainerName != c.Name {
					continue
				}
				wanted := batch.PodFailurePolicyOnExitCodesOpNotIn
				if slices.Contains(rule.OnExitCodes.Values, t.ExitCode) {
					wanted = batch.PodFailurePolicyOnExitCodesOpIn
				}
				if rule.OnExitCodes.Operator == wanted {
					return rule.Action, fmt.Sprintf("Container %s for pod %s/%s failed with exit code %d matching %s rule at index %d", c.Name, pod.Namespace, pod.Name, t.ExitCode, rule.Action, i)
				}
			}
			continue
		}
		for _, want := range rule.OnPodConditions {
			if c := podquery.Condition(&pod.Status, want.Type); c != nil && c.Status == want.Status {
				return rule.Action, fmt.Sprintf("Pod %s/%s has condition %s matching %s rule at index %d", pod.Namespace, pod.Name, want.Type, rule.Action, i)
			}
		}
	}
	return batch.PodFailurePolicyActionCount, ""
}
