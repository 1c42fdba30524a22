package probe

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestHTTPRedirects(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/":
			_, _ = w.Write([]byte("fine"))
		case "/here":
			http.Redirect(w, r, "/", http.StatusFound)
		case "/bad":
			http.Redirect(w, r, "/nowhere", http.StatusFound)
		case "/away":
			http.Redirect(w, r, "http://other.example/", http.StatusFound)
		case "/round":
			http.Redirect(w, r, "/round", http.StatusFound)
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	port := portOf(t, server)
	for path, want := range map[string]struct {
		ok     bool
		warned bool
		output string
	}{
		"/":      {true, false, "fine"},
		"/here":  {true, false, "fine"},
		"/bad":   {false, false, "HTTP probe failed with statuscode: 404"},
		"/away":  {true, true, ""},
		"/round": {false, false, "stopped after 10 redirects"},
	} {
		ok, output, err := new(Runner).HTTP(t.Context(), &v1.HTTPGetAction{Path: path, Port: intstr.FromInt(port)}, Target{IP: "127.0.0.1", Container: &v1.Container{}})
		var warning *Warning
		if ok != want.ok || !strings.Contains(output, want.output) || errors.As(err, &warning) != want.warned {
			t.Errorf("%s: %v %q %v", path, ok, output, err)
		}
	}
}

func portOf(t *testing.T, server *httptest.Server) int {
	t.Helper()
	_, text, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// recorder keeps the last request and answers 404.
func recorder(t *testing.T) (target Target, port int, last *http.Request) {
	t.Helper()
	last = &http.Request{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*last = *r.Clone(context.WithoutCancel(r.Context()))
		http.NotFound(w, r)
	}))
	t.Cleanup(server.Close)
	return Target{IP: "127.0.0.1", Container: &v1.Container{}}, portOf(t, server), last
}

func TestHeadersOfTheProbeReplaceTheKubelets(t *testing.T) {
	target, port, last := recorder(t)
	action := &v1.HTTPGetAction{Path: "/", Port: intstr.FromInt(port)}
	if _, _, err := new(Runner).HTTP(t.Context(), action, target); err != nil {
		t.Fatal(err)
	}
	if got := last.Header; got.Get("User-Agent") != userAgent || got.Get("Accept") != "*/*" {
		t.Errorf("a probe without headers sends %v", got)
	}
	action.HTTPHeaders = []v1.HTTPHeader{{Name: "user-agent", Value: "mine"}, {Name: "Accept", Value: ""}}
	if _, _, err := new(Runner).HTTP(t.Context(), action, target); err != nil {
		t.Fatal(err)
	}
	if got := last.Header; strings.Join(got.Values("User-Agent"), ",") != "mine" || len(got.Values("Accept")) != 0 {
		t.Errorf("a probe with headers of its own sends %v", got)
	}
}

// A hook has done its work once the container has answered, whatever it says.
func TestHookIgnoresTheAnswer(t *testing.T) {
	target, port, last := recorder(t)
	action := &v1.HTTPGetAction{Path: "/", Port: intstr.FromInt(port)}
	if fallback, err := new(Runner).Hook(t.Context(), action, target); err != nil || fallback {
		t.Errorf("a hook that is answered 404: %v %v", fallback, err)
	}
	if got := last.Header.Get("User-Agent"); got != hookAgent {
		t.Errorf("the hook comes from %q", got)
	}
	action.Scheme, action.HTTPHeaders = v1.URISchemeHTTPS, []v1.HTTPHeader{{Name: "Authorization", Value: "Bearer secret"}}
	if fallback, err := new(Runner).Hook(t.Context(), action, target); err != nil || !fallback || last.Header.Get("Authorization") != "" {
		t.Errorf("an HTTPS hook of a server without TLS: %v %v %v", fallback, err, last.Header)
	}
	action.Port = intstr.FromInt(1)
	if _, err := new(Runner).Hook(t.Context(), action, target); err == nil {
		t.Error("a hook without an answer succeeds")
	}
}
