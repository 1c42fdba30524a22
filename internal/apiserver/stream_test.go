package apiserver

import (
	"errors"
	"net/http"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// stuck is a connection whose client does not read: a write ends by its deadline.
type stuck struct {
	http.ResponseWriter
	deadline chan struct{}
}

func (s *stuck) Header() http.Header { return http.Header{} }
func (s *stuck) WriteHeader(int)     {}
func (s *stuck) Flush()              {}
func (s *stuck) Write([]byte) (int, error) {
	<-s.deadline
	return 0, os.ErrDeadlineExceeded
}

func (s *stuck) SetWriteDeadline(at time.Time) error {
	if at.Before(time.Now()) {
		close(s.deadline)
	}
	return nil
}

// A watch whose client does not read ends, and with it what it holds.
func TestWatcherThatNeverReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &stuck{deadline: make(chan struct{})}
		q := &request{w: w, http: &http.Request{Header: http.Header{}}}
		stream, err := q.openStream(0)
		if err != nil {
			t.Fatal(err)
		}
		defer stream.close()
		time.Sleep(10 * writeTimeout) // waiting for events is no reason to end
		begun := time.Now()
		if err := stream.send([]byte("{}\n")); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("send: %v", err)
		}
		if took := time.Since(begun); took != writeTimeout {
			t.Errorf("the watch ended after %v, want %v", took, writeTimeout)
		}
	})
}
