package storagemigration

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/controller"
)

// When all objects have been written, only the storage version is stored, unless the definition
// has changed meanwhile.
func TestDropStoredVersions(t *testing.T) {
	for name, c := range map[string]struct {
		stored  []any
		changed bool
		want    []string
	}{
		"of two":         {[]any{"v1alpha1", "v1"}, false, []string{"v1"}},
		"only one":       {[]any{"v1"}, false, []string{"v1"}},
		"changed":        {[]any{"v1alpha1", "v1"}, true, []string{"v1alpha1", "v1"}},
		"not stored yet": {[]any{"v1alpha1", "v1beta1"}, false, []string{"v1alpha1", "v1beta1"}},
	} {
		t.Run(name, func(t *testing.T) {
			oars := schema.GroupResource{Group: "example.com", Resource: "oars"}
			definition := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
				"metadata": map[string]any{"name": "oars.example.com", "uid": "u", "generation": int64(2)},
				"spec": map[string]any{"versions": []any{
					map[string]any{"name": "v1alpha1", "storage": false}, map[string]any{"name": "v1", "storage": true},
				}},
				"status": map[string]any{"storedVersions": c.stored},
			}}
			fake := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
				map[schema.GroupVersionResource]string{definitions: "CustomResourceDefinitionList"}, definition)
			m := &migrator{env: &controller.Env{Client: &client.Client{Dynamic: fake}}}
			before, err := m.definition(t.Context(), oars)
			if err != nil || before == nil {
				t.Fatal(before, err)
			}
			if c.changed {
				before.SetGeneration(1)
			}
			if err := m.dropStoredVersions(t.Context(), oars, before); err != nil {
				t.Fatal(err)
			}
			after, err := fake.Resource(definitions).Get(t.Context(), "oars.example.com", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got, _, _ := unstructured.NestedStringSlice(after.Object, "status", "storedVersions"); !slices.Equal(got, c.want) {
				t.Errorf("stored versions %v, want %v", got, c.want)
			}
		})
	}
}
