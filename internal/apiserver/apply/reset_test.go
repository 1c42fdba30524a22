package apply

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	resources "github.com/coracle-io/coracle/internal/resource"
)

// A write through an endpoint gains no ownership of fields that the endpoint
// ignores.
func TestResetFields(t *testing.T) {
	m := newManagers(t)
	for _, test := range []struct {
		subresource string
		custom      bool
		owned       string
	}{
		{"", false, "labels spec"},
		{"status", false, "labels status"},
		{"status", true, "status"},
		{"finalize", false, "labels spec"},
	} {
		k := kind(t, "namespaces", test.subresource)
		if test.custom {
			version := *k.Version
			version.Coerce = func(resources.Object) ([]string, error) { return nil, nil }
			k.Version = &version
		}
		live := &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: "n"}}
		obj := live.DeepCopy()
		obj.Labels = map[string]string{"a": "b"}
		obj.Spec.Finalizers = []corev1.FinalizerName{"example.com/x"}
		obj.Status.Phase = corev1.NamespaceTerminating
		if err := m.Update(k, live, obj, "tester"); err != nil {
			t.Fatal(err)
		}
		var owned []string
		for _, e := range obj.ManagedFields {
			for _, field := range []string{"labels", "spec", "status"} {
				if strings.Contains(e.FieldsV1.GetRawString(), `"f:`+field+`"`) {
					owned = append(owned, field)
				}
			}
		}
		if slices.Sort(owned); strings.Join(owned, " ") != test.owned {
			t.Errorf("%q custom %v: owned are %q, want %q", test.subresource, test.custom, owned, test.owned)
		}
	}
}
