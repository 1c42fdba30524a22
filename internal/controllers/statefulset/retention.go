package statefulset

import (
	"context"
	"slices"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// updateClaimOwners sets the owner references of the claims of a set's pods as
// required by the set's retention policy (KEP-1847), so that the garbage
// collector deletes them with the pod or the set. It must be called before a pod
// is deleted.
func (c *statefulSets) updateClaimOwners(ctx context.Context, set *apps.StatefulSet, owned []*v1.Pod) error {
	for _, pod := range owned {
		ordinal, ok := ordinalOf(set, pod)
		if !ok {
			continue
		}
		for i := range set.Spec.VolumeClaimTemplates {
			claim, err := c.claims.PersistentVolumeClaims(set.Namespace).Get(claimName(set, &set.Spec.VolumeClaimTemplates[i], ordinal))
			if apierrors.IsNotFound(err) {
				continue
			}
			if err != nil {
				return err
			}
			want := claimOwners(set, pod, ordinal, claim)
			if equality.Semantic.DeepEqual(claim.OwnerReferences, want) {
				continue
			}
			next := claim.DeepCopy()
			next.OwnerReferences = want
			if _, err := c.kube.CoreV1().PersistentVolumeClaims(next.Namespace).Update(ctx, next, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
	}
	return nil
}

// ownedByFormer reports whether a claim is owned by a pod that had the name of a pod before.
func ownedByFormer(claim *v1.PersistentVolumeClaim, pod string, uid types.UID) bool {
	return slices.ContainsFunc(claim.OwnerReferences, func(r metav1.OwnerReference) bool {
		return r.Kind == "Pod" && r.APIVersion == "v1" && r.Name == pod && r.UID != uid
	})
}

// claimOwners returns the owner references that a pod's claim should have. The
// owner is the pod if it is out of range and WhenScaled is Delete, otherwise the
// set if WhenDeleted is Delete. Claims that another object controls get neither.
func claimOwners(set *apps.StatefulSet, pod *v1.Pod, ordinal int, claim *v1.PersistentVolumeClaim) []metav1.OwnerReference {
	ours := map[types.UID]bool{set.UID: true, pod.UID: true}
	refs := slices.DeleteFunc(slices.Clone(claim.OwnerReferences), func(r metav1.OwnerReference) bool { return ours[r.UID] })
	policy := set.Spec.PersistentVolumeClaimRetentionPolicy
	if policy == nil || slices.ContainsFunc(refs, func(r metav1.OwnerReference) bool { return r.Controller != nil && *r.Controller }) {
		return refs
	}
	const deleteClaims = apps.DeletePersistentVolumeClaimRetentionPolicyType
	outOfRange := ordinal < start(set) || ordinal >= start(set)+replicaCount(set)
	switch {
	case outOfRange && policy.WhenScaled == deleteClaims:
		return append(refs, *metav1.NewControllerRef(pod, v1.SchemeGroupVersion.WithKind("Pod")))
	case policy.WhenDeleted == deleteClaims:
		return append(refs, *metav1.NewControllerRef(set, kind))
	}
	return refs
}
