package disruption

import (
	"context"
	"encoding/json"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/podquery"
)

// targeted reports whether a pod has the condition DisruptionTarget but is not being
// deleted. The kubelet is trusted to end the pods that it terminates.
func targeted(p *v1.Pod) bool {
	c := podquery.Condition(&p.Status, v1.DisruptionTarget)
	return podquery.IsActive(p) && c != nil && c.Status == v1.ConditionTrue && c.Reason != v1.PodReasonTerminationByKubelet
}

// resetDisruptionTarget sets the condition DisruptionTarget of a pod to false if the pod was
// not deleted within disruptionTimeout (KEP-3329). Otherwise a later failure of the pod
// would be taken for a disruption.
func (c *budgets) resetDisruptionTarget(ctx context.Context, p *v1.Pod) error {
	key := cache.MetaObjectToName(p)
	if !targeted(p) {
		c.targeted.Forget(key)
		return nil
	}
	condition := podquery.Condition(&p.Status, v1.DisruptionTarget)
	since := c.targeted.At(key, condition.LastTransitionTime.Time, time.Now())
	if left := time.Until(since.Add(disruptionTimeout)); left > 0 {
		c.stale.AddAfter(key, left)
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		// The version ensures that nobody has set the condition again.
		"metadata": map[string]any{"uid": p.UID, "resourceVersion": p.ResourceVersion},
		"status": map[string]any{"conditions": []map[string]any{{
			"type": v1.DisruptionTarget, "status": v1.ConditionFalse, "lastTransitionTime": metav1.Now(),
			"observedGeneration": p.Generation, "reason": nil, "message": nil,
		}}},
	})
	if err != nil {
		return err
	}
	_, err = c.kube.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return controller.IgnoreNotFound(err)
}
