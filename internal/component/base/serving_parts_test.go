package base

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	_ "github.com/coracle-io/coracle/internal/bubble"
	"github.com/coracle-io/coracle/internal/health"
	"github.com/coracle-io/coracle/internal/supervise"
)

// A controller that fails again and again makes its component unhealthy, but
// does not cause its restart. The health check names the controller without the
// reason.
func TestHealthNamesThePartThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var handler http.Handler
		g := supervise.NewGroup(supervise.Options{})
		g.Go(ctx, "controller-manager", func(ctx context.Context) error {
			handler = new(Serving).handlers(ctx, "kube-controller-manager", nil, NewCounts(ctx))
			supervise.KeepRunning(ctx, "job-controller", func(context.Context) error { return errors.New("a secret reason") })
			return nil
		})
		get := func(path string) (int, string) {
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
			return w.Code, w.Body.String()
		}
		synctest.Wait()
		if code, text := get("/healthz"); code != http.StatusOK || text != "ok" {
			t.Errorf("at first: %d %s", code, text)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, path := range []string{"/healthz", "/readyz"} {
			if code, text := get(path); code != http.StatusInternalServerError || !strings.Contains(text, "[-]job-controller failed: reason withheld") || strings.Contains(text, "secret") {
				t.Errorf("%s: %d %s", path, code, text)
			}
		}
		if code, text := get("/livez"); code != http.StatusOK {
			t.Errorf("/livez: %d %s", code, text)
		}
		cancel()
		g.Wait()
	})
}

// The checks of a component are among those of all three endpoints, and counted.
func TestChecksOfAComponent(t *testing.T) {
	failing := errors.New("the lease was not renewed")
	synced := health.NewStep()
	s := &Serving{
		Checks: []health.Check{{Name: "leaderElection", Run: func(context.Context) error { return failing }}},
		Ready:  []health.Check{health.After(synced.Finished(), "sched-handler-sync")},
	}
	counts := NewCounts(t.Context())
	handler := s.handlers(t.Context(), "kube-scheduler", nil, counts)
	get := func(path string) (int, string) {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
		return w.Code, w.Body.String()
	}
	for _, path := range []string{"/healthz", "/livez", "/readyz"} {
		if code, text := get(path); code != http.StatusInternalServerError || !strings.Contains(text, "[-]leaderElection failed") {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}
	failing = nil
	for path, want := range map[string]int{
		"/livez": http.StatusOK, "/healthz": http.StatusOK, "/readyz": http.StatusInternalServerError,
		"/livez/ping": http.StatusOK, "/healthz/leaderElection": http.StatusOK, "/readyz/sched-handler-sync": http.StatusInternalServerError,
		"/livez/sched-handler-sync": http.StatusNotFound,
	} {
		if code, text := get(path); code != want {
			t.Errorf("%s before the caches are filled: %d %s, want %d", path, code, text, want)
		}
	}
	synced.Finish()
	if code, text := get("/readyz?verbose"); code != http.StatusOK || text != "[+]ping ok\n[+]leaderElection ok\n[+]sched-handler-sync ok\nreadyz check passed\n" {
		t.Errorf("%d %s", code, text)
	}
	_, page := get("/metrics/slis")
	for _, line := range []string{
		`kubernetes_healthcheck{name="leaderElection",type="readyz"} 1`,
		`kubernetes_healthchecks_total{name="leaderElection",status="error",type="livez"} 1`,
		`kubernetes_healthchecks_total{name="ping",status="success",type="readyz"} 3`,
	} {
		if !strings.Contains(page, "\n"+line+"\n") {
			t.Errorf("missing: %s\nthere is:\n%s", line, page)
		}
	}
}
