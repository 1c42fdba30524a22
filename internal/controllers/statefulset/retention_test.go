package statefulset

import (
	"strings"
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
	ref := func(kind, name string, uid types.UID) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: map[string]string{"Pod": "v1", "StatefulSet": "apps/v1"}[kind], Kind: kind, Name: name, UID: uid}
	}
	ofSet, ofPod, other := ref("StatefulSet", "db", "db"), ref("Pod", "db-0", "pod"), ref("Pod", "web", "other")
	formerSet, formerPod := ref("StatefulSet", "db", "former"), ref("Pod", "db-0", "former")
	controller := func(r metav1.OwnerReference) metav1.OwnerReference {
		r.Controller = new(true)
		return r
	}
	type refs = []metav1.OwnerReference
	for _, c := range []struct {
		deleted, scaled apps.PersistentVolumeClaimRetentionPolicyType
		ordinal         int
		before          refs
		want            string // the UIDs, with "!" for a controller
	}{
		{retain, retain, 0, nil, ""},
		{retain, retain, 2, refs{ofSet, controller(ofPod)}, ""},
		{retain, retain, 0, refs{controller(other), ofSet}, "other!"},
		{withIt, retain, 0, nil, "db!"},
		{withIt, retain, 0, refs{ofSet}, "db!"},
		{withIt, retain, 0, refs{controller(ofSet), ofPod}, "db!"},
		{withIt, retain, 0, refs{controller(ofSet), other}, "db! other"},
		{withIt, retain, 0, refs{other, controller(ofPod)}, "other db!"},
		{withIt, retain, 0, refs{formerSet}, "former"},
		{withIt, retain, 0, refs{controller(formerSet)}, "former!"},
		{withIt, retain, 2, refs{ofPod}, "db!"},
		{retain, withIt, 0, refs{controller(ofPod)}, ""},
		{retain, withIt, 0, refs{controller(ofSet), other}, "other"},
		{retain, withIt, 2, nil, "pod!"},
		{withIt, withIt, 1, refs{ofPod}, "db!"},
		{withIt, withIt, 2, refs{controller(ofSet)}, "pod!"},
		{withIt, withIt, 2, refs{ofPod}, "pod!"},
		{withIt, withIt, 2, refs{formerPod}, "former"},
		{withIt, withIt, 2, refs{formerPod, controller(ofSet)}, "former db!"},
		{withIt, withIt, 2, refs{controller(other)}, "other!"},
		{withIt, withIt, 2, refs{controller(other), ofSet, ofPod}, "other!"},
	} {
		set := setOf(2, apps.OrderedReadyPodManagement, 0)
		set.Spec.PersistentVolumeClaimRetentionPolicy = &apps.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenDeleted: c.deleted, WhenScaled: c.scaled}
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "db-0", UID: "pod"}}
		claim := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{OwnerReferences: c.before}}
		var got []string
		for _, r := range claimOwners(set, pod, c.ordinal, claim) {
			uid := string(r.UID)
			if controls(r) {
				uid += "!"
			}
			got = append(got, uid)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("deleted %s, scaled %s, ordinal %d, %v: %q, want %q", c.deleted, c.scaled, c.ordinal, c.before, got, c.want)
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
