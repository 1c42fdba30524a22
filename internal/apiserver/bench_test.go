package apiserver_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coracle-io/coracle/internal/apiserver/apiservertest"
)

const benchPod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"%s","labels":{"app":"web","tier":"front"},"annotations":{"note":"a pod of the benchmark"}},"spec":{"containers":[{"name":"main","image":"registry.example/app/web:1.2.3","ports":[{"containerPort":8080}],"env":[{"name":"A","value":"1"},{"name":"B","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}],"resources":{"requests":{"cpu":"100m","memory":"64Mi"},"limits":{"cpu":"200m","memory":"128Mi"}},"livenessProbe":{"httpGet":{"path":"/healthz","port":8080},"periodSeconds":10}}]}}`

// discard is a response that is thrown away.
type discard struct {
	header http.Header
	code   int
}

func (d *discard) Header() http.Header { return d.header }
func (d *discard) WriteHeader(c int)   { d.code = c }
func (d *discard) Write(b []byte) (int, error) {
	return len(b), nil
}

func serve(b *testing.B, h http.Handler, want int, method, path string, body []byte, headers ...string) {
	r := httptest.NewRequest(method, path, bytes.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := &discard{header: http.Header{}}
	h.ServeHTTP(w, r)
	if w.code != want {
		b.Fatalf("%s %s: %d", method, path, w.code)
	}
}

func benchServer(b *testing.B, pods int) http.Handler {
	b.Helper()
	h := apiservertest.Start(b).Handler()
	for i := range pods {
		serve(b, h, http.StatusCreated, "POST", podsPath, fmt.Appendf(nil, benchPod, fmt.Sprintf("pod-%06d", i)))
	}
	return h
}

func BenchmarkCreate(b *testing.B) {
	h := benchServer(b, 0)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		serve(b, h, http.StatusCreated, "POST", podsPath, fmt.Appendf(nil, benchPod, fmt.Sprintf("pod-%06d", i)))
	}
}

func BenchmarkGet(b *testing.B) {
	h := benchServer(b, 1)
	for _, query := range []string{"", "?resourceVersion=0"} {
		b.Run("fresh"+query, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				serve(b, h, http.StatusOK, "GET", podsPath+"/pod-000000"+query, nil)
			}
		})
	}
}

func BenchmarkList(b *testing.B) {
	h := benchServer(b, 5000)
	for _, accept := range []string{"application/json", "application/vnd.kubernetes.protobuf", "application/json;as=Table;v=v1;g=meta.k8s.io"} {
		name, _, _ := strings.Cut(accept, ";")
		if strings.Contains(accept, "Table") {
			name = "table"
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				serve(b, h, http.StatusOK, "GET", podsPath, nil, "Accept", accept)
			}
		})
	}
}

func BenchmarkPatch(b *testing.B) {
	h := benchServer(b, 1)
	for _, kind := range []string{"merge", "strategic-merge"} {
		b.Run(kind, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				serve(b, h, http.StatusOK, "PATCH", podsPath+"/pod-000000", fmt.Appendf(nil, `{"metadata":{"labels":{"n":"%d"}}}`, i), "Content-Type", "application/"+kind+"-patch+json")
			}
		})
	}
}

func BenchmarkUpdate(b *testing.B) {
	h := benchServer(b, 1)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		body := bytes.Replace(fmt.Appendf(nil, benchPod, "pod-000000"), []byte(`"tier":"front"`), fmt.Appendf(nil, `"tier":"%d"`, i), 1)
		serve(b, h, http.StatusOK, "PUT", podsPath+"/pod-000000", body)
	}
}

func BenchmarkDelete(b *testing.B) {
	h := apiservertest.Start(b).Handler()
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		serve(b, h, http.StatusCreated, "POST", mapsPath, []byte(configMap("x", "}")))
		b.StartTimer()
		serve(b, h, http.StatusOK, "DELETE", mapsPath+"/x", nil)
	}
}
