package server

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Queries of logs are answered from the journal and from files, and what is not
// allowed is refused.
func TestLogQuery(t *testing.T) {
	root := t.TempDir()
	for name, content := range map[string]string{"one.log": "first", "two/two.log": "second", "two/last": "third"} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l := &systemLog{root: systemLogs{dir: root}, files: http.FileServer(systemLogs{dir: root}), journal: func(_ context.Context, w io.Writer, args ...string) error {
		if slices.Equal(args, []string{"--field", "_SYSTEMD_UNIT"}) {
			_, err := io.WriteString(w, "kubelet.service\nsession-1.scope\n")
			return err
		}
		_, err := fmt.Fprint(w, strings.Join(args, " "))
		return err
	}}
	const missing = "\noptions present and query resolved to log files for [one]\ntry without specifying options\n"
	for query, want := range map[string]string{
		"":                                  "200 <!doctype html>",
		"query=kubelet":                     "200 --utc --no-pager --output=short-precise --unit=kubelet",
		"query=kubelet&query=one":           "200 --utc --no-pager --output=short-precise --unit=kubeletfirst",
		"query=kubelet&tailLines=3&boot=-1": "200 --utc --no-pager --output=short-precise --lines=3 --unit=kubelet --boot=-1",
		"query=kubelet&pattern=a.*b":        "200 --utc --no-pager --output=short-precise --unit=kubelet --grep=a.*b --case-sensitive=false",
		"query=kubelet&tailLines=":          "200 --utc --no-pager --output=short-precise --unit=kubelet",
		"query=two":                         "200 second",
		"query=/two/last":                   "200 third",
		`query=two\last`:                    "200 third",
		"query=three":                       "200 \nlog not found for three\n",
		"query=session-1":                   "200 \nlog not found for session-1\n",
		"query=one&tailLines=1":             "200 " + missing,
		"query=/../../etc/passwd":           "404",
		"query=":                            "400 query: Invalid value",
		"query=+":                           "400 query: Invalid value",
		"query=kubelet&tailLines=x":         "400 tailLines: Invalid value",
		"query=kubelet&sinceTime=yesterday": "400 sinceTime: Invalid value",
		"query=kubelet&tailLines=100001":    "406 tailLines: Invalid value",
		"query=kubelet&boot=1":              "406 boot: Invalid value",
		"query=kubelet&pattern=(":           "406 pattern: Invalid value",
		"query=kubelet&query=/one.log":      "406 query: Invalid value",
		"query=/one.log&query=/two/last":    "406 query: Invalid value",
		"query=/one.log&tailLines=1":        "406 query: Invalid value",
		"query=--file":                      "406 query: Invalid value",
		"query=a;b":                         "406 query: Invalid value",
		"query=" + strings.Repeat("x", 257): "406 query: Too long",
		"tailLines=1":                       "200 <!doctype html>",
		"query=kubelet&sinceTime=2026-01-02T03:04:05Z&untilTime=2026-01-02T04:04:05%2B01:00": "200 --utc --no-pager --output=short-precise --since=2026-01-02 03:04:05 --until=2026-01-02 03:04:05 --unit=kubelet",
		"query=kubelet&sinceTime=2026-01-02T03:04:05Z&untilTime=2026-01-02T03:04:04Z":        "406 untilTime: Invalid value",
	} {
		w := httptest.NewRecorder()
		l.ServeHTTP(w, &http.Request{Method: http.MethodGet, URL: &url.URL{Path: "", RawQuery: strings.ReplaceAll(query, ";", "%3B")}})
		if got := fmt.Sprintf("%d %s", w.Code, w.Body); !strings.HasPrefix(got, want) || strings.HasPrefix(want, "200 -") && got != want {
			t.Errorf("%q: %q, want %q", query, got, want)
		}
	}
	w := httptest.NewRecorder()
	l.ServeHTTP(w, &http.Request{Method: http.MethodGet, URL: &url.URL{Path: "one.log", RawQuery: "query=kubelet"}})
	if w.Code != http.StatusNotAcceptable {
		t.Errorf("a query below a path: %d %q", w.Code, w.Body)
	}
}

// Only a kubelet with enableSystemLogQuery answers queries. Others serve the
// directory.
func TestLogQueryIsOffByDefault(t *testing.T) {
	for _, on := range []bool{false, true} {
		c := newTestConfiguration()
		c.EnableSystemLogQuery = &on
		w := httptest.NewRecorder()
		serverOf(Config{Configuration: c, SystemLogs: t.TempDir()}).Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/logs/?query=", nil))
		if want := map[bool]int{false: http.StatusOK, true: http.StatusBadRequest}[on]; w.Code != want {
			t.Errorf("with enableSystemLogQuery %v: %d, want %d", on, w.Code, want)
		}
	}
}
