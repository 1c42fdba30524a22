package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	remote "k8s.io/cri-client/pkg"
	utilexec "k8s.io/utils/exec"
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

func TestPorts(t *testing.T) {
	c := &v1.Container{Name: "main", Ports: []v1.ContainerPort{{Name: "web", ContainerPort: 93}, {Name: "admin", ContainerPort: 94}}}
	for _, test := range []struct {
		port intstr.IntOrString
		want string
	}{
		{intstr.FromInt32(76), "76 <nil>"},
		{intstr.FromString("web"), "93 <nil>"},
		{intstr.FromString("admin"), "94 <nil>"},
		{intstr.FromString("118"), "118 <nil>"},
		{intstr.FromString("none"), "0 couldn't find port: none in container main"},
		{intstr.FromString(""), "0 couldn't find port:  in container main"},
		{intstr.FromString("-1"), "0 invalid port number: -1"},
		{intstr.FromInt32(-1), "0 invalid port number: -1"},
		{intstr.FromInt32(0), "0 invalid port number: 0"},
		{intstr.FromInt32(65536), "0 invalid port number: 65536"},
	} {
		n, err := Port(test.port, c)
		if got := fmt.Sprint(n, " ", err); got != test.want {
			t.Errorf("%s: %s, want %s", test.port.String(), got, test.want)
		}
	}
}

// A request goes to the pod, or to the host of the handler, with all of its headers.
func TestRequestsOfHandlers(t *testing.T) {
	for _, test := range []struct {
		action v1.HTTPGetAction
		ip     string
		want   string
	}{
		{v1.HTTPGetAction{Port: intstr.FromInt32(93)}, "192.0.2.1", "http://192.0.2.1:93 to 192.0.2.1:93"},
		{v1.HTTPGetAction{Port: intstr.FromInt32(93), Path: "/path?bar", Scheme: v1.URISchemeHTTPS}, "192.0.2.1", "https://192.0.2.1:93/path?bar to 192.0.2.1:93"},
		{v1.HTTPGetAction{Port: intstr.FromInt32(93), Path: "?foo"}, "192.0.2.1", "http://192.0.2.1:93?foo to 192.0.2.1:93"},
		{v1.HTTPGetAction{Port: intstr.FromInt32(93), Path: "path"}, "2001:db8::1", "http://[2001:db8::1]:93/path to [2001:db8::1]:93"},
		{v1.HTTPGetAction{Port: intstr.FromInt32(93), Host: "other", Path: "/"}, "192.0.2.1", "http://other:93/ to other:93"},
		{v1.HTTPGetAction{Port: intstr.FromInt32(93), Path: "/", HTTPHeaders: []v1.HTTPHeader{{Name: "Host", Value: "shop.example"}}}, "192.0.2.1", "http://192.0.2.1:93/ to shop.example"},
	} {
		request, err := httpRequest(t.Context(), &test.action, Target{IP: test.ip, Container: &v1.Container{}}, userAgent)
		if err != nil {
			t.Error(err)
			continue
		}
		if got := request.URL.String() + " to " + request.Host; got != test.want {
			t.Errorf("%s, want %s", got, test.want)
		}
	}
	target, port, last := recorder(t)
	action := &v1.HTTPGetAction{Path: "/", Port: intstr.FromInt(port), HTTPHeaders: []v1.HTTPHeader{{Name: "X-Fruit", Value: "apple"}, {Name: "X-Fruit", Value: "pear, too"}}}
	if _, _, err := new(Runner).HTTP(t.Context(), action, target); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(last.Header.Values("X-Fruit"), "; "); got != "apple; pear, too" {
		t.Errorf("the headers are %q", got)
	}
}

// A command fails by its exit code, or when it takes too long. Otherwise an error says that
// nothing is known.
func TestCommands(t *testing.T) {
	lost := errors.New("no such container")
	for what, test := range map[string]struct {
		result error
		ok     bool
		output string
		err    error
	}{
		"success":                    {nil, true, "said", nil},
		"exit code 0":                {utilexec.CodeExitError{Err: errors.New("exit"), Code: 0}, true, "said", nil},
		"exit code 1":                {utilexec.CodeExitError{Err: errors.New("exit"), Code: 1}, false, "said", nil},
		"time-out":                   {remote.ErrCommandTimedOut, false, `command timed out: "check it" timed out after 3s`, nil},
		"time-out of the connection": {status.Error(codes.DeadlineExceeded, "context deadline exceeded"), false, `command timed out: "check it" timed out after 3s`, nil},
		"no answer":                  {lost, false, "said", lost},
	} {
		r := &Runner{Exec: func(_ context.Context, id string, command []string, timeout time.Duration) ([]byte, error) {
			if id != "c1" || strings.Join(command, " ") != "check it" || timeout != 3*time.Second {
				t.Errorf("%s: %s %q within %s", what, id, command, timeout)
			}
			return []byte("said"), test.result
		}}
		probe := &v1.Probe{TimeoutSeconds: 3, ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"check", "it"}}}}
		ok, output, err := r.Run(t.Context(), probe, Target{Pod: &v1.Pod{}, ContainerID: "c1", Container: &v1.Container{}})
		if ok != test.ok || output != test.output || !errors.Is(err, test.err) {
			t.Errorf("%s: %v, %q, error %v", what, ok, output, err)
		}
	}
	if ok, _, err := new(Runner).Run(t.Context(), &v1.Probe{}, Target{Container: &v1.Container{Name: "main"}}); ok || err == nil || err.Error() != "missing probe handler for main" {
		t.Errorf("without a handler: %v, error %v", ok, err)
	}
}
