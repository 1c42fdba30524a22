// Package poddisruption deletes pods on behalf of the control plane, and says
// why in their condition DisruptionTarget (KEP-3329).
package poddisruption

import (
	"context"
	"encoding/json"
	"slices"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/coracle-io/coracle/internal/podquery"
)

// Evict sets the condition DisruptionTarget of a pod and deletes the pod with
// its own grace period. It ignores disruption budgets. It returns the results
// of Delete.
func Evict(ctx context.Context, client kubernetes.Interface, pod *v1.Pod, reason, message string) (found bool, err error) {
	condition := podquery.DisruptionTarget(pod, reason, message, metav1.Now())
	return Delete(ctx, client, pod, v1.PodStatus{Conditions: []v1.PodCondition{condition}}, metav1.DeleteOptions{})
}

// Delete sets the phase and the conditions that status has, and deletes the pod.
// It writes no status that the pod already has. Neither write changes another
// pod of the same name. found is false, without an error, if the pod is gone.
func Delete(ctx context.Context, client kubernetes.Interface, pod *v1.Pod, status v1.PodStatus, options metav1.DeleteOptions) (found bool, err error) {
	pods := client.CoreV1().Pods(pod.Namespace)
	if changes := changed(pod, status); len(changes) > 0 {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": changes})
		if err != nil {
			return false, err
		}
		if _, err := pods.Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
			return false, unlessGone(ctx, pods, pod, err)
		}
	}
	options.Preconditions = &metav1.Preconditions{UID: &pod.UID}
	if err := pods.Delete(ctx, pod.Name, options); err != nil {
		return false, unlessGone(ctx, pods, pod, err)
	}
	return true, nil
}

// changed returns what a patch must set in the status of a pod.
func changed(pod *v1.Pod, status v1.PodStatus) map[string]any {
	changes := map[string]any{}
	if status.Phase != "" && status.Phase != pod.Status.Phase {
		changes["phase"] = status.Phase
	}
	conditions := slices.DeleteFunc(slices.Clone(status.Conditions), func(c v1.PodCondition) bool {
		old := podquery.Condition(&pod.Status, c.Type)
		return old != nil && *old == c
	})
	if len(conditions) > 0 {
		changes["conditions"] = conditions
	}
	return changes
}

// unlessGone returns nil if err says that the pod is gone. A conflict alone does
// not: it may also mean that the pod has changed. Callers have the right to list
// pods, and some, such as the pod garbage collector, do not have the right to get them.
func unlessGone(ctx context.Context, pods typedcorev1.PodInterface, pod *v1.Pod, err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case !apierrors.IsConflict(err):
		return err
	}
	list, listErr := pods.List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, pod.Name).String()})
	if listErr == nil && !slices.ContainsFunc(list.Items, func(p v1.Pod) bool { return p.UID == pod.UID }) {
		return nil
	}
	return err
}
