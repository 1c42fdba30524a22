package pods

import (
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/component-helpers/storage/ephemeral"

	"github.com/coracle-io/coracle/internal/podquery"
)

// PersistentVolume returns the persistent volume of the claim of a pod's volume, nil if
// the volume is of another type or the claim has lost its volume. A claim that is not
// bound is an error. The claim of an ephemeral volume must have been made for the pod.
func PersistentVolume(claims corelisters.PersistentVolumeClaimLister, volumes corelisters.PersistentVolumeLister, p *v1.Pod, vol *v1.Volume) (*v1.PersistentVolume, error) {
	claim, isEphemeral := podquery.ClaimName(p, vol)
	if claim == "" {
		return nil, nil //nolint:nilnil // the volume is of another type
	}
	pvc, err := claims.PersistentVolumeClaims(p.Namespace).Get(claim)
	if err != nil {
		return nil, err
	}
	if isEphemeral {
		if err := ephemeral.VolumeIsForPod(p, pvc); err != nil {
			return nil, err
		}
	}
	if pvc.Spec.VolumeName == "" || pvc.Status.Phase != v1.ClaimBound {
		return nil, apierrors.NewNotFound(v1.Resource("persistentvolumes"), "")
	}
	pv, err := volumes.Get(pvc.Spec.VolumeName)
	if err != nil {
		return nil, err
	}
	if pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.UID != pvc.UID {
		return nil, nil //nolint:nilnil // the claim has lost its volume
	}
	return pv, nil
}
