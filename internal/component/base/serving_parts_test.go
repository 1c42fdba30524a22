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
