package server

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/klog/v2"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/coracle-io/coracle/internal/logging"
)

// The path and the method of a request decide which permission it needs.
func TestAttributes(t *testing.T) {
	for request, want := range map[string]string{
		"GET /exec/ns/pod/main":          "create proxy",
		"POST /exec/ns/pod/main":         "create proxy",
		"GET /attach/ns/pod/main":        "create proxy",
		"GET /portForward/ns/pod":        "create proxy",
		"POST /run/ns/pod/main":          "create proxy",
		"GET /containerLogs/ns/pod/main": "get proxy",
		"GET /logs/":                     "get log",
		"GET /logs/pods/x":               "get log",
		"POST /checkpoint/ns/pod/main":   "create checkpoint",
		"GET /stats/summary":             "get stats",
		"GET /metrics/cadvisor":          "get metrics",
		"GET /pods":                      "get pods proxy",
		"GET /runningpods/":              "get pods proxy",
		"GET /healthz":                   "get healthz proxy",
		"GET /configz":                   "get configz proxy",
		"GET /flagz":                     "get configz proxy",
		"GET /statusz":                   "get statusz proxy",
		"GET /statuszx":                  "get proxy",
		"POST /pods/":                    "create pods proxy",
		"PUT /metrics":                   "update metrics",
		"PATCH /stats/":                  "patch stats",
		"DELETE /healthz/ping":           "delete healthz proxy",
		"GET /debug/pprof/heap":          "get proxy",
		"PUT /debug/flags/v":             "update proxy",
		"GET /anything":                  "get proxy",
		"GET /metricsx":                  "get proxy",
		"GET /podsx":                     "get proxy",
		"GET /":                          "get proxy",
	} {
		method, path, _ := strings.Cut(request, " ")
		attributes := requestAttributes(httptest.NewRequest(method, path, nil), &user.DefaultInfo{Name: "alice"}, "alpha")
		got := []string{attributes[0].GetVerb()}
		for _, a := range attributes {
			got = append(got, a.GetSubresource())
			if a.GetResource() != "nodes" || a.GetName() != "alpha" || a.GetVerb() != got[0] {
				t.Errorf("%s: asks for %s %s %s", request, a.GetVerb(), a.GetResource(), a.GetName())
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", request, got, want)
		}
	}
}

// Every path requires authentication.
func TestEveryPathIsAuthorized(t *testing.T) {
	s := serverOf(Config{Configuration: newTestConfiguration(), SystemLogs: t.TempDir()})
	handler := s.authorized(s.Handler())
	for _, path := range []string{
		"/healthz", "/healthz/ping", "/pods", "/pods/", "/metrics", "/metrics/resource", "/metrics/cadvisor", "/metrics/probes", "/metrics/slis", "/stats/summary", "/configz",
		"/runningpods/", "/containerLogs/a/b/c", "/exec/a/b/c", "/exec/a/b/u/c", "/attach/a/b/c", "/portForward/a/b", "/run/a/b/c", "/checkpoint/a/b/c",
		"/logs/", "/logs/x", "/debug/pprof/", "/debug/pprof/heap", "/debug/flags/v", "/", "//pods", "/metrics/../pods", "/stats/%2e%2e/exec/a/b/c",
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodConnect, http.MethodOptions} {
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequest(method, "https://node"+path, nil))
			if w.Code != http.StatusUnauthorized {
				t.Errorf("%s %s: %d", method, path, w.Code)
			}
		}
	}
}

