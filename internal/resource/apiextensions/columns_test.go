package apiextensions_test

import (
	"fmt"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/resource/apiextensions"
)

// TestRow checks what `kubectl get crd -o wide` shows.
func TestRow(t *testing.T) {
	c := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "boats.example.com", CreationTimestamp: metav1.Date(2026, 5, 1, 14, 0, 0, 0, time.FixedZone("", 7200))},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: "Boat", ShortNames: []string{"b", "bo"}},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{
				{Name: "v1beta1", Served: true}, {Name: "v1alpha1"}, {Name: "v1", Served: true, Storage: true},
			},
		},
		Status: apiextensionsv1.CustomResourceDefinitionStatus{Conditions: []apiextensionsv1.CustomResourceDefinitionCondition{
			{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue},
		}},
	}
	table := apiextensions.CustomResourceDefinitions().Table
	got := fmt.Sprint(table.Row(c, time.Now()))
	if want := "[boats.example.com Namespaced v1(storage),v1beta1 2026-05-01T12:00:00Z example.com Boat b,bo true]"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if empty := table.Row(&apiextensionsv1.CustomResourceDefinition{}, time.Now()); len(empty) != len(table.Columns) {
		t.Errorf("%d cells for %d columns", len(empty), len(table.Columns))
	}
}
