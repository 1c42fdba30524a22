package lifecycle

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// TestItemsAddedToAStatus checks that what an update of a status adds has all
// required fields.
func TestItemsAddedToAStatus(t *testing.T) {
	now := time.Date(2026, time.May, 4, 12, 0, 0, 0, time.UTC)
	status := &lifecyclev1alpha1.EvictionStatus{
		Requesters:       []lifecyclev1alpha1.Requester{{}},
		TargetResponders: []lifecyclev1alpha1.TargetResponder{{Name: "example.com/a", State: active}},
		Responders:       []lifecyclev1alpha1.ResponderStatus{{Name: "example.com/a", StartTime: &metav1.Time{Time: now}}},
	}
	var got []string
	for _, err := range validateStatus(now, field.NewPath("status"), status, &lifecyclev1alpha1.EvictionStatus{}) {
		got = append(got, err.Error())
	}
	want := []string{
		"status.requesters[0].name: Required value",
		"status.requesters[0].intent: Required value",
		"status.targetResponders[0].priority: Required value",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
