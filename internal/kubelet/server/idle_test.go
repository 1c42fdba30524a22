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

// Deadlines that others set, such as the libraries of WebSockets, do not make an idle
// stream last.
func TestDeadlinesOfIdleStreams(t *testing.T) {
	for _, test := range []struct{ after, want time.Duration }{ // 0 is no deadline
		{0, time.Minute}, {time.Hour, time.Minute}, {time.Second, time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			ours, theirs := net.Pipe()
			defer func() { _ = theirs.Close() }()
			conn, _, err := limitIdle(hijackable{httptest.NewRecorder(), ours}, time.Minute).(http.Hijacker).Hijack()
			if err != nil {
				t.Fatal(err)
			}
			begun, deadline := time.Now(), time.Time{}
			if test.after > 0 {
				deadline = begun.Add(test.after)
			}
			for _, set := range []func(time.Time) error{conn.SetDeadline, conn.SetReadDeadline, conn.SetWriteDeadline} {
				if err := set(deadline); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begun) != test.want {
				t.Errorf("with a deadline after %v, the stream ends after %v with %v, want %v", test.after, time.Since(begun), err, test.want)
			}
		})
	}
}
