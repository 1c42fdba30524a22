package resource_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/coracle-io/coracle/internal/resource"
)

var storedConfigMaps = resource.Define(resource.Definition[corev1.ConfigMap, *corev1.ConfigMap]{
	GroupVersion: corev1.SchemeGroupVersion, Names: resource.Names{Kind: "ConfigMap", Plural: "configmaps"},
})

func storedConfigMap() *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", ResourceVersion: "7", Labels: map[string]string{"x": "y"}},
		Data:       map[string]string{"k": "v"},
	}
}

// TestStoredBytesAreUpstreams decodes with client-go's decoder, which is
// upstream's, and compares with the bytes of its encoder.
func TestStoredBytesAreUpstreams(t *testing.T) {
	obj := storedConfigMap()
	data, err := resource.EncodeStored(storedConfigMaps, obj)
	if err != nil {
		t.Fatal(err)
	}
	if obj.ResourceVersion != "7" {
		t.Error("the object was changed")
	}
	decoded, kind, err := scheme.Codecs.UniversalDeserializer().Decode(data, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := storedConfigMap()
	want.ResourceVersion = ""
	if *kind != corev1.SchemeGroupVersion.WithKind("ConfigMap") {
		t.Errorf("kind %v", kind)
	}
	decoded.GetObjectKind().SetGroupVersionKind(*kind)
	if diff := cmp.Diff(want, decoded); diff != "" {
		t.Error(diff)
	}
	for _, info := range scheme.Codecs.SupportedMediaTypes() {
		if info.MediaType != "application/vnd.kubernetes.protobuf" {
			continue
		}
		var upstream strings.Builder
		if err := info.Serializer.Encode(want, &upstream); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(upstream.String(), string(data)); diff != "" {
			t.Error(diff)
		}
	}
}

func TestDecodeStored(t *testing.T) {
	want := storedConfigMap()
	protobuf, err := resource.EncodeStored(storedConfigMaps, want)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]string{
		"protobuf": string(protobuf),
		"JSON":     `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"default","labels":{"x":"y"}},"data":{"k":"v"}}`,
	} {
		got, err := resource.DecodeStored(storedConfigMaps, []byte(data), 7)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	for name, data := range map[string]string{
		"empty": "", "half an envelope": "k8s\x00\x0a", "prefix alone": "k8s\x00", "half a JSON": `{"kind":`,
		"another kind": `{"kind":"Secret","apiVersion":"v1"}`, "truncated": string(protobuf[:len(protobuf)-9]),
	} {
		if got, err := resource.DecodeStored(storedConfigMaps, []byte(data), 7); err == nil {
			t.Errorf("%s: decoded to %v", name, got)
		}
	}
}

// TestStoredQuantitiesOutOfRange checks that a stored quantity that would take
// hours to compute with is an error, and that a sum of quantities that users may
// write is not.
func TestStoredQuantitiesOutOfRange(t *testing.T) {
	quotas := resource.Define(resource.Definition[corev1.ResourceQuota, *corev1.ResourceQuota]{
		GroupVersion: corev1.SchemeGroupVersion, Names: resource.Names{Kind: "ResourceQuota", Plural: "resourcequotas"},
	})
	const usual = "12345678901" // as long as the others
	protobuf, err := resource.EncodeStored(quotas, &corev1.ResourceQuota{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ResourceQuota"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "q"},
		Status:     corev1.ResourceQuotaStatus{Used: corev1.ResourceList{"memory": apiresource.MustParse(usual)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	json := `{"kind":"ResourceQuota","apiVersion":"v1","metadata":{"name":"q","namespace":"default"},"status":{"used":{"memory":"` + usual + `"}}}`
	for text, refused := range map[string]bool{usual: false, "18000000e199": false, "1e900000000": true, "1e-90000000": true} {
		for _, data := range []string{json, string(protobuf)} {
			if len(text) != len(usual) && data != json {
				continue
			}
			got, err := resource.DecodeStored(quotas, []byte(strings.ReplaceAll(data, usual, text)), 7)
			if refused && (err == nil || !strings.Contains(err.Error(), "status.used[memory]: the quantity")) || !refused && err != nil {
				t.Errorf("%.20q with %s: %v, %v", data, text, got, err)
			}
		}
	}
}

func TestCustomResourcesAreStoredAsJSON(t *testing.T) {
	gv := schema.GroupVersion{Group: "example.com", Version: "v2"}
	same := func(o resource.Object) resource.Object { return o }
	boats := &resource.Resource{
		Group: gv.Group, Names: resource.Names{Kind: "Boat", Plural: "boats"},
		Versions: []resource.Version{{
			GroupVersion: gv, Hub: true, ToHub: same, FromHub: same,
			New: func() resource.Object { return &unstructured.Unstructured{} },
		}},
	}
	boat := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v2", "kind": "Boat",
		"metadata": map[string]any{"name": "a", "resourceVersion": "7"},
		"spec":     map[string]any{"length": int64(12), "beam": 1.5},
	}}
	data, err := resource.EncodeStored(boats, boat)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(data), `{"apiVersion":"example.com/v2","kind":"Boat","metadata":{"name":"a"},"spec":{"beam":1.5,"length":12}}`+"\n"; got != want {
		t.Errorf("stored %s, want %s", got, want)
	}
	got, err := resource.DecodeStored(boats, data, 7)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(resource.Object(boat), got); diff != "" {
		t.Error(diff)
	}
	old, err := resource.DecodeStored(boats, []byte(`{"apiVersion":"example.com/v1","kind":"Boat","metadata":{"name":"a"}}`), 8)
	if err != nil || old.GetObjectKind().GroupVersionKind() != gv.WithKind("Boat") {
		t.Errorf("a version that is no longer named: %v, %v", old, err)
	}
}
