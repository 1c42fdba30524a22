package statefulset

import (
	"testing"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestClaimOwners(t *testing.T) {
	const retain, withIt = apps.RetainPersistentVolumeClaimRetentionPolicyType, apps.DeletePersistentVolumeClaimRetentionPolicyType
	yes := true
	stranger := metav1.OwnerReference{UID: "stranger", Controller: &yes}
	for _, c := range []struct {
		deleted, scaled apps.PersistentVolumeClaimRetentionPolicyType
		ordinal         int
		before          []metav1.OwnerReference
		want            types.UID
	}{
		{retain, retain, 0, nil, ""},
		{retain, retain, 2, []metav1.OwnerReference{{UID: "db"}, {UID: "pod"}}, ""},
		{withIt, retain, 0, nil, "db"},
		{withIt, retain, 2, []metav1.OwnerReference{{UID: "pod"}}, "db"},
		{retain, withIt, 0, []metav1.OwnerReference{{UID: "pod"}}, ""},
		{retain, withIt, 2, nil, "pod"},
		{withIt, withIt, 1, []metav1.OwnerReference{{UID: "pod"}}, "db"},
		{withIt, withIt, 2, []metav1.OwnerReference{{UID: "db"}}, "pod"},
		{withIt, withIt, 2, []metav1.OwnerReference{stranger}, "stranger"},
	} {
		set := setOf(2, apps.OrderedReadyPodManagement, 0)
		set.Spec.PersistentVolumeClaimRetentionPolicy = &apps.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenDeleted: c.deleted, WhenScaled: c.scaled}
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "db-0", UID: "pod"}}
		claim := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{OwnerReferences: c.before}}
		got := claimOwners(set, pod, c.ordinal, claim)
		if len(got) > 1 || len(got) == 1 && (got[0].UID != c.want || !*got[0].Controller) || len(got) == 0 && c.want != "" {
			t.Errorf("deleted %s, scaled %s, ordinal %d: %v, want %q", c.deleted, c.scaled, c.ordinal, got, c.want)
		}
	}
}
