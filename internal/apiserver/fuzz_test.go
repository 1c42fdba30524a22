package apiserver_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/coracle-io/coracle/internal/apiserver/apiservertest"
	"github.com/coracle-io/coracle/internal/apiserver/codec"
)

var (
	fuzzMethods      = []string{"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"}
	fuzzContentTypes = []string{
		"application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "application/json-patch+json",
		"application/merge-patch+json", "application/strategic-merge-patch+json", "application/apply-patch+yaml", "text/plain",
	}
	fuzzAccepts = []string{
		"", "application/json", "application/vnd.kubernetes.protobuf", "application/yaml", "application/json;as=Table;v=v1;g=meta.k8s.io",
		"application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", "*/*;q=", "text/html",
	}
)

// fuzzTimeout ends what has no end of its own: watches.
const fuzzTimeout = 100 * time.Millisecond

// FuzzRequest sends any request to the whole request path: no panic, and
// nothing that the client can send is the server's fault.
func FuzzRequest(f *testing.F) {
	pod := &corev1.Pod{}
	pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	pod.Name = "web"
	protobuf, err := codec.Encode(runtime.Object(pod), codec.Protobuf)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(uint8(1), podsPath, "fieldValidation=Strict", []byte(podBody), uint8(0), uint8(0))
	f.Add(uint8(1), podsPath, "", protobuf, uint8(2), uint8(2))
	f.Add(uint8(1), mapsPath, "dryRun=All", []byte("kind: ConfigMap\nmetadata: {name: x}\ndata: {a: b}\na: &x [*x]\n"), uint8(1), uint8(3))
	f.Add(uint8(3), mapsPath+"/there", "", []byte(`{"data":{"a":null,"$patch":"replace"}}`), uint8(5), uint8(4))
	f.Add(uint8(3), mapsPath+"/there", "fieldManager=x", []byte(`[{"op":"copy","from":"/metadata","path":"/data/-"}]`), uint8(3), uint8(0))
	f.Add(uint8(3), podsPath+"/web", "", []byte(`{"spec":{"containers":[{"$patch":"delete","name":"main"}],"$retainKeys":["x"]}}`), uint8(5), uint8(0))
	f.Add(uint8(2), mapsPath+"/there", "", []byte(configMap("there", `,"resourceVersion":"abc"}`)), uint8(0), uint8(0))
	f.Add(uint8(0), mapsPath, "limit=-1&continue=x&labelSelector=a%20in%20(&fieldSelector=metadata.name=x,a!=b", []byte{}, uint8(0), uint8(4))
	f.Add(uint8(0), mapsPath, "watch=1&timeoutSeconds=1&resourceVersion=9999999999999999999999", []byte{}, uint8(0), uint8(0))
	f.Add(uint8(4), mapsPath, "gracePeriodSeconds=x", []byte(`{"kind":"DeleteOptions","preconditions":{"uid":"x"}}`), uint8(0), uint8(0))
	f.Add(uint8(1), podsPath+"/web/binding", "", []byte(`{"target":{}}`), uint8(0), uint8(0))
	f.Add(uint8(1), podsPath+"/web/eviction", "", []byte(`{"deleteOptions":{"gracePeriodSeconds":-1}}`), uint8(0), uint8(0))
	f.Add(uint8(0), "/apis/apps/v1/namespaces//deployments/x/scale/y/z", "", []byte{}, uint8(0), uint8(0))
	f.Add(uint8(1), "/api/v\xff/\xfe", "", []byte{}, uint8(0), uint8(0))
	f.Add(uint8(0), "/api/v1/watch/namespaces/default", "", []byte{}, uint8(0), uint8(0))
	f.Add(uint8(1), "/apis/authorization.k8s.io/v1/namespaces/x/localsubjectaccessreviews", "", []byte(`{"spec":{"nonResourceAttributes":{}}}`), uint8(0), uint8(0))

	s := apiservertest.Start(f)
	handler := s.Handler()
	f.Fuzz(func(t *testing.T, method uint8, path, query string, body []byte, contentType, accept uint8) {
		if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "/debug/") {
			t.Skip()
		}
		ctx, cancel := context.WithTimeout(t.Context(), fuzzTimeout)
		defer cancel()
		r := httptest.NewRequest(fuzzMethods[int(method)%len(fuzzMethods)], "/", strings.NewReader(string(body))).WithContext(ctx)
		r.URL.Path, r.URL.RawQuery = path, query
		r.Header.Set("Content-Type", fuzzContentTypes[int(contentType)%len(fuzzContentTypes)])
		r.Header.Set("Accept", fuzzAccepts[int(accept)%len(fuzzAccepts)])
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code >= http.StatusInternalServerError && w.Code != http.StatusGatewayTimeout && w.Code != http.StatusServiceUnavailable && !serversOwn(w.Body.String()) {
			t.Errorf("%s %s?%s %q: %d %s", r.Method, path, query, body, w.Code, w.Body)
		}
	})
}

// FuzzDecode reads any bytes as a pod.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(podBody), uint8(0))
	f.Add([]byte("kind: Pod\nspec: {containers: [{name: a}]}\n"), uint8(1))
	f.Add([]byte("k8s\x00\n\x09\n\x02v1\x12\x03Pod"), uint8(2))
	f.Add([]byte("k8s\x00"), uint8(2))
	f.Fuzz(func(_ *testing.T, data []byte, media uint8) {
		kind := corev1.SchemeGroupVersion.WithKind("Pod")
		_, _ = codec.DecodeInto(&corev1.Pod{}, kind, data, codec.Media(media%3), true, nil)
	})
}
