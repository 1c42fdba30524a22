package registry

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

func TestExtract(t *testing.T) {
	for _, test := range []struct {
		object string
		parts  parts
		want   string
	}{
		{`{"kind":"Pod","metadata":{"name":"a","labels":{"x":"}\"]{"}},"spec":{"a":[1,2]},"n":7}` + "\n", parts{{name: "metadata"}}, `{"metadata":{"name":"a","labels":{"x":"}\"]{"}}}`},
		{`{"kind":"Pod","metadata":{"name":"a","labels":{"x":"}\"]{"}},"spec":{"a":[1,2]},"n":7}` + "\n", parts{{name: "metadata", inner: "labels"}, {name: "n"}}, `{"metadata":{"labels":{"x":"}\"]{"}},"n":7}`},
		{`{"metadata":{"name":"a","uid":"u"},"spec":{}}`, parts{{name: "metadata", inner: "uid"}, {name: "spec", inner: "x"}, {name: "metadata", inner: "name"}}, `{"metadata":{"name":"a","uid":"u"},"spec":{}}`},
		{`{"metadata":{"name":"a"}}`, parts{{name: "metadata", inner: "labels"}}, `{"metadata":{}}`},
		{`{"a":1,"b":[[],{}],"c":"x,y"}`, parts{{name: "c"}, {name: "a"}}, `{"a":1,"c":"x,y"}`},
		{`{"a":1}`, parts{{name: "b"}}, `{}`},
		{`{"a":"\\","b":true}`, parts{{name: "b"}}, `{"b":true}`},
	} {
		if got, ok := test.parts.extract([]byte(test.object)); !ok || string(got) != test.want {
			t.Errorf("%s %v: %s %v", test.object, test.parts, got, ok)
		}
	}
	for _, bad := range []string{"", "[]", `{"a`, `{"a":{`} {
		if got, ok := (parts{{name: "a"}}).extract([]byte(bad)); ok {
			t.Errorf("%s: %s", bad, got)
		}
	}
}

func TestTouches(t *testing.T) {
	known := outerFields(&corev1.Pod{})
	for _, test := range []struct {
		kind types.PatchType
		body string
		want string // "" means the whole object
	}{
		{types.MergePatchType, `{"metadata":{"labels":{}},"spec":{}}`, "metadata.labels spec"},
		{types.MergePatchType, `{"metadata":{"labels":null,"name":"a"},"status":null}`, "metadata.labels metadata.name status"},
		{types.MergePatchType, `{"metadata":{"unknown":1}}`, "metadata"},
		{types.MergePatchType, `{"unknown":{}}`, ""},
		{types.MergePatchType, `{"kind":"Pod","metadata":{}}`, ""},
		{types.MergePatchType, `[]`, ""},
		{types.StrategicMergePatchType, `{"spec":{"$setElementOrder/containers":[],"containers":[]}}`, "spec"},
		{types.StrategicMergePatchType, `{"status":{"conditions":[]}}`, "status.conditions"},
		{types.JSONPatchType, `[{"op":"add","path":"/metadata/labels/a"},{"op":"copy","from":"/spec/x","path":"/metadata/y"}]`, "metadata spec"},
		{types.JSONPatchType, `[{"op":"replace","path":"/status"}]`, ""},
		{types.JSONPatchType, `[{"op":"replace","path":""}]`, ""},
		{types.JSONPatchType, `[{"op":"remove","path":"/a~1b/c"}]`, ""},
	} {
		touched, _ := (&Patch{kind: test.kind, body: []byte(test.body)}).touchedParts(known)
		var names []string
		for _, p := range touched {
			names = append(names, strings.TrimSuffix(p.name+"."+p.inner, "."))
		}
		slices.Sort(names)
		if got := strings.Join(names, " "); got != test.want {
			t.Errorf("%s: %q, want %q", test.body, got, test.want)
		}
	}
}

func TestOuterFields(t *testing.T) {
	f := outerFields(&corev1.Pod{})
	if len(f) != 3 || f["metadata"].index[0] != 1 || f["spec"].index[0] != 2 || f["status"].index[0] != 3 {
		t.Errorf("%v", f)
	}
	if labels := f["metadata"].inner["labels"]; len(labels) != 2 || labels[0] != 1 {
		t.Errorf("labels are at %v", labels)
	}
	if f := outerFields(&unstructured.Unstructured{}); f != nil {
		t.Errorf("%v", f)
	}
}
