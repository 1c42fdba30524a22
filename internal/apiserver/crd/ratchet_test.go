package crd_test

import (
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const kegs = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: kegs.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: kegs, singular: keg, kind: Keg, listKind: KegList}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties: {spec: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// stricter is a schema under which the values of oldKeg are not valid. Each update
// must increase the number of taps.
const stricter = `[{"op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec", "value": {
	"type": "object", "properties": {
		"litres": {"type": "integer", "maximum": 10},
		"beer": {"type": "string", "maxLength": 20, "x-kubernetes-validations": [{"rule": "self.startsWith('pale')"}]},
		"tags": {"type": "array", "items": {"type": "string", "maxLength": 3}},
		"pubs": {"type": "array", "maxItems": 5, "items": {"type": "string", "maxLength": 20, "x-kubernetes-validations": [{"rule": "self != 'closed'"}]}},
		"taps": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > oldSelf"}]},
		"lid": {"type": "string", "maxLength": 20, "x-kubernetes-validations": [{"rule": "oldSelf.hasValue() || self == 'new'", "optionalOldSelf": true}]},
		"note": {"type": "string"}
	}}}]`

const oldKeg = `
apiVersion: example.com/v1
kind: Keg
metadata: {name: old, namespace: default}
spec: {litres: 20, beer: stout, tags: [large], pubs: [closed], taps: 1}
`

// Values that were valid once can stay as they are while others change, unless it
// cannot be known that they are the same.
func TestUnchangedErrors(t *testing.T) {
	c := start(t)
	c.define(kegs)
	api := c.kind("v1", "kegs")
	if _, err := api.Create(t.Context(), object(t, oldKeg), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.definitions.ApiextensionsV1().CustomResourceDefinitions().Patch(t.Context(), "kegs.example.com", types.JSONPatchType, []byte(stricter), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	another := object(t, strings.Replace(oldKeg, "name: old", "name: another", 1))
	for late := time.Now().Add(patience); ; {
		_, err := api.Create(t.Context(), another, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if apierrors.IsInvalid(err) {
			break
		}
		if time.Now().After(late) {
			t.Fatalf("the new schema is not in use: %v", err)
		}
	}
	for _, test := range []struct{ name, change, wrong string }{
		{"another field", `"note": "x"`, ""},
		{"the same values", `"litres": 20, "beer": "stout", "tags": ["large"], "pubs": ["closed"]`, ""},
		{"a field by the schema", `"litres": 21`, "spec.litres"},
		{"a field by a rule", `"beer": "porter"`, "spec.beer"},
		{"a list without keys by the schema", `"tags": ["large", "x"]`, "spec.tags[0]"},
		{"a list without keys by a rule", `"pubs": ["closed", "open"]`, "spec.pubs[0]"},
		{"a rule that compares", `"taps": 1, "note": "x"`, "spec.taps"},
		{"a new value, by a rule for it", `"lid": "old"`, "spec.lid"},
		{"a new value that is right", `"lid": "new"`, ""},
	} {
		change := `{"spec": {"taps": 2, ` + test.change + `}}`
		if strings.Contains(test.change, "taps") {
			change = `{"spec": {` + test.change + `}}`
		}
		_, err := api.Patch(t.Context(), "old", types.MergePatchType, []byte(change), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		if test.wrong == "" && err != nil || test.wrong != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), test.wrong)) {
			t.Errorf("%s: %v, want an error about %q", test.name, err, test.wrong)
		}
	}
}
