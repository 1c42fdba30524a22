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
		"Job":                              {4, 2},
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

// TestMetadataInUpdatesOfAStatus checks which metadata an update of the status
// can change.
func TestMetadataInUpdatesOfAStatus(t *testing.T) {
	for plural, want := range map[string]string{
		"compositepodgroups":         "",
		"deployments":                "annotations",
		"evictionrequests":           "",
		"evictions":                  "",
		"podgroups":                  "",
		"replicasets":                "labels annotations",
		"resourceclaims":             "",
		"resourcepoolstatusrequests": "",
		"servicecidrs":               "",
		"storageversions":            "",
	} {
		r := named(t, plural)
		old, changed := r.Hub().New(), r.Hub().New()
		changed.SetLabels(map[string]string{"a": "b"})
		changed.SetAnnotations(map[string]string{"a": "b"})
		r.Subresource("status").PrepareForUpdate(&resource.RequestContext{}, changed, old)
		var got []string
		if len(changed.GetLabels()) > 0 {
			got = append(got, "labels")
		}
		if len(changed.GetAnnotations()) > 0 {
			got = append(got, "annotations")
		}
		if got := strings.Join(got, " "); got != want {
			t.Errorf("%s: %q, want %q", plural, got, want)
		}
	}
}

// TestUnconditionalUpdates checks which kinds can be replaced without a
// resourceVersion.
func TestUnconditionalUpdates(t *testing.T) {
	for plural, want := range map[string]bool{
		"clustertrustbundles":      false,
		"configmaps":               true,
		"devicetaintrules":         false,
		"evictionrequests":         false,
		"evictions":                false,
		"podcertificaterequests":   false,
		"podgroups":                true,
		"storageversionmigrations": false,
	} {
		if got := !named(t, plural).Strategy.ForbidUnconditionalUpdate; got != want {
			t.Errorf("%s: %v, want %v", plural, got, want)
		}
	}
}

func named(t *testing.T, plural string) *resource.Resource {
	t.Helper()
	for _, r := range all.All() {
		if r.Plural == plural {
			return r
		}
	}
	t.Fatalf("there is no resource %s", plural)
	return nil
}
