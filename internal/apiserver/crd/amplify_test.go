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

// The defaults of a schema may not make a small body a large object. With a
// default of 100 kB for each item of a list, 300 kB would become 10 GB.
func TestMultipliedDefaults(t *testing.T) {
	c := start(t)
	c.define(`
metadata: {name: bombs.shop.example}
spec:
  group: shop.example
  names: {plural: bombs, kind: Bomb}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {items: {type: array, items: {type: object,
      properties: {text: {type: string, default: ` + strings.Repeat("x", 100_000) + `}}}}}}}}}
`)
	client, err := rest.HTTPClientFor(c.server.Config)
	if err != nil {
		t.Fatal(err)
	}
	send := func(method, path, contentType, name string, items int) metav1.Status {
		body := `{"apiVersion":"shop.example/v1","kind":"Bomb","metadata":{"name":"` + name + `"},"spec":{"items":[` + strings.TrimSuffix(strings.Repeat("{},", items), ",") + `]}}`
		request, err := http.NewRequestWithContext(t.Context(), method, c.server.Config.Host+"/apis/shop.example/v1/namespaces/default/bombs"+path, strings.NewReader(body))
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
		if response.StatusCode >= http.StatusBadRequest {
			if err := json.Unmarshal(data, &status); err != nil {
				t.Fatalf("%.200s: %v", data, err)
			}
		}
		return status
	}
	if status := send("POST", "", "application/json", "few", 10); status.Code != 0 {
		t.Errorf("ten defaults: %s", status.Message)
	}
	for what, status := range map[string]metav1.Status{
		"create": send("POST", "", "application/json", "many", 100_000),
		"patch":  send("PATCH", "/few", "application/merge-patch+json", "few", 100_000),
		"apply":  send("PATCH", "/applied?fieldManager=me", "application/apply-patch+yaml", "applied", 10_000),
	} {
		if status.Code != http.StatusUnprocessableEntity || !strings.Contains(status.Message, "the defaults of the schema would add more than 3145728 bytes") {
			t.Errorf("%s: %d %.300s", what, status.Code, status.Message)
		}
	}
}
