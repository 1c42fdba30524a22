package crd_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

const pegs = `
metadata: {name: pegs.shop.example}
spec:
  group: shop.example
  names: {plural: pegs, kind: Peg}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}
    subresources: {scale: {specReplicasPath: .spec.size, statusReplicasPath: .status.size}}
`

// Custom resources must have their kind. Those with another kind are refused by
// the rules of the served kind, in the name of the kind that they have, and
// scales as well.
func TestKindsOfObjects(t *testing.T) {
	c := start(t)
	c.define(pegs)
	client, err := rest.HTTPClientFor(c.server.Config)
	if err != nil {
		t.Fatal(err)
	}
	send := func(method, path, contentType, body string) metav1.Status {
		request, err := http.NewRequestWithContext(t.Context(), method, c.server.Config.Host+"/apis/shop.example/v1/namespaces/default/pegs"+path+"?fieldValidation=Strict", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", contentType)
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		data, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		var status metav1.Status
		if err := json.Unmarshal(data, &status); err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		return status
	}
	post := func(body string) metav1.Status { return send(http.MethodPost, "", "application/json", body) }
	if status := post(`{"apiVersion":"shop.example/v1","kind":"Peg","metadata":{"name":"peg"}}`); status.Code != 0 {
		t.Fatal(status.Message)
	}

	const metadata = `"metadata":{"name":"other"}`
	for body, want := range map[string]string{
		`{"kind":"Nail","apiVersion":"shop.example/v1",` + metadata + `,"odd":1}`: `Nail.shop.example "other" is invalid: kind: Invalid value: "Nail": must be Peg`,
		`{"apiVersion":"shop.example/v1",` + metadata + `}`: `the object provided is unrecognized (must be of type Peg): ` +
			`Object 'Kind' is missing in '{"apiVersion":"shop.example/v1",` + metadata + `}' ({"apiVersion":"shop.example/v1 ...)`,
		`{"kind":"Peg",` + metadata + `,"odd":1}`:                                  `the API version in the data () does not match the expected API version (shop.example/v1)`,
		`{"kind":"Peg","apiVersion":"other/v1",` + metadata + `}`:                  `the API version in the data (other/v1) does not match the expected API version (shop.example/v1)`,
		`{"kind":"Peg","apiVersion":"shop.example/v2",` + metadata + `,"spec":{}}`: `Peg in version "v2" cannot be handled as a Peg: strict decoding error: unknown field "spec"`,
		`{"kind":"Peg","apiVersion":"a/b/c"}`: `the object provided is unrecognized (must be of type Peg): ` +
			`unexpected GroupVersion string: a/b/c ({"kind":"Peg","apiVersion":"a/ ...)`,
		`{"kind":5}`: `the object provided is unrecognized (must be of type Peg): couldn't get version/kind; ` +
			`json parse error: json: cannot unmarshal number into Go struct field .kind of type string ({"kind":5})`,
	} {
		if status := post(body); status.Message != want {
			t.Errorf("%s:\ngot  %s\nwant %s", body, status.Message, want)
		}
	}
	const scale = `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"peg"},"spec":{"replicas":-1}}`
	const negative = `Peg.shop.example "peg" is invalid: .spec.size: Invalid value: -1: should be a non-negative integer`
	if status := send(http.MethodPut, "/peg/scale", "application/json", scale); status.Message != negative {
		t.Errorf("scale: %s", status.Message)
	}
	for patch, want := range map[string]string{
		`{"kind":"Nail"}`:                   `Nail.shop.example "peg" is invalid: kind: Invalid value: "Nail": must be Peg`,
		`{"apiVersion":"shop.example/v1b"}`: `Peg.shop.example "peg" is invalid: apiVersion: Invalid value: "shop.example/v1b": must be shop.example/v1`,
	} {
		if status := send(http.MethodPatch, "/peg", "application/merge-patch+json", patch); status.Message != want {
			t.Errorf("%s:\ngot  %s\nwant %s", patch, status.Message, want)
		}
	}
}
