package proxy

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/freeport"
	"github.com/coracle-io/coracle/internal/logging"
)

// The proxy answers at kube-proxy's two addresses: whether it is healthy, and its mode and
// metrics.
func TestPagesOfTheProxy(t *testing.T) {
	health, metrics := ListenAddress{"127.0.0.1", freeport.For(t)}, ListenAddress{"127.0.0.1", freeport.For(t)}
	p := New(Config{NodeName: "n1", Backend: &refusing{}, Mode: "nftables", HealthzAddress: health, MetricsAddress: metrics})
	servers, err := p.listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer servers.stop()
	p.health.applied()
	for _, page := range []struct{ url, want string }{
		{health.String() + "/healthz", ""}, {health.String() + "/livez", ""}, {metrics.String() + "/metrics", ""},
		{metrics.String() + "/healthz", "ok"}, {metrics.String() + "/healthz/ping", "ok"}, {metrics.String() + "/proxyMode", "nftables"},
		{metrics.String() + "/metrics/slis", `kubernetes_healthchecks_total{name="ping",status="success",type="healthz"} 2`},
	} {
		answer, err := http.Get("http://" + page.url)
		if err != nil {
			t.Error(err)
			continue
		}
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil || answer.StatusCode != http.StatusOK || !strings.Contains(string(body), page.want) {
			t.Errorf("%s: %s %.100q %v, want %q", page.url, answer.Status, body, err, page.want)
		}
	}
}

// The pages of the proxy know its logger, so that its level can be set.
func TestLogLevelOfTheProxy(t *testing.T) {
	var out bytes.Buffer
	ctx := logging.New(&out, logging.Levels{}).Context(t.Context(), "proxy")
	address := ListenAddress{"127.0.0.1", freeport.For(t)}
	p := New(Config{NodeName: "n1", Backend: &refusing{}, MetricsAddress: address, Pages: map[string]http.Handler{logging.LevelPath: logging.LevelHandler()}})
	servers, err := p.listen(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer servers.stop()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+address.String()+logging.LevelPath, strings.NewReader("3"))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusOK || !klog.FromContext(ctx).V(3).Enabled() {
		t.Errorf("it is not set: %s", answer.Status)
	}
}
