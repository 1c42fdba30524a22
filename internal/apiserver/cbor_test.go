package apiserver_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/types"
	watchapi "k8s.io/apimachinery/pkg/watch"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/dynamic"
	clientfeatures "k8s.io/client-go/features"
	featurestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/coracle-io/coracle/internal/apiserver"
	"github.com/coracle-io/coracle/internal/apiserver/apiservertest"
	"github.com/coracle-io/coracle/internal/apiserver/apply"
	"github.com/coracle-io/coracle/internal/apiserver/openapi"
	"github.com/coracle-io/coracle/internal/feature"
)

// media notes which types answers had.
type media struct {
	http.RoundTripper
	seen map[string]int
}

func (m *media) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := m.RoundTripper.RoundTrip(r)
	if err == nil {
		m.seen[response.Header.Get("Content-Type")]++
	}
	return response, err
}

func startCBOR(t *testing.T) *apiservertest.Server {
	t.Helper()
	documents, err := openapi.New()
	if err != nil {
		t.Fatal(err)
	}
	features, err := feature.Parse([]string{string(feature.CBORServingAndStorage) + "=true"})
	if err != nil {
		t.Fatal(err)
	}
	return apiservertest.Start(t, func(c *apiserver.Config) {
		c.Registry.Features = features
		c.Registry.Managers = apply.New(documents.Schemas)
	})
}

