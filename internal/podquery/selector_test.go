package podquery_test

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/coracle-io/coracle/internal/costtest"
	"github.com/coracle-io/coracle/internal/podquery"
)

// A selector matches what it matches when it is parsed.
func TestSelects(t *testing.T) {
	values := []string{"web", "db"}
	selectors := []*metav1.LabelSelector{nil, {}, {MatchLabels: map[string]string{"app": "web"}}, {MatchLabels: map[string]string{"app": "web", "tier": "back"}}}
	for _, of := range []metav1.LabelSelectorRequirement{
		{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: values}, {Key: "app", Operator: metav1.LabelSelectorOpNotIn, Values: values},
		{Key: "app", Operator: metav1.LabelSelectorOpExists}, {Key: "app", Operator: metav1.LabelSelectorOpDoesNotExist}, {Key: "app", Operator: "Unknown"},
	} {
		for _, set := range []map[string]string{nil, {"tier": "back"}} {
			selectors = append(selectors, &metav1.LabelSelector{MatchLabels: set, MatchExpressions: []metav1.LabelSelectorRequirement{of}})
		}
	}
	for _, selector := range selectors {
		parsed, err := metav1.LabelSelectorAsSelector(selector)
		for _, set := range []labels.Set{nil, {"app": "web"}, {"app": "db", "tier": "back"}, {"app": "cache", "tier": "back"}, {"app": ""}, {"tier": "back"}} {
			want := err == nil && parsed.Matches(set)
			if got := podquery.Selects(selector, set); got != want {
				t.Errorf("%v selects %v: %t, want %t", selector, set, got, want)
			}
			if got := podquery.Selector(selector).Matches(set); got != want {
				t.Errorf("%v, parsed, selects %v: %t, want %t", selector, set, got, want)
			}
		}
	}
}

// To ask a large selector takes no memory.
func TestLargeSelector(t *testing.T) {
	selector := &metav1.LabelSelector{}
	for i := range 100_000 {
		selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement{Key: fmt.Sprint("label-", i), Operator: metav1.LabelSelectorOpDoesNotExist})
	}
	cost := costtest.Of(t, func() {
		if !podquery.Selects(selector, labels.Set{"app": "web"}) {
			t.Error("a pod without any of many labels is not selected")
		}
	})
	if cost.Bytes > 1<<20 {
		t.Errorf("it takes %d bytes", cost.Bytes)
	}
}
