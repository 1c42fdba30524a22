package attack

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

const (
	jsonPatch      = "application/json-patch+json"
	mergePatch     = "application/merge-patch+json"
	strategicPatch = "application/strategic-merge-patch+json"
	applyPatch     = "application/apply-patch+yaml"
	protobufBody   = "application/vnd.kubernetes.protobuf"
)

// checkAnswer sends a request and fails the test unless the status code is
// code.
func checkAnswer(t *testing.T, what string, config *rest.Config, method, path, body, contentType string, code int) {
	t.Helper()
	if got, answer := send(t, config, method, path, body, "Content-Type", contentType); got != code {
		t.Errorf("%s: %d %.300s, want %d", what, got, answer, code)
	}
}

// elements returns n elements of a JSON list whose merge key is the name.
func elements(prefix string, n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, `{"name":"%s%d"},`, prefix, i)
	}
	return strings.TrimSuffix(text.String(), ",")
}

// TestPatchAmplification tries patches with copies that double a document
// (CVE-2019-1002100), deep nesting, long lists and many operations.
func TestPatchAmplification(t *testing.T) {
	c := controlPlane(t)
	mallory, namespace := c.tenant(t, "edit")
	maps, deployments := "/api/v1/namespaces/"+namespace+"/configmaps", "/apis/apps/v1/namespaces/"+namespace+"/deployments"
	eventually(t, "the tenant's permissions", func() error {
		if code, body := send(t, mallory, http.MethodPost, maps, `{"metadata":{"name":"it"},"data":{"a":"`+strings.Repeat("x", 1000)+`"}}`); code != http.StatusCreated {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
	long := func(env string) string {
		return `{"metadata":{"name":"long"},"spec":{"replicas":0,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"main","image":"x","env":[` + env + `]}]}}}}`
	}
	checkAnswer(t, "a long list", mallory, http.MethodPost, deployments, long(elements("a", 20_000)), "application/json", http.StatusCreated)
	var copies []string
	for i := range 40 {
		copies = append(copies, fmt.Sprintf(`{"op":"copy","from":"/data","path":"/data/%d"}`, i))
	}
	nested := strings.Repeat(`{"a":`, 9900) + "1" + strings.Repeat("}", 9900)
	before := c.memory(t)
	c.checkLatencyDuring(t, func(context.Context) {
		checkAnswer(t, "copies of copies", mallory, http.MethodPatch, maps+"/it", "["+strings.Join(copies, ",")+"]", jsonPatch, http.StatusUnprocessableEntity)
		checkAnswer(t, "10,001 operations", mallory, http.MethodPatch, maps+"/it", "["+strings.Repeat(`{"op":"add","path":"/data/a","value":"b"},`, 10_000)+`{"op":"add","path":"/data/a","value":"b"}]`, jsonPatch, http.StatusRequestEntityTooLarge)
		checkAnswer(t, "a merge patch of 9,900 levels", mallory, http.MethodPatch, maps+"/it", `{"data":`+nested+`}`, mergePatch, http.StatusUnprocessableEntity)
		checkAnswer(t, "a merge patch of 500,000 levels", mallory, http.MethodPatch, maps+"/it", `{"data":`+strings.Repeat("[", 500_000)+strings.Repeat("]", 500_000)+`}`, mergePatch, http.StatusBadRequest)
		checkAnswer(t, "a strategic patch of a long list", mallory, http.MethodPatch, deployments+"/long", `{"spec":{"template":{"spec":{"containers":[{"name":"main","env":[{"name":"b"}]}]}}}}`, strategicPatch, http.StatusRequestEntityTooLarge)
		checkAnswer(t, "a strategic patch with a long list", mallory, http.MethodPatch, deployments+"/long", `{"spec":{"template":{"spec":{"containers":[{"name":"main","env":[`+elements("b", 20_000)+`]}]}}}}`, strategicPatch, http.StatusRequestEntityTooLarge)
	})
	c.recordMemory(t, before)
}

// TestBodyAmplification tries bodies with YAML aliases of aliases, deep nesting,
// many errors, and compressed bodies.
func TestBodyAmplification(t *testing.T) {
	c := controlPlane(t)
	mallory, namespace := c.tenant(t, "edit")
	maps := "/api/v1/namespaces/" + namespace + "/configmaps"
	eventually(t, "the tenant's permissions", func() error {
		if code, body := send(t, mallory, http.MethodPost, maps, `{"metadata":{"name":"it"}}`); code != http.StatusCreated {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
	aliases := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for i := 'b'; i <= 'j'; i++ {
		aliases += fmt.Sprintf("%c: &%c [%s*%c]\n", i, i, strings.Repeat(fmt.Sprintf("*%c,", i-1), 8), i-1)
	}
	var labels strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&labels, `"+%d":"",`, i)
	}
	brackets := strings.Repeat("[", 1_500_000) + strings.Repeat("]", 1_500_000)
	before := c.memory(t)
	c.checkLatencyDuring(t, func(context.Context) {
		checkAnswer(t, "aliases of aliases", mallory, http.MethodPost, maps, aliases, "application/yaml", http.StatusBadRequest)
		checkAnswer(t, "applied aliases of aliases", mallory, http.MethodPatch, maps+"/new?fieldManager=me", aliases, applyPatch, http.StatusBadRequest)
		checkAnswer(t, "brackets in JSON", mallory, http.MethodPost, maps, `{"data":`+brackets+`}`, "application/json", http.StatusBadRequest)
		checkAnswer(t, "brackets in YAML", mallory, http.MethodPost, maps, `data: `+brackets, "application/yaml", http.StatusBadRequest)
		checkAnswer(t, "100,000 errors", mallory, http.MethodPost, maps, `{"metadata":{"name":"bad","labels":{`+strings.TrimSuffix(labels.String(), ",")+`}}}`, "application/json", http.StatusUnprocessableEntity)
		checkAnswer(t, "more than 3 MiB", mallory, http.MethodPost, maps, `{"metadata":{"name":"large"},"data":{"a":"`+strings.Repeat("x", 4<<20)+`"}}`, "application/json", http.StatusRequestEntityTooLarge)
		if code, _ := send(t, mallory, http.MethodPost, maps, "\x1f\x8b\x08\x00\x00\x00\x00\x00", "Content-Encoding", "gzip"); code != http.StatusBadRequest {
			t.Errorf("a compressed body: %d", code)
		}
	})
	c.recordMemory(t, before)
}

// TestDefinitionAmplification tries custom resource definitions with a schema that
// is nested deeply enough to exceed the decoder's stack, and with defaults for
// each item of a long list.
func TestDefinitionAmplification(t *testing.T) {
	c := controlPlane(t)
	const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	t.Cleanup(func() { send(t, c.admin, http.MethodDelete, definitions+"/bombs.attack.example", "") })
	checkAnswer(t, "a definition", c.admin, http.MethodPost, definitions, `{"metadata":{"name":"bombs.attack.example"},"spec":{"group":"attack.example","scope":"Cluster","names":{"plural":"bombs","kind":"Bomb"},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"items":{"type":"array","items":{"type":"object",
		"properties":{"text":{"type":"string","default":"`+strings.Repeat("x", 100_000)+`"}}}}}}}}]}}`, "application/json", http.StatusCreated)
	const bombs = "/apis/attack.example/v1/bombs"
	eventually(t, "the definition's resource", func() error {
		if code, body := send(t, c.admin, http.MethodGet, bombs, ""); code != http.StatusOK {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
	before := c.memory(t)
	c.checkLatencyDuring(t, func(context.Context) {
		checkAnswer(t, "defaults for 100,000 items", c.admin, http.MethodPost, bombs,
			`{"apiVersion":"attack.example/v1","kind":"Bomb","metadata":{"name":"it"},"items":[`+strings.TrimSuffix(strings.Repeat("{},", 100_000), ",")+`]}`, "application/json", http.StatusUnprocessableEntity)
		checkAnswer(t, "500,000 levels in protobuf", c.admin, http.MethodPost, definitions, deepDefinition(t, 500_000), protobufBody, http.StatusRequestEntityTooLarge)
	})
	c.recordMemory(t, before)
}

// deepDefinition returns a definition in protobuf whose schema has the given number
// of levels.
func deepDefinition(t *testing.T, levels int) string {
	const notField, schemaField, versionSchemaField, versionsField, specField = 28, 1, 4, 7, 2
	buffer := make([]byte, levels*8)
	at, size := len(buffer), 0
	for range levels {
		head := protowire.AppendVarint(protowire.AppendTag(nil, notField, protowire.BytesType), uint64(size))
		at -= len(head)
		copy(buffer[at:], head)
		size += len(head)
	}
	message := buffer[at:]
	for _, field := range []protowire.Number{schemaField, versionSchemaField, versionsField, specField} {
		message = protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), message)
	}
	envelope := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: apiextensionsv1.SchemeGroupVersion.String(), Kind: "CustomResourceDefinition"}, Raw: message}
	raw, err := envelope.Marshal()
	if err != nil {
		t.Error(err)
	}
	return "k8s\x00" + string(raw)
}
