package statefulset

import (
	"context"
	"slices"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

var podKind = v1.SchemeGroupVersion.WithKind("Pod")

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

// ownedByFormer reports whether a claim is owned by an object that had the name of another one before.
func ownedByFormer(claim *v1.PersistentVolumeClaim, of schema.GroupVersionKind, name string, uid types.UID) bool {
	apiVersion, kind := of.ToAPIVersionAndKind()
	return slices.ContainsFunc(claim.OwnerReferences, func(r metav1.OwnerReference) bool {
		return r.Kind == kind && r.APIVersion == apiVersion && r.Name == name && r.UID != uid
	})
}

// claimOwners returns the owner references that a pod's claim should have. Claims that another
// object controls get no owner. Those of a former pod or set stay as they are: the garbage
// collector deletes them, which another owner would prevent.
func claimOwners(set *apps.StatefulSet, pod *v1.Pod, ordinal int, claim *v1.PersistentVolumeClaim) []metav1.OwnerReference {
	if ownedByFormer(claim, kind, set.Name, set.UID) || ownedByFormer(claim, podKind, pod.Name, pod.UID) {
		return claim.OwnerReferences
	}
	ours := func(r metav1.OwnerReference) bool { return r.UID == set.UID || r.UID == pod.UID }
	owner := claimOwner(set, pod, ordinal)
	if slices.ContainsFunc(claim.OwnerReferences, func(r metav1.OwnerReference) bool { return controls(r) && !ours(r) }) {
		owner = nil
	}
	owned := false
	refs := slices.DeleteFunc(slices.Clone(claim.OwnerReferences), func(r metav1.OwnerReference) bool {
		if !ours(r) {
			return false
		}
		right := owner != nil && r.UID == owner.UID && controls(r)
		owned = owned || right
		return !right
	})
	if owner == nil || owned {
		return refs
	}
	return append(refs, *owner)
}

func controls(r metav1.OwnerReference) bool { return r.Controller != nil && *r.Controller }

// claimOwner returns the owner of a pod's claim by the set's policy: the pod if it is out of range
// and WhenScaled is Delete, otherwise the set if WhenDeleted is Delete.
func claimOwner(set *apps.StatefulSet, pod *v1.Pod, ordinal int) *metav1.OwnerReference {
	const deleteClaims = apps.DeletePersistentVolumeClaimRetentionPolicyType
	policy := set.Spec.PersistentVolumeClaimRetentionPolicy
	outOfRange := ordinal < start(set) || ordinal >= start(set)+replicaCount(set)
	switch {
	case policy == nil:
		return nil
	case outOfRange && policy.WhenScaled == deleteClaims:
		return metav1.NewControllerRef(pod, podKind)
	case policy.WhenDeleted == deleteClaims:
		return metav1.NewControllerRef(set, kind)
	}
	return nil
}
