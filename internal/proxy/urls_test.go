package proxy

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/coracle-io/coracle/internal/freeport"
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
