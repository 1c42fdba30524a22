package probe

import (
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
	_, text, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
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
