package main

import (
	"net/http/httptest"
	"testing"
)

func TestAnswersWithItsName(t *testing.T) {
	for path, want := range map[string]string{"/": "frontend-x7k2p\n", "/any/path": "frontend-x7k2p\n", "/healthz": "ok\n"} {
		recorder := httptest.NewRecorder()
		handler("frontend-x7k2p").ServeHTTP(recorder, httptest.NewRequest("GET", path, nil))
		if got := recorder.Body.String(); got != want {
			t.Errorf("GET %s = %q, want %q", path, got, want)
		}
	}
}
