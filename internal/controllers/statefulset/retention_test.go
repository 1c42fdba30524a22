package statefulset

import (
	"testing"
	"testing/synctest"
	"time"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
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

// A pod does not get the claim of a former pod, which the garbage collector is about to delete. It
// waits for that and gets a new one.
func TestClaimOfFormerPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := setOf(1, apps.OrderedReadyPodManagement, 0)
		former := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "db-0", UID: "former"}}
		claim := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "data-db-0", OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(former, v1.SchemeGroupVersion.WithKind("Pod"))},
		}}
		c := controllertest.New(t, set, claim)
		c.Run(Descriptor())
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(c.Pods("default")); n != 0 {
			t.Fatalf("%d pods, want none", n)
		}
		claims := c.Fake.CoreV1().PersistentVolumeClaims("default")
		if err := claims.Delete(t.Context(), "data-db-0", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if n := len(c.Pods("default")); n != 1 {
			t.Errorf("%d pods, want 1", n)
		}
		if now, err := claims.Get(t.Context(), "data-db-0", metav1.GetOptions{}); err != nil || len(now.OwnerReferences) > 0 {
			t.Errorf("claim %v, %v", now, err)
		}
	})
}
