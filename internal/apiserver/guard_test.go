package apiserver_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/coracle-io/coracle/internal/apiserver"
	"github.com/coracle-io/coracle/internal/apiserver/apiservertest"
	"github.com/coracle-io/coracle/internal/memory"
)

// TestLoadThatDoesNotFit is a server whose memory is full: what is large, and
// what would stay, is refused as too many requests; what is small, makes room
// or comes from the cluster's components is served.
func TestLoadThatDoesNotFit(t *testing.T) {
	s := apiservertest.Start(t, func(c *apiserver.Config) {
		c.Memory = memory.NewGuard(1 << 20)
		c.Authorizer = authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
			return authorizer.DecisionAllow, "", nil
		})
	})
	const maps = "/api/v1/namespaces/default/configmaps"
	object := func(name string, size int) string {
		return fmt.Sprintf(`{"metadata":{"name":%q},"data":{"a":%q}}`, name, strings.Repeat("x", size))
	}
	do := func(user, method, path, body string, headers ...string) (int, http.Header, []byte) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Test-User", user)
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		answer, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, response.Header, answer
	}
	const scheduler = "system:kube-scheduler"
	for i := range 10 {
		if code, _, answer := do(scheduler, http.MethodPost, maps, object(fmt.Sprint("large-", i), 500<<10)); code != http.StatusCreated {
			t.Fatalf("create by a component: %d %s", code, answer)
		}
	}
	do("admin", http.MethodPost, "/api/v1/namespaces/other/configmaps", object("small", 10))

	const table = "application/json;as=Table;g=meta.k8s.io;v=v1"
	for _, tt := range []struct {
		what, user, method, path, body, accept string
		want                                   int
	}{
		{"a large list", "jane", http.MethodGet, maps, "", "", http.StatusTooManyRequests},
		{"a large list by an administrator", "admin", http.MethodGet, maps, "", "", http.StatusTooManyRequests},
		{"a large list as a table", "jane", http.MethodGet, maps, "", table, http.StatusTooManyRequests},
		{"a watch that begins with it", "jane", http.MethodGet, maps + "?watch=1&timeoutSeconds=1", "", "", http.StatusTooManyRequests},
		{"a large body", "admin", http.MethodPost, maps, object("new", 500<<10), "", http.StatusTooManyRequests},
		{"a small object of a user", "jane", http.MethodPost, maps, object("new", 10), "", http.StatusTooManyRequests},
		{"a small object of an administrator", "admin", http.MethodPost, maps, object("new", 10), "", http.StatusCreated},
		{"a review", "jane", http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", `{"spec":{"nonResourceAttributes":{"path":"/","verb":"get"}}}`, "", http.StatusCreated},
		{"a get", "jane", http.MethodGet, maps + "/large-1", "", "", http.StatusOK},
		{"a small list", "jane", http.MethodGet, "/api/v1/namespaces/other/configmaps", "", "", http.StatusOK},
		{"a watch from now on", "jane", http.MethodGet, maps + "?watch=1&timeoutSeconds=1&resourceVersion=1", "", "", http.StatusOK},
		{"a deletion", "jane", http.MethodDelete, maps + "/large-2", `{"kind":"DeleteOptions","apiVersion":"v1"}`, "", http.StatusOK},
		{"a large list by a component", scheduler, http.MethodGet, maps, "", "", http.StatusOK},
		{"a large list by a controller", "system:serviceaccount:kube-system:namespace-controller", http.MethodGet, maps, "", "", http.StatusOK},
		{"a large list by somebody's service account", "system:serviceaccount:default:default", http.MethodGet, maps, "", "", http.StatusTooManyRequests},
		{"health", "jane", http.MethodGet, "/readyz", "", "", http.StatusOK},
	} {
		code, header, answer := do(tt.user, tt.method, tt.path, tt.body, "Accept", tt.accept)
		if code != tt.want {
			t.Errorf("%s: %d, want %d: %s", tt.what, code, tt.want, bytes.TrimSpace(answer[:min(len(answer), 300)]))
			continue
		}
		if code != http.StatusTooManyRequests {
			continue
		}
		var status metav1.Status
		if err := json.Unmarshal(answer, &status); err != nil {
			t.Errorf("%s: %v", tt.what, err)
		}
		if apierrors.ReasonForError(&apierrors.StatusError{ErrStatus: status}) != metav1.StatusReasonTooManyRequests || header.Get("Retry-After") != "1" {
			t.Errorf("%s: reason %q, Retry-After %q", tt.what, status.Reason, header.Get("Retry-After"))
		}
	}
}

