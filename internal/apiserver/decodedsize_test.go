package apiserver_test

import (
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/coracle-io/coracle/internal/apiserver"
	"github.com/coracle-io/coracle/internal/apiserver/apiservertest"
	"github.com/coracle-io/coracle/internal/memory"
)

// A body that is decoded to many times its size is refused where there is no
// memory for that, in whatever form it comes; one that is large in itself is
// served.
func TestBodiesThatAreDecodedToMuch(t *testing.T) {
	s := apiservertest.Start(t, func(c *apiserver.Config) { c.Memory = memory.NewBudget(200 << 20) })
	const many = 150_000 // elements, as the server counts them: elements of YAML twice, of protobuf many times
	pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: "wide"}, Spec: corev1.PodSpec{Containers: make([]corev1.Container, many/8)}}
	raw, err := pod.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	unknown := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "Pod"}, Raw: raw}
	if raw, err = unknown.Marshal(); err != nil {
		t.Fatal(err)
	}
	data := `"` + strings.Repeat("x", 900<<10) + `"`
	for _, test := range []struct {
		what, path, body, contentType string
		code                          int
	}{
		{"JSON", podsPath, `{"metadata":{"name":"wide"},"spec":{"containers":[` + strings.TrimSuffix(strings.Repeat("{},", many), ",") + `]}}`, "application/json", http.StatusTooManyRequests},
		{"JSON without end", podsPath, `{"metadata":{"name":"wide"},"spec":{"containers":[` + strings.TrimSuffix(strings.Repeat("{},", 6*many), ",") + `]}}`, "application/json", http.StatusRequestEntityTooLarge},
		{"YAML", podsPath, "metadata: {name: wide}\nspec:\n  containers:\n" + strings.Repeat("  - {}\n", many/2), "application/yaml", http.StatusTooManyRequests},
		{"nulls", podsPath, `{"metadata":{"name":"wide"},"spec":{"containers":[` + strings.TrimSuffix(strings.Repeat("null,", many), ",") + `]}}`, "application/json", http.StatusTooManyRequests},
		{"nulls in YAML", podsPath, "metadata: {name: wide}\nspec: {containers: [" + strings.TrimSuffix(strings.Repeat("~,", many), ",") + "]}", "application/yaml", http.StatusTooManyRequests},
		{"protobuf", podsPath, "k8s\x00" + string(raw), "application/vnd.kubernetes.protobuf", http.StatusTooManyRequests},
		{"a pod", podsPath, podBody, "application/json", http.StatusCreated},
		{"a large map", mapsPath, configMap("large", `},"data":{"a":`+data+`}`), "application/json", http.StatusCreated},
	} {
		code, answer, _ := call(t, s, http.MethodPost, test.path, test.body, "Content-Type", test.contentType)
		if code != test.code {
			t.Errorf("%s: %d %.200s, want %d", test.what, code, answer, test.code)
		}
	}
}
