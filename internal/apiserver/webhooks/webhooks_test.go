package webhooks

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
)

// call sends a request as webhooks are called, and returns the size of the
// response.
func call(t *testing.T, handler http.HandlerFunc) (int, error) {
	t.Helper()
	server := httptest.NewServer(handler)
	defer server.Close()
	resolver := Bounded(&webhook.AuthenticationInfoResolverDelegator{
		ClientConfigForFunc: func(string) (*rest.Config, error) { return &rest.Config{Host: server.URL}, nil },
	})
	config, err := resolver.ClientConfigFor(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Post(server.URL+"/hook", "application/json", strings.NewReader("{}"))
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	n, err := io.Copy(io.Discard, response.Body)
	return int(n), err
}

func TestResponsesAreBounded(t *testing.T) {
	write := func(w io.Writer, size int) {
		chunk := make([]byte, 1<<20)
		for size > 0 {
			n, err := w.Write(chunk[:min(size, len(chunk))])
			if err != nil {
				return
			}
			size -= n
		}
	}
	for _, c := range []struct {
		name    string
		handler http.HandlerFunc
		size    int // 0 is a refusal
	}{
		{"as large as may be", func(w http.ResponseWriter, _ *http.Request) { write(w, maxResponse) }, maxResponse},
		{"one more", func(w http.ResponseWriter, _ *http.Request) { write(w, maxResponse+1) }, 0},
		{"announced", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "99999999999") }, 0},
		{"without end", func(w http.ResponseWriter, _ *http.Request) { write(w, 1<<40) }, 0},
		{"compressed", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			write(z, 64<<20)
			_ = z.Close()
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, err := call(t, c.handler)
			if c.size == 0 && (err == nil || !strings.Contains(err.Error(), "responds with more than")) || c.size > 0 && (err != nil || n != c.size) {
				t.Errorf("%d, %v", n, err)
			}
		})
	}
}

// TestChecks checks that a Check sees the bodies of a call, and that its result is
// read in place of the response's.
func TestChecks(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("answer")) }))
	defer server.Close()
	r, err := http.NewRequest(http.MethodPost, server.URL, strings.NewReader("question"))
	if err != nil {
		t.Fatal(err)
	}
	r = r.WithContext(WithCheck(t.Context(), func(request, response []byte) []byte {
		return []byte("the " + string(response) + " to the " + string(request))
	}))
	response, err := transport{http.DefaultTransport}.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if got, err := io.ReadAll(response.Body); string(got) != "the answer to the question" || err != nil || response.ContentLength != int64(len(got)) {
		t.Errorf("%s, %v, %d bytes", got, err, response.ContentLength)
	}
}

func TestRedirectsStayOnTheHost(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the other host was asked") }))
	defer other.Close()
	for _, code := range []int{301, 302, 303, 307, 308} {
		if _, err := call(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL, code) }); err == nil || !strings.Contains(err.Error(), "redirects to another host") {
			t.Errorf("%d: %v", code, err)
		}
		n, err := call(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/hook" {
				http.Redirect(w, r, "/else", code)
				return
			}
			_, _ = w.Write([]byte("here"))
		})
		if err != nil || n != 4 {
			t.Errorf("%d on the host: %d, %v", code, n, err)
		}
	}
}