// A server whose process has memory serves large lists to all at once.
func TestLargeListsShareMemory(t *testing.T) {
	s := apiservertest.Start(t, func(c *apiserver.Config) { c.Memory = memory.NewGuard(1 << 30) })
	const maps = "/api/v1/namespaces/default/configmaps"
	for i := range 40 {
		body := fmt.Sprintf(`{"metadata":{"name":"large-%d"},"data":{"a":%q}}`, i, strings.Repeat("x", 500<<10))
		response, err := http.Post(s.URL+maps, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusCreated {
			t.Fatal(response.Status)
		}
	}
	codes := make(chan int)
	for range 50 { // each of them would make 60 MB if it were alone
		go func() {
			response, err := http.Get(s.URL + maps)
			if err != nil {
				codes <- 0
				return
			}
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
			codes <- response.StatusCode
		}()
	}
	for range 50 {
		if code := <-codes; code != http.StatusOK {
			t.Errorf("one of 50 lists: %d", code)
		}
	}
}

// TestTenantsKeepTheirShare has a tenant who opens watch after watch, and
// another who reads none of the answers: each is refused more than its share,
// others are served, and it all comes back.
func TestTenantsKeepTheirShare(t *testing.T) {
	allow := authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return authorizer.DecisionAllow, "", nil
	})
	s := apiservertest.Start(t, func(c *apiserver.Config) {
		c.Memory = memory.NewGuard(16 << 20) // about 3 MB a tenant
		c.Authorizer = allow
	})
	// What is not read stays in the server, and not in the sockets.
	const buffer = 4 << 10
	server := httptest.NewUnstartedServer(s.Handler())
	server.Config.ConnState = func(conn net.Conn, state http.ConnState) {
		if state == http.StateNew {
			_ = conn.(*net.TCPConn).SetWriteBuffer(buffer)
		}
	}
	server.Start()
	defer server.Close()
	transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if err == nil {
			err = conn.(*net.TCPConn).SetReadBuffer(buffer)
		}
		return conn, err
	}}
	defer transport.CloseIdleConnections()
	const maps = "/api/v1/namespaces/default/configmaps"
	begin := func(ctx context.Context, by http.RoundTripper, user, url string) (*http.Response, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return nil, err
		}
		r.Header.Set("X-Test-User", user)
		return by.RoundTrip(r)
	}
	get := func(user, path string) int {
		t.Helper()
		response, err := begin(t.Context(), http.DefaultTransport, user, s.URL+path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		if _, err := io.Copy(io.Discard, response.Body); err != nil {
			t.Fatal(err)
		}
		return response.StatusCode
	}
	large := strings.NewReader(fmt.Sprintf(`{"metadata":{"name":"large"},"data":{"a":%q}}`, strings.Repeat("x", 600<<10)))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+maps, large)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Test-User", "system:kube-scheduler")
	created, err := http.DefaultClient.Do(r)
	if err != nil || created.StatusCode != http.StatusCreated {
		t.Fatalf("%v %v", created, err)
	}
	_ = created.Body.Close()

	for _, tt := range []struct{ what, path string }{
		{"watches", maps + "?watch=1&resourceVersion=1&fieldSelector=metadata.name%3Dnone"},
		{"watches with large selectors", maps + "?watch=1&resourceVersion=1&labelSelector=" + url.QueryEscape("a in ("+strings.Repeat("abcdefgh,", 4<<10)+"z)")},
		{"unread answers", maps + "/large?pretty=true"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var open []*http.Response
			refused := false
			for range 500 {
				response, err := begin(ctx, transport, "jane", server.URL+tt.path) //nolint:bodyclose // when all are there
				if err != nil {
					t.Fatal(err)
				}
				open = append(open, response) //nolint:bodyclose // likewise
				if refused = response.StatusCode == http.StatusTooManyRequests; refused {
					break
				}
			}
			if !refused || len(open) < 3 {
				t.Errorf("after %d: refused %v", len(open), refused)
			}
			if code := get("john", maps+"/large?pretty=true"); code != http.StatusOK {
				t.Errorf("another tenant is answered %d", code)
			}
			cancel()
			for _, response := range open {
				_ = response.Body.Close()
			}
			ended, again := time.Now(), time.NewTicker(10*time.Millisecond)
			defer again.Stop()
			for code := 0; code != http.StatusOK; <-again.C {
				if code = get("jane", maps+"/large?pretty=true"); time.Since(ended) > time.Minute {
					t.Fatalf("once all have ended, jane is answered %d", code)
				}
			}
		})
	}
}

// A watch that is refused keeps nothing for its tenant, however long the answer.
func TestRefusedWatchesKeepNothing(t *testing.T) {
	s := apiservertest.Start(t, func(c *apiserver.Config) {
		c.Memory = memory.NewGuard(16 << 20) // about 3 MB a tenant
		c.Authorizer = authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
			return authorizer.DecisionAllow, "", nil
		})
	})
	get := func(query string) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/api/v1/namespaces/default/configmaps?"+query, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Test-User", "jane")
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		return response.StatusCode
	}
	for range 200 {
		if code := get("watch=1&resourceVersion=" + strings.Repeat("x", 3000)); code != http.StatusBadRequest {
			t.Fatalf("a resource version that is none: %d", code)
		}
	}
	if code := get("watch=1&resourceVersion=1&timeoutSeconds=1"); code != http.StatusOK {
		t.Errorf("a watch after that: %d", code)
	}
}
