package crd_test

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// published returns the definitions of custom resources in OpenAPI v2.
func (c *cluster) published() map[string]string {
	c.Helper()
	r, err := http.NewRequestWithContext(c.Context(), http.MethodGet, c.server.URL+"/openapi/v2", http.NoBody)
	if err != nil {
		c.Fatal(err)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		c.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		c.Fatal(err)
	}
	var document struct{ Definitions map[string]json.RawMessage }
	if err := json.Unmarshal(raw, &document); err != nil {
		c.Fatal(err)
	}
	found := map[string]string{}
	for name, d := range document.Definitions {
		if strings.HasPrefix(name, "com.example.") {
			found[name] = string(d)
		}
	}
	return found
}

// publishes waits until exactly the named definitions are published.
func (c *cluster) publishes(want ...string) map[string]string {
	c.Helper()
	for c.Context().Err() == nil {
		found := c.published()
		if len(found) == len(want) && !slices.ContainsFunc(want, func(name string) bool { return found[name] == "" }) {
			return found
		}
	}
	c.Fatal("the test has ended")
	return nil
}

const published = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boats.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: boats, kind: Boat}
  versions:
  - name: v2
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        description: A boat.
        properties:
          spec:
            type: object
            required: [hull]
            properties:
              hull: {type: string, description: What it is made of.}
              crew: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}
  - name: v1
    served: true
    storage: false
    schema:
      openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true, properties: {spec: {type: object}}}
  - name: v1alpha1
    served: false
    storage: false
    schema:
      openAPIV3Schema: {type: object}
`

// OpenAPI v2 has the served versions of definitions, also of renamed ones. A
// version that keeps unknown fields has no properties, so that old clients
// accept all fields.
func TestPublishedOpenAPI(t *testing.T) {
	c := start(t)
	c.define(published)
	found := c.publishes("com.example.v2.Boat", "com.example.v2.BoatList", "com.example.v1.Boat", "com.example.v1.BoatList")
	for name, wants := range map[string][]string{
		"com.example.v2.Boat": {
			`"description":"A boat."`, `"required":["hull"]`, `"$ref":"#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"`,
			`"crew":{"x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true}`,
			`"x-kubernetes-group-version-kind":[{"group":"example.com","kind":"Boat","version":"v2"}]`,
		},
		"com.example.v1.Boat": {`{"type":"object","x-kubernetes-group-version-kind":[{"group":"example.com","kind":"Boat","version":"v1"}]}`},
	} {
		for _, want := range wants {
			if !strings.Contains(found[name], want) {
				t.Errorf("%s is\n%s\nwithout\n%s", name, found[name], want)
			}
		}
	}

	definitions := c.definitions.ApiextensionsV1().CustomResourceDefinitions()
	change := func(do func(*apiextensionsv1.CustomResourceDefinition)) {
		t.Helper()
		for {
			crd, err := definitions.Get(t.Context(), "boats.example.com", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			do(crd)
			_, err = definitions.Update(t.Context(), crd, metav1.UpdateOptions{})
			if err == nil {
				return
			}
			if !apierrors.IsConflict(err) {
				t.Fatal(err)
			}
		}
	}
	change(func(crd *apiextensionsv1.CustomResourceDefinition) { crd.Spec.Versions[1].Name = "v3" })
	c.publishes("com.example.v2.Boat", "com.example.v2.BoatList", "com.example.v3.Boat", "com.example.v3.BoatList")
	change(func(crd *apiextensionsv1.CustomResourceDefinition) { crd.Spec.Versions[1].Served = false })
	c.publishes("com.example.v2.Boat", "com.example.v2.BoatList")
	if err := definitions.Delete(t.Context(), "boats.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.publishes()
}
