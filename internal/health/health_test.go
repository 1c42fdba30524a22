package health

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
)

// A failure that a restart cannot repair does not fail the liveness check.
func TestWhatIsOutsideIsShownAndDoesNotFail(t *testing.T) {
	h := Handler("/livez", Ping(), Check{Name: "etcd", Outside: true, Run: func(context.Context) error { return errUnfinished }})
	for path, want := range map[string]int{"/livez": 200, "/livez/etcd": 500} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
		if w.Code != want {
			t.Errorf("%s: %d %s, want %d", path, w.Code, w.Body, want)
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/livez?verbose", http.NoBody))
	if got := w.Body.String(); got != "[+]ping ok\n[+]etcd excluded: ok\nlivez check passed\n" {
		t.Errorf("verbose: %s", got)
	}
}

func TestStepsOfTheStart(t *testing.T) {
	filled, served := NewStep(), NewStep()
	h := Handler("/readyz", Ping(), After(filled.Finished(), "poststarthook/filled"), After(served.Finished(), "poststarthook/a/served"))
	served.Finish()
	served.Finish()
	get := func(path string, wantCode int, want string) {
		t.Helper()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
		if got := w.Body.String(); w.Code != wantCode || got != want {
			t.Errorf("%s: %d %q, want %d %q", path, w.Code, got, wantCode, want)
		}
	}
	get("/readyz", 500, "[+]ping ok\n[-]poststarthook/filled failed: reason withheld\n[+]poststarthook/a/served ok\nreadyz check failed\n")
	get("/readyz/poststarthook/filled", 500, "internal server error: not finished\n")
	get("/readyz/poststarthook/a/served", 200, "ok")
	get("/readyz/poststarthook/a", 404, "404 page not found\n")
	get("/readyz?exclude=poststarthook/filled", 200, "ok")
	filled.Finish()
	get("/readyz/poststarthook/filled", 200, "ok")
	get("/readyz?verbose", 200, "[+]ping ok\n[+]poststarthook/filled ok\n[+]poststarthook/a/served ok\nreadyz check passed\n")
}
