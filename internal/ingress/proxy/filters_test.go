package proxy

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coracle-io/coracle/internal/ingress/table"
)

// A route with filters changes what the backend gets and what it answers.
func TestFilters(t *testing.T) {
	to := backend(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Server", "secret")
		w.Header().Set("X-Kept", "yes")
		_, _ = fmt.Fprintf(w, "%s %s %s %q %q %t", r.Host, r.URL.EscapedPath(), r.URL.RawQuery, r.Header["X-Team"], r.Header["X-Forwarded-Host"], r.Header.Get(hopHeader) != "")
	})
	route := routeTo(to)
	route.Prefix = 1
	route.Filters = &table.Filters{
		Rewrite:  table.Rewrite{Host: "inner.example", Path: &table.PathChange{With: "/v2", Prefix: true}},
		Request:  table.HeaderChanges{Set: []table.Pair{{Name: "X-Team", Value: "web"}}, Add: []table.Pair{{Name: "X-Team", Value: "shop"}}, Remove: []string{hopHeader}},
		Response: table.HeaderChanges{Remove: []string{"X-Server"}, Add: []table.Pair{{Name: "X-Kept", Value: "again"}}},
	}
	address := serve(t, newProxy(t, tableOf(t, route)), false)
	request, err := http.NewRequest(http.MethodGet, "http://"+address+"/v1/a%2Fb?x=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Host = "outer.example"
	request.Header.Set("X-Team", "forged")
	response, err := client(t).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	// The header that counts hops is the proxy's own.
	if got, want := string(body), `inner.example /v2/a%2Fb x=1 ["web" "shop"] ["outer.example"] true`; got != want {
		t.Errorf("the backend got %s, want %s", got, want)
	}
	if got := fmt.Sprint(response.Header["X-Server"], response.Header["X-Kept"]); got != "[] [yes again]" {
		t.Errorf("the client got the headers %s", got)
	}
}

func TestRedirections(t *testing.T) {
	for what, test := range map[string]struct {
		redirect table.Redirect
		want     string // PORT is that of the request
	}{
		"host":           {table.Redirect{Host: "b.example", Code: 302}, "302 http://b.example:PORT/old/x?q=1"},
		"scheme":         {table.Redirect{Scheme: "https", Code: 301}, "301 https://a.example/old/x?q=1"},
		"port":           {table.Redirect{Port: 8080, Code: 302}, "302 http://a.example:8080/old/x?q=1"},
		"port of HTTP":   {table.Redirect{Port: 80, Code: 302}, "302 http://a.example/old/x?q=1"},
		"port of HTTPS":  {table.Redirect{Scheme: "https", Port: 443, Code: 302}, "302 https://a.example/old/x?q=1"},
		"HTTPS at 80":    {table.Redirect{Scheme: "https", Port: 80, Code: 302}, "302 https://a.example:80/old/x?q=1"},
		"path":           {table.Redirect{Scheme: "https", Path: &table.PathChange{With: "/new"}, Code: 308}, "308 https://a.example/new?q=1"},
		"prefix":         {table.Redirect{Scheme: "https", Path: &table.PathChange{With: "/new", Prefix: true}, Code: 307}, "307 https://a.example/new/x?q=1"},
		"another prefix": {table.Redirect{Scheme: "https", Path: &table.PathChange{Prefix: true}, Code: 303}, "303 https://a.example/x?q=1"},
	} {
		route := routeTo()
		route.Prefix, route.Filters = 1, &table.Filters{Redirect: &test.redirect}
		address := serve(t, newProxy(t, tableOf(t, route)), false)
		request, err := http.NewRequest(http.MethodGet, "http://"+address+"/old/x?q=1", nil)
		if err != nil {
			t.Fatal(err)
		}
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			t.Fatal(err)
		}
		request.Host = "a.example:" + port
		response, err := client(t).Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		want := strings.Replace(test.want, "PORT", port, 1)
		if got := fmt.Sprint(response.StatusCode, " ", response.Header.Get("Location")); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
}

// A backend that there is not answers 500 for its share of the requests.
func TestInvalidBackend(t *testing.T) {
	route := &table.Route{Namespace: "web", Name: "HTTPRoute/shop", Targets: []table.Target{{Weight: 1, Backend: &table.Backend{Invalid: true}}}}
	address := serve(t, newProxy(t, tableOf(t, route)), false)
	if code, _ := get(t, client(t), "http://"+address+"/"); code != http.StatusInternalServerError {
		t.Errorf("the status is %d", code)
	}
}

// A request that takes longer than its route allows gets 504, however many endpoints it
// was sent to.
func TestTimeout(t *testing.T) {
	hold := make(chan struct{})
	to := backend(t, func(http.ResponseWriter, *http.Request) { <-hold })
	t.Cleanup(func() { close(hold) })
	route := routeTo(to)
	route.Timeout = time.Millisecond
	address := serve(t, newProxy(t, tableOf(t, route)), false)
	if code, _ := get(t, client(t), "http://"+address+"/"); code != http.StatusGatewayTimeout {
		t.Errorf("the status is %d", code)
	}
}
