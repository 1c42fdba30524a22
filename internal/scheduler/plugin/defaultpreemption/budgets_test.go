package defaultpreemption

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	policylisters "k8s.io/client-go/listers/policy/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// A budget protects the pods that its selector selects, until its disruptions are
// used up.
func TestBudgets(t *testing.T) {
	db := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}
	oneOf := metav1.LabelSelectorRequirement{Key: "app", Operator: metav1.LabelSelectorOpIn}
	many := &metav1.LabelSelector{MatchLabels: map[string]string{}}
	for i := range mostRequired + 1 {
		many.MatchLabels[fmt.Sprint("label-", i)] = "x"
		oneOf.Values = append(oneOf.Values, fmt.Sprint("other-", i))
	}
	for _, test := range []struct {
		name      string
		selector  *metav1.LabelSelector
		allowed   int32
		disrupted string
		want      string // of the pods db, web and bare, which has no labels
	}{
		{"labels", db, 0, "", "db"},
		{"disruptions are left", db, 1, "", ""},
		{"disrupted already", db, 0, "db", ""},
		{"an empty selector selects all pods", &metav1.LabelSelector{}, 0, "", "db web bare"},
		{"an empty selector, one disruption", &metav1.LabelSelector{}, 1, "", "web bare"},
		{"no selector selects none", nil, 0, "", ""},
		{"very many labels are not asked for", many, 0, "", "db web bare"},
		{"nor very many values", &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{oneOf}}, 0, "", "db web bare"},
	} {
		t.Run(test.name, func(t *testing.T) {
			store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
			budget := &policyv1.PodDisruptionBudget{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "budget"}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: test.selector},
				Status: policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: test.allowed},
			}
			if test.disrupted != "" {
				budget.Status.DisruptedPods = map[string]metav1.Time{test.disrupted: metav1.Now()}
			}
			if err := store.Add(budget); err != nil {
				t.Fatal(err)
			}
			var pods []*framework.PodInfo
			for _, name := range []string{"db", "web", "bare"} {
				p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
				if name != "bare" {
					p.Labels = map[string]string{"app": name}
				}
				pods = append(pods, framework.NewPodInfo(p))
			}
			violating, _ := newBudgets(policylisters.NewPodDisruptionBudgetLister(store)).view().divide(pods)
			var got []string
			for _, p := range violating {
				got = append(got, p.Pod.Name)
			}
			if strings.Join(got, " ") != test.want {
				t.Errorf("%v, want %s", got, test.want)
			}
		})
	}
}

// A victim counts whatever the version of its budget is until its eviction begins, and
// then while the budget stays as it is. Nothing is kept of budgets that are gone.
func TestVictimsOfBudgets(t *testing.T) {
	store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	budgets := newBudgets(policylisters.NewPodDisruptionBudgetLister(store))
	set := func(name, version string) *policyv1.PodDisruptionBudget {
		budget := &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, ResourceVersion: version},
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{}},
		}
		if err := store.Add(budget); err != nil {
			t.Fatal(err)
		}
		return budget
	}
	victim := func(name string) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name)}}
	}
	want := func(budget *policyv1.PodDisruptionBudget, count int32) {
		t.Helper()
		if got := budgets.count(budget); got != count {
			t.Errorf("%d victims count against version %s, want %d", got, budget.ResourceVersion, count)
		}
	}
	set("gone", "1")
	seven := set("budget", "7")
	view := budgets.view()
	for _, name := range []string{"a", "b", "c"} {
		view.take(victim(name))
	}
	want(seven, 3)
	want(set("budget", "8"), 3)
	budgets.giveBack(victim("c"))
	budgets.evicting(victim("a"))
	want(set("budget", "8"), 2)
	want(seven, 2)              // of a search that began before
	want(set("budget", "9"), 1) // a is in its status
	if err := store.Delete(&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "gone"}}); err != nil {
		t.Fatal(err)
	}
	budgets.evicting(victim("b"))
	want(set("budget", "10"), 0)
	if len(budgets.taken) != 0 {
		t.Errorf("victims are left: %v", budgets.taken)
	}
}
