package httpserver

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// A stream whose client reads nothing ends; one with nothing to send lasts.
func TestLimitUnread(t *testing.T) {
	const limit = 100 * time.Millisecond
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(protocol, func(t *testing.T) {
			ended := make(chan error, 1)
			server := httptest.NewUnstartedServer(Stream(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Proto != protocol {
					t.Errorf("the test speaks %s", r.Proto)
				}
				w = LimitUnread(w, limit)
				control := http.NewResponseController(w)
				_, err := w.Write([]byte("begun"))
				if err == nil {
					err = control.Flush()
				}
				if r.URL.Path == "/silent" {
					select {
					case <-r.Context().Done():
						err = r.Context().Err()
					case <-time.After(3 * limit):
					}
				}
				for r.URL.Path == "/endless" && err == nil {
					if _, err = w.Write(make([]byte, 32<<10)); err == nil {
						err = control.Flush()
					}
				}
				ended <- err
			})))
			server.EnableHTTP2 = protocol == "HTTP/2.0"
			server.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
			server.StartTLS()
			defer server.Close()
			for _, path := range []string{"/endless", "/silent"} {
				response, err := server.Client().Get(server.URL + path)
				if err != nil {
					t.Fatal(err)
				}
				select {
				case err := <-ended:
					if (err == nil) != (path == "/silent") {
						t.Errorf("%s ended with %v", path, err)
					}
				case <-time.After(time.Minute):
					t.Errorf("%s does not end", path)
				}
				_ = response.Body.Close()
			}
		})
	}
}
