package server

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"testing/synctest"
	"time"

	_ "github.com/coracle-io/coracle/internal/bubble"
)

// hijackable is a writer with a connection to hijack.
type hijackable struct {
	http.ResponseWriter
	conn net.Conn
}

func (h hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) { return h.conn, nil, nil }

// A stream that carries nothing ends (streamingConnectionIdleTimeout); one
// that carries something in one direction alone goes on.
func TestIdleStreamEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer func() { _ = theirs.Close() }()
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		conn, _, err := limitIdle(hijackable{httptest.NewRecorder(), ours}, time.Minute).(http.Hijacker).Hijack()
		if err != nil {
			t.Fatal(err)
		}
		begun, ended := time.Now(), make(chan error)
		go func() {
			_, err := conn.Read(make([]byte, 1))
			ended <- err
		}()
		for range 10 {
			time.Sleep(30 * time.Second)
			if _, err := conn.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the idle stream ended with %v", err)
		}
		if took := time.Since(begun); took != 6*time.Minute {
			t.Errorf("the stream ended after %v, want a minute after 5 minutes of traffic", took)
		}
	})
}
