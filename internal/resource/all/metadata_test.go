package all_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/all"
	"github.com/coracle-io/coracle/internal/resource/resourcetest"
)

// TestMetadataErrorsInUpdates checks how often updates report an error in
// the metadata. Each layer that checks the metadata reports it, and kinds
// differ in their layers.
func TestMetadataErrorsInUpdates(t *testing.T) {
	for kind, want := range map[string]struct{ labels, finalizers int }{
		"Job":                              {3, 1},
		"LimitRange":                       {3, 1},
		"Lease":                            {3, 0},
		"PersistentVolume":                 {4, 2},
		"PodDisruptionBudget":              {2, 0},
		"PodTemplate":                      {3, 1},
		"ResourceClaim":                    {4, 2},
		"ResourceQuota":                    {3, 1},
		"ValidatingAdmissionPolicyBinding": {3, 0},
	} {
		for _, r := range all.All() {
			if r.Kind != kind {
				continue
			}
			old, changed := r.Hub().New(), r.Hub().New()
			for _, obj := range []resource.Object{old, changed} {
				obj.(metav1.Object).SetName("it")
				obj.(metav1.Object).SetResourceVersion("1")
				if r.Namespaced {
					obj.(metav1.Object).SetNamespace("default")
				}
				r.Hub().Default(obj)
			}
			changed.SetLabels(map[string]string{"a b": ""})
			changed.SetFinalizers([]string{"odd"})
			labels, finalizers := 0, 0
			for _, err := range resourcetest.BeforeUpdate(r, &resource.RequestContext{}, changed, old) {
				switch {
				case err.Field == "metadata.labels":
					labels++
				case strings.HasPrefix(err.Field, "metadata.finalizers"):
					finalizers++
				}
			}
			if labels != want.labels || finalizers != want.finalizers {
				t.Errorf("%s: %d errors of labels and %d of finalizers, want %d and %d", kind, labels, finalizers, want.labels, want.finalizers)
			}
		}
	}
}
