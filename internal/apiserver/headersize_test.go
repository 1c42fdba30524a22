package apiserver_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/coracle-io/coracle/internal/apiserver/apiservertest"
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

// Requests with very many headers, or very large ones, are refused.
func TestHeadersOfRequestsAreBounded(t *testing.T) {
	s := apiservertest.Start(t)
	for _, test := range []struct{ count, bytes, code int }{
		{1, 1, http.StatusOK},
		{1000, 1, http.StatusOK},
		{1100, 1, http.StatusRequestHeaderFieldsTooLarge},
		{1, 100 << 10, http.StatusOK},
		{1, 200 << 10, http.StatusRequestHeaderFieldsTooLarge},
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
