package httpserver

import (
	"bufio"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// A stream whose client reads nothing ends; one with nothing to send lasts.
func TestLimitUnread(t *testing.T) {
	const limit = time.Second
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
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

// hijackable is a writer that returns a given connection from Hijack.
type hijackable struct {
	http.ResponseWriter
	conn net.Conn
}

// Hijack implements http.Hijacker.
func (h hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return h.conn, bufio.NewReadWriter(bufio.NewReader(h.conn), bufio.NewWriter(h.conn)), nil
}

// The limit holds for a hijacked connection, too, until its user sets a
// deadline.
func TestLimitUnreadHijacked(t *testing.T) {
	const limit, own = time.Hour, time.Second
	for name, c := range map[string]struct {
		write func(net.Conn, *bufio.ReadWriter) error
		after time.Duration
	}{
		"the limit": {
			func(conn net.Conn, _ *bufio.ReadWriter) error {
				_, err := conn.Write([]byte("x"))
				return err
			}, limit,
		},
		"the limit, through the buffer": {
			func(_ net.Conn, buffered *bufio.ReadWriter) error {
				_ = buffered.WriteByte('x')
				return buffered.Flush()
			}, limit,
		},
		"its own deadline": {
			func(conn net.Conn, _ *bufio.ReadWriter) error {
				_ = conn.SetWriteDeadline(time.Now().Add(own))
				_, err := conn.Write([]byte("x"))
				return err
			}, own,
		},
		"its own deadline, lifted": {
			func(conn net.Conn, _ *bufio.ReadWriter) error {
				_ = errors.Join(conn.SetDeadline(time.Now().Add(own)), conn.SetDeadline(time.Time{}))
				_, err := conn.Write([]byte("x"))
				return err
			}, limit,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ours, theirs := net.Pipe()
				defer func() { _ = theirs.Close() }()
				conn, buffered, err := http.NewResponseController(LimitUnread(hijackable{httptest.NewRecorder(), ours}, limit)).Hijack()
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * limit) // nothing is sent
				begun := time.Now()
				if err := c.write(conn, buffered); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begun) != c.after {
					t.Errorf("ended after %v with %v, want after %v", time.Since(begun), err, c.after)
				}
			})
		})
	}
}
