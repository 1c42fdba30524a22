package apiserver

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A link does not lead out of the directory of logs.
func TestLogFiles(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	for path, text := range map[string]string{filepath.Join(dir, "pods.log"): "three\n", filepath.Join(outside, "key"): "secret\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(outside, "key"), filepath.Join(dir, "link.log")); err != nil {
		t.Fatal(err)
	}
	h := logFiles(dir)
	answer := func(method, path string) string {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, path, http.NoBody))
		return fmt.Sprint(w.Code, " ", w.Body.String())
	}
	for request, want := range map[string]string{"GET /logs/pods.log": "200 three\n", "GET /logs/": "200 <", "POST /logs/pods.log": "405 ", "GET /logs/none.log": "404 "} {
		method, path, _ := strings.Cut(request, " ")
		if got := answer(method, path); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", request, got, want)
		}
	}
	if got := answer("GET", "/logs/link.log"); strings.HasPrefix(got, "200") || strings.Contains(got, "secret") {
		t.Errorf("a link leads out: %q", got)
	}
}
