package registry

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"pgregory.net/rapid"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
)

// TestMergeStrings compares mergeStrings with the libraries.
func TestMergeStrings(t *testing.T) {
	known := outerFields(&corev1.ConfigMap{})
	keys := rapid.SampledFrom([]string{"a", "b", "$c"})
	entries := rapid.MapOf(keys, rapid.SampledFrom([]any{"1", "2", "", nil}))
	texts := rapid.MapOf(keys, rapid.SampledFrom([]string{"1", "2", ""}))
	direct := 0
	rapid.Check(t, func(t *rapid.T) {
		before := &corev1.ConfigMap{}
		before.Name = "n"
		if rapid.Bool().Draw(t, "labelled") {
			before.Labels = texts.Draw(t, "labels")
		}
		before.Data = texts.Draw(t, "data")
		change := map[string]any{"metadata": map[string]any{"labels": entries.Draw(t, "new labels"), "resourceVersion": "7"}}
		if rapid.Bool().Draw(t, "with data") {
			change["data"] = entries.Draw(t, "new data")
		}
		body, err := json.Marshal(change)
		if err != nil {
			t.Fatal(err)
		}
		p := &Patch{kind: rapid.SampledFrom([]types.PatchType{types.MergePatchType, types.StrategicMergePatchType}).Draw(t, "kind"), body: body}
		touched, ok := p.touchedParts(known)
		if !ok || !touched.areStrings(before) {
			t.Fatalf("%s is not taken for strings", body)
		}
		got := before.DeepCopy()
		if !p.mergeStrings(touched, got) {
			return
		}
		direct++
		original, err := json.Marshal(before)
		if err != nil {
			t.Fatal(err)
		}
		var merged []byte
		if p.kind == types.MergePatchType {
			merged, err = jsonpatch.MergePatch(original, body)
		} else {
			merged, err = strategicpatch.StrategicMergePatch(original, body, before)
		}
		if err != nil {
			t.Fatal(err)
		}
		var want corev1.ConfigMap
		if err := json.Unmarshal(merged, &want); err != nil {
			t.Fatal(err)
		}
		if len(before.Data) == 0 && change["data"] == nil {
			want.Data = before.Data // JSON does not distinguish empty and absent
		}
		if len(before.Labels) == 0 && len(want.Labels) == 0 {
			want.Labels = got.Labels
		}
		if diff := cmp.Diff(&want, got); diff != "" {
			t.Fatalf("%s on %s: (-libraries +direct)\n%s", body, original, diff)
		}
	})
	if direct == 0 {
		t.Error("nothing was merged directly")
	}
}

func TestMergeStringsLeavesTheRest(t *testing.T) {
	known := outerFields(&corev1.ConfigMap{})
	for _, body := range []string{
		`{"metadata":{"labels":{"a":1}}}`,
		`{"metadata":{"labels":null}}`,
		`{"metadata":{"name":null}}`,
		`{"metadata":{"labels":{"a":"1","a":"2"}}}`,
		`{"metadata":{"labels":["a"]}}`,
		`{"data":{"a":{"b":"c"}}}`,
		`{"data":"text"}`,
	} {
		p := &Patch{kind: types.MergePatchType, body: []byte(body)}
		touched, ok := p.touchedParts(known)
		if !ok || !touched.areStrings(&corev1.ConfigMap{}) {
			t.Fatalf("%s is not taken for strings", body)
		}
		if p.mergeStrings(touched, &corev1.ConfigMap{}) {
			t.Errorf("%s was merged", body)
		}
	}
	p := &Patch{kind: types.MergePatchType, body: []byte(`{"metadata":{"finalizers":[]},"data":{}}`)}
	if touched, ok := p.touchedParts(known); !ok || touched.areStrings(&corev1.ConfigMap{}) {
		t.Error("a list was taken for strings")
	}
}
