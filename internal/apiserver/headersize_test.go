package apiserver_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/coracle-io/coracle/internal/apiserver"
	"github.com/coracle-io/coracle/internal/apiserver/apiservertest"
	"github.com/coracle-io/coracle/internal/memory"
)

// withHeaders returns a GET with so many headers beside those of net/http, the first one
// of which has a value of so many bytes.
func withHeaders(ctx context.Context, t *testing.T, url, user string, count, bytes int) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Test-User", user)
	for i := range count {
		r.Header.Set(fmt.Sprintf("X-Header-%d", i), "v")
	}
	r.Header.Set("X-Header-0", strings.Repeat("v", bytes))
	return r
}

// Requests with very many headers are refused.
func TestHeadersOfRequestsAreBounded(t *testing.T) {
	s := apiservertest.Start(t)
	for _, test := range []struct{ count, bytes, code int }{
		{1, 1, http.StatusOK},
		{1000, 1, http.StatusOK},
		{1100, 1, http.StatusRequestHeaderFieldsTooLarge},
		{1, 500 << 10, http.StatusOK},
	} {
		response, err := http.DefaultClient.Do(withHeaders(t.Context(), t, s.URL+mapsPath, "admin", test.count, test.bytes))
		if err != nil {
			t.Fatal(err)
		}
		if response.StatusCode != test.code {
			t.Errorf("%d headers, the first one of %d bytes: %d, want %d", test.count, test.bytes, response.StatusCode, test.code)
		}
		_ = response.Body.Close()
	}
}

// Large URLs count for the memory of their tenant as long as their requests last.
func TestLargeURLsCount(t *testing.T) {
	s := apiservertest.Start(t, everybody, func(c *apiserver.Config) {
		c.Memory = memory.NewBudget(16 << 20) // about 3 MB for each tenant
		c.Handlers.Paths = map[string]http.Handler{"/slow": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})}
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	begin := func(user, query string) int {
		response, err := http.DefaultClient.Do(withHeaders(ctx, t, s.URL+"/slow?"+query, user, 1, 1)) //nolint:bodyclose // closed at the end
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = response.Body.Close() })
		return response.StatusCode
	}
	large, code := strings.Repeat("x", 40<<10), http.StatusOK
	n := 0
	for ; n < 20 && code == http.StatusOK; n++ {
		code = begin("jane", large)
	}
	if code != http.StatusTooManyRequests || n < 3 {
		t.Errorf("request number %d with a large URL is answered %d", n, code)
	}
	for user, query := range map[string]string{"john": large, "jane": "x"} {
		if code := begin(user, query); code != http.StatusOK {
			t.Errorf("%s is answered %d for a URL of %d bytes", user, code, len(query))
		}
	}
	response, err := http.DefaultClient.Do(withHeaders(ctx, t, s.URL+"/"+strings.Repeat("a/", 40<<10), "admin", 1, 1))
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusRequestURITooLong {
		t.Errorf("a path of 80 KiB: %d", response.StatusCode)
	}
}

// A large URL counts as long as the answer is not read.
func TestLargeURLsOfUnreadAnswersCount(t *testing.T) {
	s := newSharedServer(t) // about 3 MB for each tenant
	object := fmt.Sprintf(`{"metadata":{"name":"large"},"data":{"a":%q}}`, strings.Repeat("x", 300<<10))
	if code, body, _ := call(t, s.Server, "POST", memoryTestMaps, object, "X-Test-User", "system:kube-scheduler"); code != http.StatusCreated {
		t.Fatalf("%d %s", code, body)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	open := s.exhaust(ctx, "jane", memoryTestMaps+"/large?x="+strings.Repeat("x", 40<<10)) //nolint:bodyclose // closed below
	if len(open) > 4 {
		t.Errorf("%d requests with URLs that take a megabyte each, and answers that are not read, are served", len(open)-1)
	}
	cancel()
	for _, response := range open {
		_ = response.Body.Close()
	}
}

// A watch counts with its headers for the memory of its tenant, because it holds them.
func TestHeadersOfWatchesCount(t *testing.T) {
	s := newSharedServer(t) // about 3 MB for each tenant
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for n := 1; ; n++ {
		const watch = memoryTestMaps + "?watch=1&resourceVersion=1&fieldSelector=metadata.name%3Dnone"
		response, err := s.transport.RoundTrip(withHeaders(ctx, t, s.url+watch, "jane", 1000, 1))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		switch {
		case response.StatusCode == http.StatusTooManyRequests && n > 3:
			return
		case response.StatusCode != http.StatusOK:
			t.Fatalf("watch number %d is answered %d", n, response.StatusCode)
		case n == 30:
			t.Fatalf("%d watches with a thousand headers each are served", n)
		}
	}
}
