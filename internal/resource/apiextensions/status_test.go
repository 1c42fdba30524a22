package apiextensions_test

import (
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/apiextensions"
	"github.com/coracle-io/coracle/internal/resource/resourcetest"
)

// TestObservedGeneration checks that observedGeneration is kept only if the
// feature is enabled or the stored object has it.
func TestObservedGeneration(t *testing.T) {
	off, err := feature.Parse([]string{"CRDObservedGenerationTracking=false"})
	if err != nil {
		t.Fatal(err)
	}
	definition := func(observed int64) *apiextensionsv1.CustomResourceDefinition {
		c := &apiextensionsv1.CustomResourceDefinition{}
		c.Name, c.ResourceVersion = "boats.example.com", "1"
		c.Status.StoredVersions = []string{"v1"}
		c.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{
			Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue, ObservedGeneration: observed,
		}}
		return c
	}
	for name, test := range map[string]struct {
		features *feature.Set
		before   int64
		want     int64
	}{
		"on":        {want: 3},
		"off":       {features: off},
		"as before": {features: off, before: 2, want: 3},
	} {
		r, c := apiextensions.CustomResourceDefinitions(), definition(3)
		errs := resourcetest.BeforeSubresourceUpdate(r, r.Subresource("status"), &resource.RequestContext{Now: time.Unix(0, 0), Features: test.features}, c, definition(test.before))
		if got := c.Status.Conditions[0].ObservedGeneration; got != test.want {
			t.Errorf("%s: generation %d, want %d %v", name, got, test.want, errs)
		}
	}
}
