package gangscheduling

import (
	"context"
	"encoding/json"
	"sync"

	schedulingapi "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	schedulinglisters "k8s.io/client-go/listers/scheduling/v1beta1"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/supervise"
)

// maxReported bounds the groups whose last condition is remembered.
const maxReported = 10_000

// reporter writes the condition PodGroupInitiallyScheduled of groups. Once it
// is true it stays so.
type reporter struct {
	kube   kubernetes.Interface
	groups schedulinglisters.PodGroupLister

	// mu is held while a condition is written: a later one must not come first.
	mu sync.Mutex
	// written are the last conditions, which the informer may not show yet.
	written map[types.UID]metav1.Condition
}

// report begins to write a condition.
func (r *reporter) report(ctx context.Context, group types.NamespacedName, condition metav1.Condition) {
	supervise.Go(ctx, func() {
		if err := r.write(ctx, group, condition); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Writing the status of a pod group failed", "podGroup", klog.KRef(group.Namespace, group.Name))
		}
	})
}

func (r *reporter) write(ctx context.Context, group types.NamespacedName, condition metav1.Condition) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	found, err := r.groups.PodGroups(group.Namespace).Get(group.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	before, known := r.written[found.UID]
	if !known {
		if c := meta.FindStatusCondition(found.Status.Conditions, schedulingapi.PodGroupInitiallyScheduled); c != nil {
			before = *c
		}
	}
	if before.Status == metav1.ConditionTrue || before.Status == condition.Status && before.Reason == condition.Reason && before.Message == condition.Message {
		return nil
	}
	condition.Type, condition.ObservedGeneration, condition.LastTransitionTime = schedulingapi.PodGroupInitiallyScheduled, found.Generation, metav1.Now()
	if before.Status == condition.Status {
		condition.LastTransitionTime = before.LastTransitionTime
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": found.UID}, "status": map[string]any{"conditions": []metav1.Condition{condition}},
	})
	if err != nil {
		return err
	}
	_, err = r.kube.SchedulingV1beta1().PodGroups(group.Namespace).Patch(ctx, group.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // it is gone or was replaced
		return nil
	}
	if err != nil {
		return err
	}
	if len(r.written) >= maxReported || r.written == nil {
		r.written = map[types.UID]metav1.Condition{}
	}
	r.written[found.UID] = condition
	return nil
}
