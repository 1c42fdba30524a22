package volumeprotection

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/component-helpers/storage/ephemeral"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/podquery"
)

// references reports whether a pod that has not finished names a claim, whether or not
// it has a node.
func references(pod *v1.Pod, claim *v1.PersistentVolumeClaim) bool {
	return !podquery.IsFinished(pod) && slices.ContainsFunc(pod.Spec.Volumes, func(vol v1.Volume) bool {
		name, isEphemeral := podquery.ClaimName(pod, &vol)
		return name == claim.Name && (!isEphemeral || ephemeral.VolumeIsForPod(pod, claim) == nil)
	})
}

// showUse sets the condition Unused of a bound claim (KEP-5541). Its
// lastTransitionTime says since when no pod references the claim.
func showUse(ctx context.Context, claims corev1.PersistentVolumeClaimInterface, claim *v1.PersistentVolumeClaim, used bool) error {
	if claim.Status.Phase != v1.ClaimBound {
		return nil
	}
	want := v1.PersistentVolumeClaimCondition{
		Type: v1.PersistentVolumeClaimUnused, Status: v1.ConditionTrue,
		Reason: "NoPodsUsingPVC", Message: "No pods are currently referencing this PVC",
	}
	if used {
		want.Status, want.Reason, want.Message = v1.ConditionFalse, "PodUsingPVC", "A pod is currently referencing this PVC"
	}
	at := slices.IndexFunc(claim.Status.Conditions, func(c v1.PersistentVolumeClaimCondition) bool { return c.Type == want.Type })
	if at >= 0 && claim.Status.Conditions[at].Status == want.Status {
		return nil
	}
	want.LastTransitionTime = metav1.Now()
	next := claim.DeepCopy()
	if at >= 0 {
		next.Status.Conditions[at] = want
	} else {
		next.Status.Conditions = append(next.Status.Conditions, want)
	}
	_, err := claims.UpdateStatus(ctx, next, metav1.UpdateOptions{})
	return controller.IgnoreNotFound(err)
}
