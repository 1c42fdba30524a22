package registry

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestDistinctOwners(t *testing.T) {
	yes, alsoYes, no := true, true, false
	a := metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "a", UID: "1"}
	controlled, again, not := a, a, a
	controlled.Controller, again.Controller, not.Controller = &yes, &alsoYes, &no
	other := a
	other.UID = "2"
	kept, duplicates := distinctOwners([]metav1.OwnerReference{a, controlled, other, again, not, a})
	if diff := cmp.Diff([]metav1.OwnerReference{a, controlled, other, not}, kept); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"1", "1"}, duplicates); diff != "" {
		t.Errorf("duplicates (-want +got):\n%s", diff)
	}
}

// An object with as many owner references as fit in a body is deduplicated at
// once.
func TestManyDistinctOwners(t *testing.T) {
	owners := make([]metav1.OwnerReference, 200_000)
	for i := range owners {
		owners[i].UID = types.UID(fmt.Sprint(i))
	}
	if kept, duplicates := distinctOwners(owners); len(kept) != len(owners) || len(duplicates) != 0 {
		t.Errorf("%d kept, %d duplicates", len(kept), len(duplicates))
	}
}
