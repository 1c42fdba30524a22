package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/scheduler/queue"
	"github.com/coracle-io/coracle/internal/supervise"
)

// statusWriter writes the statuses of pods.
type statusWriter struct {
	client    *client.Client
	nominator *queue.Nominator
	statuses  *podStatuses
	slots     chan struct{} // one for each status that is being written
	// nominatesDecided is the feature NominatedNodeNameForExpectation: a pod whose
	// binding waits is nominated for its node.
	nominatesDecided bool
}

// report begins to write to the pod why it was not scheduled, and where it is
// nominated, in one patch. It writes nothing that the pod says already.
func (w *statusWriter) report(ctx context.Context, pod *v1.Pod, condition *v1.PodCondition) {
	w.writeNominated(ctx, pod, condition, func() string { return w.nominator.NominatedNode(pod.UID) })
}

// writeNomination is framework.Handle.WriteNomination.
func (w *statusWriter) writeNomination(ctx context.Context, pod *framework.PodInfo) {
	w.writeNominated(ctx, pod.Pod, nil, func() string { return w.nominator.NominatedNode(pod.Pod.UID) })
}

// writeNominated begins to write the status of a pod: the condition, if there is one, and
// the nominated node, which is asked for when the earlier writes have ended.
func (w *statusWriter) writeNominated(ctx context.Context, pod *v1.Pod, condition *v1.PodCondition, nominated func() string) {
	previous, end := w.statuses.begin(pod)
	supervise.Go(ctx, func() {
		defer end()
		supervise.FailOnPanic(ctx, func() {
			<-previous
			w.slots <- struct{}{}
			defer func() { <-w.slots }()
			if err := w.writeStatus(ctx, pod, condition, nominated()); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Writing the pod's status failed", "pod", klog.KObj(pod))
			}
		})
	})
}

// writeStatus writes the condition, if there is one, and the nominated node, if
// it is another than the pod has.
func (w *statusWriter) writeStatus(ctx context.Context, pod *v1.Pod, condition *v1.PodCondition, node string) error {
	status := map[string]any{}
	if condition != nil {
		status["conditions"] = []v1.PodCondition{*condition}
	}
	undo := func(bool) {}
	if node != w.statuses.nominated(pod) {
		undo = w.statuses.writing(pod, node)
		status["nominatedNodeName"] = node
		if node == "" {
			status["nominatedNodeName"] = nil
		}
	}
	if len(status) == 0 {
		return nil
	}
	err := w.patchStatus(ctx, pod, status)
	if err != nil {
		undo(refused(err))
	}
	return err
}

// refused reports whether an error says that a request had no effect. Others,
// such as a lost connection, leave that open.
func refused(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError && code != http.StatusRequestTimeout
}

// failedCondition returns the condition PodScheduled to write, or nil if the
// pod has it already.
func failedCondition(pod *v1.Pod, unschedulable bool, message string) *v1.PodCondition {
	reason := v1.PodReasonUnschedulable
	if !unschedulable {
		reason = v1.PodReasonSchedulerError
	}
	since := metav1.Now()
	if c := podquery.Condition(&pod.Status, v1.PodScheduled); c != nil && c.Status == v1.ConditionFalse {
		if c.Reason == reason && c.Message == message {
			return nil
		}
		since = c.LastTransitionTime
	}
	return &v1.PodCondition{
		Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: reason, Message: message,
		LastTransitionTime: since, ObservedGeneration: pod.Generation,
	}
}

// patchStatus merges status into the status of the pod. A pod that is gone or was
// replaced is no error.
func (w *statusWriter) patchStatus(ctx context.Context, pod *v1.Pod, status map[string]any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err != nil {
		return err
	}
	_, err = w.client.Kubernetes.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) && w.isGone(ctx, pod) {
		return nil
	}
	return err
}

// isGone reports whether the pod is gone or was replaced. A conflict alone does
// not say so: other writers may have been faster, or a webhook may say it.
func (w *statusWriter) isGone(ctx context.Context, pod *v1.Pod) bool {
	now, err := w.client.Kubernetes.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	return apierrors.IsNotFound(err) || err == nil && now.UID != pod.UID
}
