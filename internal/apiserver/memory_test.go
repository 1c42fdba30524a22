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

	"github.com/coracle-io/coracle/internal/apiserver"
	"github.com/coracle-io/coracle/internal/apiserver/apiservertest"
	"github.com/coracle-io/coracle/internal/memory"
)

// TestLoadThatDoesNotFit is a server whose memory is full: what is large, and
// what would stay, is refused as too many requests; what is small, makes room
// or comes from the cluster's components is served.
func TestLoadThatDoesNotFit(t *testing.T) {
	s := apiservertest.Start(t, everybody, func(c *apiserver.Config) {
		c.Memory = memory.NewBudget(1 << 20)
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
		if response.StatusCode == http.StatusOK && r.URL.Query().Has("watch") {
			return response.StatusCode, response.Header, nil // it does not end
		}
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
		{"a watch that begins with it", "jane", http.MethodGet, maps + "?watch=1", "", "", http.StatusTooManyRequests},
		{"a large body", "admin", http.MethodPost, maps, object("new", 500<<10), "", http.StatusTooManyRequests},
		{"a small object of a user", "jane", http.MethodPost, maps, object("new", 10), "", http.StatusTooManyRequests},
		{"a small object of an administrator", "admin", http.MethodPost, maps, object("new", 10), "", http.StatusCreated},
		{"a review", "jane", http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", `{"spec":{"nonResourceAttributes":{"path":"/","verb":"get"}}}`, "", http.StatusCreated},
		{"a get", "jane", http.MethodGet, maps + "/large-1", "", "", http.StatusOK},
		{"a small list", "jane", http.MethodGet, "/api/v1/namespaces/other/configmaps", "", "", http.StatusOK},
		{"a watch from now on", "jane", http.MethodGet, maps + "?watch=1&resourceVersion=1", "", "", http.StatusOK},
		{"a deletion", "jane", http.MethodDelete, maps + "/large-2", `{"kind":"DeleteOptions","apiVersion":"v1"}`, "", http.StatusOK},
		{"a large list by a component", scheduler, http.MethodGet, maps, "", "", http.StatusOK},
		{"a large list by a controller", "system:serviceaccount:kube-system:namespace-controller", http.MethodGet, maps, "", "", http.StatusOK},
		{"a large list by a node", "system:node:alpha", http.MethodGet, maps, "", "", http.StatusOK},
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
	s := apiservertest.Start(t, func(c *apiserver.Config) { c.Memory = memory.NewBudget(1 << 30) })
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

const memoryTestMaps = "/api/v1/namespaces/default/configmaps"

// sharedServer is a server with little memory, whose clients keep most of an
// unread answer in the server rather than in the sockets' buffers.
type sharedServer struct {
	*apiservertest.Server
	t *testing.T
	// url and transport connect with small buffers.
	url       string
	transport *http.Transport
}

func newSharedServer(t *testing.T) *sharedServer {
	t.Helper()
	s := apiservertest.Start(t, func(c *apiserver.Config) {
		c.Memory = memory.NewBudget(16 << 20) // about 3 MB for each tenant
		everybody(c)
	})
	const buffer = 4 << 10
	server := httptest.NewUnstartedServer(s.Handler())
	server.Config.ConnState = func(conn net.Conn, state http.ConnState) {
		if state == http.StateNew {
			_ = conn.(*net.TCPConn).SetWriteBuffer(buffer)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if err == nil {
			err = conn.(*net.TCPConn).SetReadBuffer(buffer)
		}
		return conn, err
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &sharedServer{Server: s, t: t, url: server.URL, transport: transport}
}

// begin sends a GET of a user and does not read the answer.
func (s *sharedServer) begin(ctx context.Context, by http.RoundTripper, user, url string) *http.Response {
	s.t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("X-Test-User", user)
	response, err := by.RoundTrip(r)
	if err != nil {
		s.t.Fatal(err)
	}
	return response
}

// get returns the code of a GET of a user.
func (s *sharedServer) get(user, path string) int {
	s.t.Helper()
	response := s.begin(s.t.Context(), http.DefaultTransport, user, s.URL+path)
	defer func() { _ = response.Body.Close() }()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		s.t.Fatal(err)
	}
	return response.StatusCode
}

// exhaust sends requests of a user until one is refused.
func (s *sharedServer) exhaust(ctx context.Context, user, path string) (open []*http.Response) {
	s.t.Helper()
	for range 500 {
		response := s.begin(ctx, s.transport, user, s.url+path) //nolint:bodyclose // the caller closes it
		open = append(open, response)                           //nolint:bodyclose // likewise
		if response.StatusCode == http.StatusTooManyRequests {
			if len(open) < 3 {
				s.t.Errorf("refused after %d requests", len(open))
			}
			return open
		}
	}
	s.t.Errorf("%d requests and none is refused", len(open))
	return open
}

// TestTenantsKeepTheirShare lets one tenant open watches, or not read answers,
// until requests are refused. Other tenants must be served, and the memory must
// be free again afterwards.
func TestTenantsKeepTheirShare(t *testing.T) {
	s := newSharedServer(t)
	large := fmt.Sprintf(`{"metadata":{"name":"large"},"data":{"a":%q}}`, strings.Repeat("x", 600<<10))
	if code, body, _ := call(t, s.Server, "POST", memoryTestMaps, large, "X-Test-User", "system:kube-scheduler"); code != http.StatusCreated {
		t.Fatalf("%d %s", code, body)
	}
	const largePath = memoryTestMaps + "/large?pretty=true"
	for _, tt := range []struct{ what, path string }{
		{"watches", memoryTestMaps + "?watch=1&resourceVersion=1&fieldSelector=metadata.name%3Dnone"},
		{"watches with large selectors", memoryTestMaps + "?watch=1&resourceVersion=1&labelSelector=" + url.QueryEscape("a in ("+strings.Repeat("abcdefgh,", 4<<10)+"z)")},
		{"unread answers", largePath},
	} {
		t.Run(tt.what, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			open := s.exhaust(ctx, "jane", tt.path) //nolint:bodyclose // closed below
			if code := s.get("john", largePath); code != http.StatusOK {
				t.Errorf("another tenant is answered %d", code)
			}
			cancel()
			for _, response := range open {
				_ = response.Body.Close()
			}
			late, again := time.After(3*time.Minute), time.NewTicker(10*time.Millisecond)
			defer again.Stop()
			for code := s.get("jane", largePath); code != http.StatusOK; code = s.get("jane", largePath) {
				select {
				case <-again.C:
				case <-late:
					t.Fatalf("once all have ended, jane is answered %d", code)
				}
			}
		})
	}
}

// A node that watches very many objects for its pods is refused more of them, and
// still watches its pods.
func TestWatchesOfANodeForItsPodsAreBounded(t *testing.T) {
	s := newSharedServer(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const (
		node, other = "system:node:alpha", "system:node:beta"
		one         = memoryTestMaps + "?watch=1&resourceVersion=1&fieldSelector=metadata.name%3Dnone"
		pods        = "/api/v1/pods?watch=1&resourceVersion=1&fieldSelector=spec.nodeName%3Dalpha"
	)
	open := s.exhaust(ctx, node, one) //nolint:bodyclose // closed below
	for _, request := range []struct{ user, path string }{{node, pods}, {other, one}, {"system:kube-scheduler", one}} {
		response := s.begin(ctx, s.transport, request.user, s.url+request.path) //nolint:bodyclose // closed below
		open = append(open, response)                                           //nolint:bodyclose // likewise
		if response.StatusCode != http.StatusOK {
			t.Errorf("%s is answered %d for %s", request.user, response.StatusCode, request.path)
		}
	}
	cancel()
	for _, response := range open {
		_ = response.Body.Close()
	}
}

// A node that opens very many watches for itself, or does not read what it has asked for,
// is refused more of that. Other nodes and the control plane are served, and so is what the
// node watches for its pods.
func TestWhatANodeHoldsItselfIsBounded(t *testing.T) {
	const (
		node, other = "system:node:alpha", "system:node:beta"
		one         = memoryTestMaps + "?watch=1&resourceVersion=1&fieldSelector=metadata.name%3Dnone"
	)
	large := fmt.Sprintf(`{"metadata":{"name":"large"},"data":{"a":%q}}`, strings.Repeat("x", 600<<10))
	for what, path := range map[string]string{
		"watches":        "/api/v1/configmaps?watch=1&resourceVersion=1&fieldSelector=metadata.name%3Dnone",
		"unread answers": memoryTestMaps + "/large?pretty=true",
		"unread lists":   memoryTestMaps + "?pretty=true",
	} {
		t.Run(what, func(t *testing.T) {
			s := newSharedServer(t)
			if code, body, _ := call(t, s.Server, "POST", memoryTestMaps, large, "X-Test-User", "system:kube-scheduler"); code != http.StatusCreated {
				t.Fatalf("%d %s", code, body)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var open []*http.Response
			begin := func(user, path string) int {
				response := s.begin(ctx, s.transport, user, s.url+path) //nolint:bodyclose // closed below
				open = append(open, response)                           //nolint:bodyclose // likewise
				return response.StatusCode
			}
			code := http.StatusOK
			for i := 0; i < 500 && code == http.StatusOK; i++ {
				code = begin(node, path)
			}
			if code != http.StatusTooManyRequests {
				t.Errorf("after %d requests, the node is answered %d", len(open), code)
			}
			for _, request := range []struct{ user, path string }{{node, one}, {other, path}, {"system:kube-scheduler", path}} {
				if code := begin(request.user, request.path); code != http.StatusOK {
					t.Errorf("%s is answered %d for %s", request.user, code, request.path)
				}
			}
			cancel()
			for _, response := range open {
				_ = response.Body.Close()
			}
		})
	}
}

// A watch that is refused keeps nothing for its tenant, however long the answer.
func TestRefusedWatchesKeepNothing(t *testing.T) {
	s := apiservertest.Start(t, everybody, func(c *apiserver.Config) {
		c.Memory = memory.NewBudget(16 << 20) // about 3 MB a tenant
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
	if code := get("watch=1&resourceVersion=1"); code != http.StatusOK {
		t.Errorf("a watch after that: %d", code)
	}
}
