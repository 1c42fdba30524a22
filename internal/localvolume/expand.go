package localvolume

import (
	"context"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/amount"
	"github.com/coracle-io/coracle/internal/controller"
)

// grows reports whether a claim with a volume requests a larger one. The API server
// allows that if the StorageClass does.
func grows(claim *v1.PersistentVolumeClaim) bool {
	return claim.Spec.VolumeName != "" && claim.Status.Phase == v1.ClaimBound && claim.DeletionTimestamp == nil &&
		claim.Spec.Resources.Requests.Storage().Cmp(*claim.Status.Capacity.Storage()) > 0
}

// expand gives the directory of a claim's volume, the volume, and then the claim
// the requested size.
func (p *Provisioner) expand(ctx context.Context, claim *v1.PersistentVolumeClaim) error {
	v, err := p.Client.Informers.Core().V1().PersistentVolumes().Lister().Get(claim.Spec.VolumeName)
	if err != nil || !p.ours(v) || v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID != claim.UID {
		return controller.IgnoreNotFound(err)
	}
	size := claim.Spec.Resources.Requests[v1.ResourceStorage]
	if size.Cmp(*v.Spec.Capacity.Storage()) > 0 {
		if err := p.disk.grow(v.Name, amount.Value(size)); err != nil {
			p.Events.Event(claim, v1.EventTypeWarning, "VolumeResizeFailed", err.Error())
			return err
		}
		p.refresh()
		next := v.DeepCopy()
		next.Spec.Capacity[v1.ResourceStorage] = size
		if _, err := p.Client.Kubernetes.CoreV1().PersistentVolumes().Update(ctx, next, metav1.UpdateOptions{}); err != nil {
			return controller.IgnoreNotFound(err)
		}
	}
	next, err := p.whole(ctx, claim)
	if err != nil {
		return controller.IgnoreNotFound(err)
	}
	next.Status.Capacity = v1.ResourceList{v1.ResourceStorage: size}
	if _, err := p.Client.Kubernetes.CoreV1().PersistentVolumeClaims(claim.Namespace).UpdateStatus(ctx, next, metav1.UpdateOptions{}); err != nil {
		return controller.IgnoreNotFound(err)
	}
	p.Events.Event(claim, v1.EventTypeNormal, "VolumeResizeSuccessful", "Resize volume succeeded")
	return nil
}
