package apiserver

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

func TestExtract(t *testing.T) {
	for _, test := range []struct {
		object string
		names  []string
		part   string
	}{
		{`{"kind":"Pod","metadata":{"name":"a","labels":{"x":"}\"]{"}},"spec":{"a":[1,2]},"n":7}` + "\n", []string{"metadata"}, `{"metadata":{"name":"a","labels":{"x":"}\"]{"}}}`},
		{`{"a":1,"b":[[],{}],"c":"x,y"}`, []string{"c", "a"}, `{"a":1,"c":"x,y"}`},
		{`{"a":1}`, []string{"b"}, `{}`},
		{`{"a":"\\","b":true}`, []string{"b"}, `{"b":true}`},
	} {
		if part, ok := extract([]byte(test.object), test.names); !ok || string(part) != test.part {
			t.Errorf("%s %s: %s %v", test.object, test.names, part, ok)
		}
	}
	for _, bad := range []string{"", "[]", `{"a`, `{"a":{`} {
		if part, ok := extract([]byte(bad), []string{"a"}); ok && bad != "" && bad != "[]" && len(part) > 2 {
			t.Errorf("%s: %s", bad, part)
		}
	}
}

func TestTouches(t *testing.T) {
	for _, test := range []struct {
		kind  types.PatchType
		body  string
		names []string
	}{
		{types.MergePatchType, `{"metadata":{"labels":{}},"spec":{}}`, []string{"metadata", "spec"}},
		{types.MergePatchType, `[]`, nil},
		{types.JSONPatchType, `[{"op":"add","path":"/metadata/labels/a"},{"op":"copy","from":"/spec/x","path":"/metadata/y"}]`, []string{"metadata", "spec"}},
		{types.JSONPatchType, `[{"op":"replace","path":"/status"}]`, nil},
		{types.JSONPatchType, `[{"op":"replace","path":""}]`, nil},
		{types.JSONPatchType, `[{"op":"remove","path":"/a~1b/c"}]`, nil},
	} {
		names, ok := (&patch{kind: test.kind, body: []byte(test.body)}).touches()
		slices.Sort(names)
		if ok != (test.names != nil) || ok && !slices.Equal(names, test.names) {
			t.Errorf("%s: %v %v", test.body, names, ok)
		}
	}
}

func TestOuterFields(t *testing.T) {
	if f := outerFields(&corev1.Pod{}); len(f) != 3 || f["metadata"] != 1 || f["spec"] != 2 || f["status"] != 3 {
		t.Errorf("%v", f)
	}
	if f := outerFields(&unstructured.Unstructured{}); f != nil {
		t.Errorf("%v", f)
	}
}
