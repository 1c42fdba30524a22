// Package health serves /healthz, /livez and /readyz, the health of a server as a
// whole and by check.
//
//	GET /readyz                    ok, or 500 with every check
//	GET /readyz?verbose            every check
//	GET /readyz?exclude=etcd       without one of them
//	GET /readyz/etcd               one of them
package health

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"k8s.io/klog/v2"
)

// Check is one health check.
type Check struct {
	Name string
	// Outside marks a check whose failure a restart of the server cannot fix. Its
	// failure is shown like the failure of an excluded check.
	Outside bool
	// Run returns the error that makes the server unhealthy. It must not block
	// for long.
	Run func(ctx context.Context) error
}

// Ping is a check that never fails.
func Ping() Check {
	return Check{Name: "ping", Run: func(context.Context) error { return nil }}
}

// Handler serves the checks at a path (such as /readyz) and below it.
func Handler(path string, checks ...Check) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.Trim(strings.TrimPrefix(r.URL.Path, path), "/")
		if name == "" {
			serveAll(w, r, strings.TrimPrefix(path, "/"), checks)
			return
		}
		i := slices.IndexFunc(checks, func(c Check) bool { return c.Name == name })
		if i < 0 {
			http.Error(w, "404 page not found", http.StatusNotFound)
			return
		}
		if err := checks[i].Run(r.Context()); err != nil {
			http.Error(w, fmt.Sprintf("internal server error: %v", err), http.StatusInternalServerError)
			return
		}
		writeText(w, "ok")
	})
}

func serveAll(w http.ResponseWriter, r *http.Request, name string, checks []Check) {
	query := r.URL.Query()
	excluded := excludedChecks(query["exclude"])
	var report bytes.Buffer
	var failed []string
	for _, c := range checks {
		if i := slices.Index(excluded, c.Name); i >= 0 {
			excluded = slices.Delete(excluded, i, i+1)
			fmt.Fprintf(&report, "[+]%s excluded: ok\n", c.Name)
			continue
		}
		if err := c.Run(r.Context()); err != nil {
			if c.Outside {
				fmt.Fprintf(&report, "[+]%s excluded: ok\n", c.Name)
				continue
			}
			klog.FromContext(r.Context()).V(2).Info("Health check failed", "endpoint", name, "check", c.Name, "err", err.Error())
			failed = append(failed, c.Name)
			fmt.Fprintf(&report, "[-]%s failed: reason withheld\n", c.Name)
			continue
		}
		fmt.Fprintf(&report, "[+]%s ok\n", c.Name)
	}
	if len(excluded) > 0 {
		fmt.Fprintf(&report, "warn: some health checks cannot be excluded: no matches for %s\n", quoted(excluded))
	}
	w.Header().Set("X-Content-Type-Options", "nosniff")
	switch _, verbose := query["verbose"]; {
	case len(failed) > 0:
		http.Error(w, fmt.Sprintf("%s%s check failed", report.String(), name), http.StatusInternalServerError)
	case verbose:
		writeText(w, fmt.Sprintf("%s%s check passed\n", report.String(), name))
	default:
		writeText(w, "ok")
	}
}

func excludedChecks(values []string) []string {
	var names []string
	for _, v := range values {
		for name := range strings.SplitSeq(v, ",") {
			if name != "" && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

func quoted(names []string) string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = fmt.Sprintf("%q", n)
	}
	return strings.Join(out, ",")
}

func writeText(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte(text))
}
