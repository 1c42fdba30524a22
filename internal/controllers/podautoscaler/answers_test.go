package podautoscaler

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestQuantitiesOfMetrics checks that an answer of a metrics API with a quantity
// that would take hours to compute with is an error.
func TestQuantitiesOfMetrics(t *testing.T) {
	const (
		pods     = "/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods"
		custom   = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/pods/*/hits"
		external = "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/queue"
		asJSON   = "application/json; charset=utf-8"
	)
	for _, test := range []struct{ path, contentType, body, want string }{
		{pods, asJSON, `{"items":[{"containers":[{"name":"a","usage":{"cpu":"1e900000000"}}]}]}`, "items[0].containers[0].usage[cpu]: the quantity"},
		{custom, asJSON, `{"items":[{"value":"1"},{"value":"1e-900000000"}]}`, "items[1].value: the quantity"},
		{external, asJSON, `{"items":[{"value":1e900000000}]}`, "items[0].value: the quantity"},
		{"/prefix" + external, "", `{"items":[{"value":"1e900000000"}]}`, "items[0].value: the quantity"},
		{pods, asJSON, `{"kind":"NodeMetricsList","items":[{"usage":{"cpu":"1e900000000"}}]}`, "the answer is a NodeMetricsList"},
		{external, "application/vnd.kubernetes.protobuf", "k8s\x00", "instead of application/json"},
		{external, asJSON, `{"items":[{"metricName":"1e900000000","value":"1e9"}]}`, ""},
		{pods, asJSON, `{"items":[{"containers":[{"name":"a","usage":{"cpu":"100m"}}]}]}`, ""},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = []string{test.contentType}
			_, _ = w.Write([]byte(test.body))
		}))
		client := &http.Client{Transport: checkedAnswers{http.DefaultTransport}}
		response, err := client.Get(server.URL + test.path)
		got := ""
		if err == nil {
			body, readErr := io.ReadAll(response.Body)
			_ = response.Body.Close()
			if got, err = string(body), readErr; err != nil {
				t.Error(err)
			}
		}
		if test.want == "" && got != test.body || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s %s: %s, %v", test.path, test.body, got, err)
		}
		server.Close()
	}
}

// TestErrorsOfMetrics checks that an error of a metrics API is passed on, whatever
// its encoding.
func TestErrorsOfMetrics(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "the server is on its way", http.StatusServiceUnavailable)
	}))
	defer server.Close()
	response, err := (&http.Client{Transport: checkedAnswers{http.DefaultTransport}}).Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if body, err := io.ReadAll(response.Body); response.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(body), "on its way") {
		t.Errorf("%d %s, %v", response.StatusCode, body, err)
	}
}
