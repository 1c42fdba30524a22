package gangscheduling

import (
	"fmt"
	"testing"

	schedulingapi "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	schedulinglisters "k8s.io/client-go/listers/scheduling/v1beta1"
	"k8s.io/client-go/tools/cache"
)

// The condition is written when it changes. Once it is true, it stays true,
// even if the informer does not show it yet.
func TestConditionOfAGroup(t *testing.T) {
	g := gang("gang", 3)
	g.UID, g.Generation = "u", 4
	kube := fake.NewSimpleClientset(g)
	informer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	if err := informer.Add(g.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	r := &reporter{kube: kube, groups: schedulinglisters.NewPodGroupLister(informer)}
	for i, step := range []struct {
		status          metav1.ConditionStatus
		reason, message string
		want            string
	}{
		{metav1.ConditionFalse, "Unschedulable", "no room", "1 writes: False Unschedulable no room"},
		{metav1.ConditionFalse, "Unschedulable", "no room", "1 writes: False Unschedulable no room"},
		{metav1.ConditionFalse, "Unschedulable", "no cpu", "2 writes: False Unschedulable no cpu"},
		{metav1.ConditionTrue, "Scheduled", "", "3 writes: True Scheduled "},
		{metav1.ConditionFalse, "Unschedulable", "too late", "3 writes: True Scheduled "},
	} {
		err := r.write(t.Context(), types.NamespacedName{Namespace: g.Namespace, Name: g.Name}, metav1.Condition{Status: step.status, Reason: step.reason, Message: step.message})
		if err != nil {
			t.Fatal(err)
		}
		writes := 0
		for _, a := range kube.Actions() {
			if a.GetVerb() == "patch" && a.GetSubresource() == "status" {
				writes++
			}
		}
		stored, err := kube.SchedulingV1beta1().PodGroups(g.Namespace).Get(t.Context(), g.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		c := meta.FindStatusCondition(stored.Status.Conditions, schedulingapi.PodGroupInitiallyScheduled)
		if got := fmt.Sprintf("%d writes: %s %s %s", writes, c.Status, c.Reason, c.Message); got != step.want || c.ObservedGeneration != 4 {
			t.Errorf("step %d: %s, of generation %d; want %s", i, got, c.ObservedGeneration, step.want)
		}
	}
	if err := r.write(t.Context(), types.NamespacedName{Namespace: g.Namespace, Name: "none"}, metav1.Condition{Status: metav1.ConditionTrue}); err != nil {
		t.Errorf("a group that is gone: %v", err)
	}
}
