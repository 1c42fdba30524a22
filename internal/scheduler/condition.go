package scheduler

import (
	"context"
	"encoding/json"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// explain sets the condition PodScheduled to False with the given message,
// unless it says so already.
func (s *Scheduler) explain(ctx context.Context, pod *v1.Pod, message string) error {
	since := metav1.Now()
	for _, c := range pod.Status.Conditions {
		if c.Type != v1.PodScheduled {
			continue
		}
		if c.Status == v1.ConditionFalse && c.Reason == v1.PodReasonUnschedulable && c.Message == message {
			return nil
		}
		if c.Status == v1.ConditionFalse {
			since = c.LastTransitionTime
		}
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID},
		"status": map[string]any{"conditions": []v1.PodCondition{{
			Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable,
			Message: message, LastTransitionTime: since, ObservedGeneration: pod.Generation,
		}}},
	})
	if err != nil {
		return err
	}
	_, err = s.client.Kubernetes.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}