// Endpoints that are turned off say so.
func TestDisabledEndpoints(t *testing.T) {
	const debugging, logs, profiles, flags = "Debug endpoints are disabled.", "logs endpoint is disabled.", "profiling endpoint is disabled.", "flags endpoint is disabled."
	for what, test := range map[string]struct {
		change func(*kubeletconfig.KubeletConfiguration)
		want   map[string]string // by path
	}{
		"debugging": {func(c *kubeletconfig.KubeletConfiguration) { c.EnableDebuggingHandlers = new(false) }, map[string]string{
			"/exec/default/web/main": debugging, "/attach/default/web/main": debugging, "/portForward/default/web": debugging, "/run/default/web/main": debugging,
			"/containerLogs/default/web/main": debugging, "/runningpods/": debugging, "/logs/": debugging, "/debug/pprof/": debugging, "/debug/pprof/heap": debugging,
			"/pods": "", "/metrics/probes": "", "/healthz/ping": "",
		}},
		"logs":      {func(c *kubeletconfig.KubeletConfiguration) { c.EnableSystemLogHandler = new(false) }, map[string]string{"/logs/": logs, "/logs/x": logs, "/debug/pprof/": "", "/runningpods/": ""}},
		"flags":     {func(c *kubeletconfig.KubeletConfiguration) { c.EnableDebugFlagsHandler = new(false) }, map[string]string{"/debug/flags/v": flags, "/debug/pprof/": "", "/runningpods/": ""}},
		"profiling": {func(c *kubeletconfig.KubeletConfiguration) { c.EnableProfilingHandler = new(false) }, map[string]string{"/debug/pprof/": profiles, "/debug/pprof/heap": profiles, "/runningpods/": ""}},
	} {
		s := newTestServer(t)
		test.change(s.config.Configuration)
		handler := s.Handler()
		for path, want := range test.want {
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
			if got := strings.TrimSpace(w.Body.String()); want != "" && (w.Code != http.StatusMethodNotAllowed || got != want) {
				t.Errorf("without %s, %s: %d %q, want %q", what, path, w.Code, got, want)
			} else if want == "" && w.Code != http.StatusOK {
				t.Errorf("without %s, %s: %d %q", what, path, w.Code, got)
			}
		}
	}
}

// The level of the kubelet's log can be set, also where its profiles are turned off, but not
// without debugging.
func TestLogLevel(t *testing.T) {
	s := newTestServer(t)
	*s.config.Configuration.EnableProfilingHandler = false
	ctx := logging.New(io.Discard, logging.Levels{}).Context(t.Context(), "kubelet")
	put := func() int {
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPut, "/debug/flags/v", strings.NewReader("5")).WithContext(ctx))
		return w.Code
	}
	*s.config.Configuration.EnableDebuggingHandlers = false
	if code := put(); code != http.StatusNotFound || klog.FromContext(ctx).V(1).Enabled() {
		t.Errorf("without debugging: %d", code)
	}
	*s.config.Configuration.EnableDebuggingHandlers = true
	if code := put(); code != http.StatusOK || !klog.FromContext(ctx).V(5).Enabled() {
		t.Errorf("with it: %d", code)
	}
}

// A pod that can write to the node's logs cannot make the server read other
// files.
func TestSystemLogs(t *testing.T) {
	dir := t.TempDir()
	root := filepath.Join(dir, "log")
	put := func(path, content string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(filepath.Join(dir, "secret"), "hidden")
	put(filepath.Join(root, "pods/file"), "text")
	for name, target := range map[string]string{"link": "pods/file", "out": filepath.Join(dir, "secret"), "up": "..", "zero": "/dev/zero", "root": "/"} {
		if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(root, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(serverOf(Config{Configuration: newTestConfiguration(), SystemLogs: root}).Handler())
	defer server.Close()
	get := func(path string) (int, string) {
		t.Helper()
		response, err := http.Get(server.URL + path) //nolint:noctx // the server is the test's own
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		raw, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(raw)
	}
	for path, want := range map[string]string{"/logs/pods/file": "text", "/logs/link": "text"} {
		if code, body := get(path); code != http.StatusOK || body != want {
			t.Errorf("%s: %d %q", path, code, body)
		}
	}
	if code, body := get("/logs/"); code != http.StatusOK || !strings.Contains(body, "pods/") {
		t.Errorf("the folder: %d %q", code, body)
	}
	for _, path := range []string{"/logs/out", "/logs/up/secret", "/logs/zero", "/logs/root/etc/passwd", "/logs/pipe", "/logs/..%2fsecret", "/logs/%2e%2e/secret", "/logs/pods/%2e%2e/%2e%2e/secret", "/logs/missing"} {
		code, body := get(path)
		if !slices.Contains([]int{http.StatusNotFound, http.StatusForbidden, http.StatusInternalServerError, http.StatusBadRequest}, code) || strings.Contains(body, "hidden") {
			t.Errorf("%s: %d %.80q", path, code, body)
		}
	}
	off := newTestConfiguration()
	*off.EnableSystemLogHandler = false
	w := httptest.NewRecorder()
	serverOf(Config{Configuration: off, SystemLogs: root}).Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/logs/pods/file", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("without enableSystemLogHandler: %d %q", w.Code, w.Body)
	}
}
