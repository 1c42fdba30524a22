package server

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The logs of pods are where clients expect them, wherever the kubelet has them. What a
// kubelet has made in these places on the machine, to mount them there in containers, is
// not shown. Links lead to logs of pods alone.
func TestSystemLogsElsewhere(t *testing.T) {
	dir := t.TempDir()
	root, own := filepath.Join(dir, "var"), filepath.Join(dir, "data")
	for name, content := range map[string]string{
		"secret": "hidden", "var/syslog": "of the machine", "var/pods/.coracle": "mark", "var/apt/pods/x": "packages", "data/other": "hidden",
		"data/pods/default_web_1/main/0.log": "of the pod",
	} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(own, "containers"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{
		"web.log": "../pods/default_web_1/main/0.log", "old.log": filepath.Join(own, "pods/default_web_1/main/0.log"),
		"out.log": "../other", "far.log": filepath.Join(dir, "secret"), "up.log": "../pods/../other", "pods.log": "../pods",
	} {
		if err := os.Symlink(target, filepath.Join(own, "containers", name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../../secret", filepath.Join(own, "pods/link")); err != nil {
		t.Fatal(err)
	}
	handler := serverOf(Config{
		Configuration: newTestConfiguration(), SystemLogs: root,
		LogDirectories: map[string]string{"pods": filepath.Join(own, "pods"), "containers": filepath.Join(own, "containers")},
	}).Handler()
	for path, want := range map[string]string{ // what the answer has; "": it is an error
		"/logs/syslog": "of the machine", "/logs/apt/pods/x": "packages", "/logs/pods/default_web_1/main/0.log": "of the pod", "/logs/pods/default_web_1/main/": "0.log",
		"/logs/containers/web.log": "of the pod", "/logs/containers/old.log": "of the pod", "/logs/containers/": "web.log", "/logs/pods/": "default_web_1/",
		"/logs/pods/.coracle": "", "/logs/containers/out.log": "", "/logs/containers/far.log": "", "/logs/containers/up.log": "", "/logs/containers/pods.log": "",
		"/logs/pods/link": "", "/logs/pods/missing": "", "/logs/containers/web.log/x": "",
	} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		body := w.Body.String()
		if (w.Code == http.StatusOK) != (want != "") || !strings.Contains(body, want) || strings.Contains(body, "hidden") || strings.Contains(body, ".coracle") {
			t.Errorf("%s: %d %q, want %q", path, w.Code, body, want)
		}
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/logs/", nil))
	for _, name := range []string{"apt/", "containers/", "pods/", "syslog"} {
		if n := strings.Count(w.Body.String(), `href="`+name+`"`); n != 1 {
			t.Errorf("the directory has %s %d times: %s", name, n, w.Body)
		}
	}
}
