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

// retain sees that the claims of a set's pods have the owners with which they
// go, by the garbage collector, as the set's retention policy says
// (KEP-1847). It has to come before a pod is deleted.
func (c *statefulSets) retain(ctx context.Context, set *apps.StatefulSet, owned []*v1.Pod) error {
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

// claimOwners are the owners that a pod's claim should have: the pod if it is
// scaled away and its claims with it, else the set if they go with the set.
// Claims that somebody else controls are nobody's here.
func claimOwners(set *apps.StatefulSet, pod *v1.Pod, ordinal int, claim *v1.PersistentVolumeClaim) []metav1.OwnerReference {
	ours := map[types.UID]bool{set.UID: true, pod.UID: true}
	refs := slices.DeleteFunc(slices.Clone(claim.OwnerReferences), func(r metav1.OwnerReference) bool { return ours[r.UID] })
	policy := set.Spec.PersistentVolumeClaimRetentionPolicy
	if policy == nil || slices.ContainsFunc(refs, func(r metav1.OwnerReference) bool { return r.Controller != nil && *r.Controller }) {
		return refs
	}
	const withIt = apps.DeletePersistentVolumeClaimRetentionPolicyType
	scaledAway := ordinal < start(set) || ordinal >= start(set)+replicas(set)
	switch {
	case scaledAway && policy.WhenScaled == withIt:
		return append(refs, *metav1.NewControllerRef(pod, v1.SchemeGroupVersion.WithKind("Pod")))
	case policy.WhenDeleted == withIt:
		return append(refs, *metav1.NewControllerRef(set, kind))
	}
	return refs
}
