package aggregator_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A client that replaces the status removes the condition until the next check.
func TestRemovedConditionIsRestored(t *testing.T) {
	x := start(t)
	x.register()
	_, err := x.services.Patch(t.Context(), name, types.MergePatchType, []byte(`{"status":{"conditions":[{"type":"Seen","status":"True"}]}}`), metav1.PatchOptions{}, "status")
	x.must(err)
	x.eventually("available again", func() bool {
		s, err := x.services.Get(t.Context(), name, metav1.GetOptions{})
		return err == nil && len(s.Status.Conditions) == 2 && s.Status.Conditions[1].Reason == "Passed"
	})
}