// client-go, set to prefer CBOR, speaks nothing else and misses nothing.
func TestClientsThatPreferCBOR(t *testing.T) {
	featurestesting.SetFeatureDuringTest(t, clientfeatures.ClientsAllowCBOR, true)
	featurestesting.SetFeatureDuringTest(t, clientfeatures.ClientsPreferCBOR, true)
	s := startCBOR(t)
	seen := map[string]int{}
	config := rest.CopyConfig(s.Config)
	config.ContentType = "application/cbor"
	config.WrapTransport = func(rt http.RoundTripper) http.RoundTripper { return &media{rt, seen} }
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	secrets := client.CoreV1().Secrets("default")
	watch, err := secrets.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	made, err := secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string][]byte{"k": {0, 255, 7}}}, metav1.CreateOptions{})
	if err != nil || !bytes.Equal(made.Data["k"], []byte{0, 255, 7}) || made.UID == "" {
		t.Fatalf("%v %v", made, err)
	}
	if e := <-watch.ResultChan(); e.Type != watchapi.Added || !bytes.Equal(e.Object.(*corev1.Secret).Data["k"], made.Data["k"]) {
		t.Fatalf("%+v", e)
	}
	applied, err := secrets.Apply(ctx, applycorev1.Secret("a", "default").WithLabels(map[string]string{"x": "y"}), metav1.ApplyOptions{FieldManager: "test"})
	if err != nil || applied.Labels["x"] != "y" || !bytes.Equal(applied.Data["k"], made.Data["k"]) || len(applied.ManagedFields) != 2 {
		t.Fatalf("%+v %v", applied, err)
	}
	if e := <-watch.ResultChan(); e.Type != watchapi.Modified || e.Object.(*corev1.Secret).Labels["x"] != "y" {
		t.Fatalf("%+v", e)
	}
	list, err := secrets.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil || len(list.Items) != 1 || list.Items[0].Name != "a" || list.ResourceVersion == "" {
		t.Fatalf("%+v %v", list, err)
	}
	if _, err := secrets.Patch(ctx, "a", types.MergePatchType, []byte(`{"metadata":{"labels":{"x":"z"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := secrets.Get(ctx, "none", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	if _, err := secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "A_"}}, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Fatal(err)
	}
	if err := secrets.Delete(ctx, "a", metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(made.UID))}); err != nil {
		t.Fatal(err)
	}
	checkDynamic(t, config)
	for contentType := range seen {
		if contentType != "application/cbor" && contentType != "application/cbor-seq" {
			t.Errorf("%d answers in %s", seen[contentType], contentType)
		}
	}
}

func checkDynamic(t *testing.T, config *rest.Config) {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	maps := client.Resource(corev1.SchemeGroupVersion.WithResource("secrets")).Namespace("default")
	list, err := maps.List(t.Context(), metav1.ListOptions{})
	if err != nil || list.GetKind() != "SecretList" || len(list.Items) != 0 {
		t.Fatalf("%v %v", list, err)
	}
}

func TestCBORForms(t *testing.T) {
	s := startCBOR(t)
	mustCreate(t, s, mapsPath, configMap("a", "}"))
	for accept, kind := range map[string]string{
		"application/cbor": "ConfigMapList",
		"application/cbor;as=Table;v=v1;g=meta.k8s.io":                     "Table",
		"application/cbor;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io": "PartialObjectMetadataList",
	} {
		code, body, header := call(t, s, "GET", mapsPath, "", "Accept", accept)
		var content map[string]any
		if err := direct.Unmarshal(body, &content); code != http.StatusOK || err != nil || header.Get("Content-Type") != "application/cbor" {
			t.Fatalf("%s: %d %v", accept, code, err)
		}
		if content["kind"] != kind {
			t.Errorf("%s: %v", accept, content)
		}
		if diagnosed, err := direct.Diagnose(body); err != nil || !strings.Contains(diagnosed, "'a'") {
			t.Errorf("%s: %s %v", accept, diagnosed, err)
		}
	}
	if code, body, _ := call(t, s, "POST", mapsPath, "\xd9\xd9\xf7\xa1", "Content-Type", "application/cbor"); code != http.StatusBadRequest {
		t.Errorf("a broken document: %d %s", code, body)
	}
}

// Without the feature CBOR is refused like any other unknown type.
func TestCBORIsOff(t *testing.T) {
	s := apiservertest.Start(t)
	if code, body, _ := call(t, s, "GET", mapsPath, "", "Accept", "application/cbor"); code != http.StatusNotAcceptable || strings.Contains(string(body), "cbor") {
		t.Errorf("%d %s", code, body)
	}
	for _, contentType := range []string{"application/cbor", "application/apply-patch+cbor"} {
		method, path := "POST", mapsPath
		if contentType != "application/cbor" {
			method, path = "PATCH", mapsPath+"/a"
		}
		if code, body, _ := call(t, s, method, path, "\xa0", "Content-Type", contentType); code != http.StatusUnsupportedMediaType || strings.Contains(string(body), "cbor") {
			t.Errorf("%s: %d %s", contentType, code, body)
		}
	}
}

// Over a WebSocket every event is a message: text for JSON, else binary.
func TestWebSocketForms(t *testing.T) {
	s := startCBOR(t)
	mustCreate(t, s, mapsPath, configMap("a", "}"))
	for accept, want := range map[string]struct {
		kind   int
		prefix string
	}{
		"application/json": {websocket.TextMessage, `{"type":"ADDED","object":{"kind":"ConfigMap"`},
		"application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io": {websocket.TextMessage, `{"type":"ADDED","object":{"kind":"PartialObjectMetadata"`},
		"application/vnd.kubernetes.protobuf;stream=watch":             {websocket.BinaryMessage, "\x0a\x05ADDED\x12"},
		"application/cbor-seq": {websocket.BinaryMessage, "\xd9\xd9\xf7\xa2\x44type\x45ADDED\x46object"},
		"application/json;as=Table;v=v1;g=meta.k8s.io, application/json;q": {websocket.TextMessage, `{"type":"ADDED","object":{"kind":"Table"`},
	} {
		header := http.Header{"Accept": {accept}}
		conn, _, err := websocket.DefaultDialer.DialContext(t.Context(), "ws"+strings.TrimPrefix(s.URL, "http")+mapsPath+"?watch=true&timeoutSeconds=30", header) //nolint:bodyclose // the connection took it over
		if err != nil {
			t.Fatal(err)
		}
		kind, data, err := conn.ReadMessage()
		if err != nil || kind != want.kind || !strings.HasPrefix(string(data), want.prefix) {
			t.Errorf("%s: message of kind %d: %q %v", accept, kind, data, err)
		}
		_ = conn.Close()
	}
}
