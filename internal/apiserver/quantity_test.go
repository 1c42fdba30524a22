package apiserver_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/types"
)

// hugeQuantity would take hours to compare. usualQuantity has as many bytes.
const hugeQuantity, usualQuantity = "1e900000000", "12345678901"

// protobufQuota returns the body of a ResourceQuota in protobuf.
func protobufQuota(t *testing.T, message []byte) string {
	t.Helper()
	envelope := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "ResourceQuota"}, Raw: message}
	raw, err := envelope.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return "k8s\x00" + string(raw)
}

// TestQuantitiesOutOfRange checks that each way to write an object refuses a
// quantity that would take too long to compute with, before it is parsed, and
// names its field.
func TestQuantitiesOutOfRange(t *testing.T) {
	s := startCBOR(t)
	const quotas = "/api/v1/namespaces/default/resourcequotas"
	quota := func(name, memory string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":%q,"labels":{"commit":"3e48219","e":%q}},"spec":{"hard":{"cpu":"1","memory":%q}}}`, name, hugeQuantity, memory)
	}
	asCBOR := func(name string) string {
		var content any
		if err := json.Unmarshal([]byte(quota(name, hugeQuantity)), &content); err != nil {
			t.Fatal(err)
		}
		encoded, err := direct.Marshal(content)
		if err != nil {
			t.Fatal(err)
		}
		return string(encoded)
	}
	message, err := (&corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "r", Labels: map[string]string{"e": hugeQuantity}},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"memory": resource.MustParse(usualQuantity)}},
	}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	do(t, s, http.StatusCreated, "POST", quotas, quota("q", "1Gi"))
	const (
		asJSON, asYAML, asProtobuf = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
		change                     = `{"spec":{"hard":{"memory":"` + hugeQuantity + `"}}}`
		changes                    = `{"metadata":{"labels":{"a":"b"},"unknown":1},"spec":{"hard":{"memory":"` + hugeQuantity + `"}}}`
	)
	for _, r := range []struct{ method, path, body, contentType string }{
		{"POST", "", quota("r", hugeQuantity), asJSON},
		{"POST", "?dryRun=All", quota("r", hugeQuantity), asJSON},
		{"POST", "?fieldValidation=Ignore", quota("r", hugeQuantity), asJSON},
		{"POST", "", "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: r}\nspec: {hard: {memory: \"1\\x65900000000\"}}\n", asYAML},
		{"POST", "", protobufQuota(t, []byte(strings.ReplaceAll(string(message), usualQuantity, hugeQuantity))), asProtobuf},
		{"POST", "", asCBOR("r"), "application/cbor"},
		{"PUT", "/q", quota("q", hugeQuantity), asJSON},
		{"PUT", "/q?dryRun=All", quota("q", hugeQuantity), asJSON},
		{"PUT", "/q/status", strings.Replace(quota("q", hugeQuantity), `"spec"`, `"status"`, 1), asJSON},
		{"PATCH", "/q", `[{"op":"add","path":"/spec/hard/memory","value":"` + hugeQuantity + `"}]`, string(types.JSONPatchType)},
		{"PATCH", "/q", change, string(types.MergePatchType)},
		{"PATCH", "/q", changes, string(types.MergePatchType)},
		{"PATCH", "/q", change, string(types.StrategicMergePatchType)},
		{"PATCH", "/q", changes, string(types.StrategicMergePatchType)},
		{"PATCH", "/q?dryRun=All", change, string(types.StrategicMergePatchType)},
		{"PATCH", "/q?fieldManager=test&force=true", quota("q", hugeQuantity), string(types.ApplyYAMLPatchType)},
		{"PATCH", "/r?fieldManager=test", quota("r", hugeQuantity), string(types.ApplyYAMLPatchType)},
		{"PATCH", "/q?fieldManager=test&force=true&dryRun=All", asCBOR("q"), string(types.ApplyCBORPatchType)},
	} {
		code, data, _ := call(t, s, r.method, quotas+r.path, r.body, "Content-Type", r.contentType)
		var status metav1.Status
		if err := json.Unmarshal(data, &status); err != nil {
			t.Errorf("%s %s %s: %v: %s", r.method, r.path, r.contentType, err, data)
		}
		if code != http.StatusBadRequest || !strings.Contains(status.Message, `.hard[memory]: the quantity "1e900000000" is out of range`) {
			t.Errorf("%s %s %s: %d %s", r.method, r.path, r.contentType, code, status.Message)
		}
	}
	do(t, s, http.StatusCreated, "POST", quotas, protobufQuota(t, message), "Content-Type", asProtobuf)
	do(t, s, http.StatusOK, "PUT", quotas+"/q", quota("q", "1e9"))
	for _, kind := range []types.PatchType{types.MergePatchType, types.StrategicMergePatchType} {
		do(t, s, http.StatusOK, "PATCH", quotas+"/q", `{"metadata":{"annotations":{"e":"`+hugeQuantity+`"}},"spec":{"hard":{"memory":"2e9"}}}`, "Content-Type", string(kind))
	}
	do(t, s, http.StatusOK, "PATCH", quotas+"/q?fieldManager=test&force=true", quota("q", "3Gi"), "Content-Type", string(types.ApplyYAMLPatchType))
}

// TestGroupsInAQuantity checks that a quantity in protobuf whose decoder would
// recurse a million times is refused before.
func TestGroupsInAQuantity(t *testing.T) {
	s := startCBOR(t)
	field := func(number protowire.Number, content string) string {
		return string(protowire.AppendString(protowire.AppendTag(nil, number, protowire.BytesType), content))
	}
	groups := strings.Repeat("\x2b", 1<<20)
	body := protobufQuota(t, []byte(field(2, field(1, field(1, "memory")+field(2, groups)))))
	code, data, _ := call(t, s, "POST", "/api/v1/namespaces/default/resourcequotas", body, "Content-Type", "application/vnd.kubernetes.protobuf")
	if code != http.StatusBadRequest || !strings.Contains(string(data), "encoding is unusual") {
		t.Errorf("%d %s", code, data)
	}
}
