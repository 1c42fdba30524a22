package crd

import (
	"testing"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Conditions that a user removes are restored.
func TestConditionsAreRestored(t *testing.T) {
	names := apiextensionsv1.CustomResourceDefinitionNames{Plural: "apples", Singular: "apple", Kind: "Apple", ListKind: "AppleList"}
	fresh := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "apples.example.com", Generation: 1},
		Spec:       apiextensionsv1.CustomResourceDefinitionSpec{Group: "example.com", Names: names},
	}
	settled := withStatus(fresh, nil, time.Unix(0, 0))
	if settled == nil || !established(settled) {
		t.Fatalf("a new definition is not established: %+v", settled)
	}
	if again := withStatus(settled, nil, time.Unix(1, 0)); again != nil {
		t.Errorf("a settled definition changes: %+v", again.Status)
	}
	wiped := settled.DeepCopy()
	wiped.Status.Conditions = nil
	restored := withStatus(wiped, nil, time.Unix(1, 0))
	if restored == nil || !established(restored) || !apihelpers.IsCRDConditionTrue(restored, apiextensionsv1.NamesAccepted) {
		t.Errorf("the conditions are not restored: %+v", restored)
	}
}
