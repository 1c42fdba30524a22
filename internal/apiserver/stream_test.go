package apiserver_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coracle-io/coracle/internal/apiserver/apiservertest"
)

// departed is the writer of a client that has gone.
type departed struct {
	header http.Header
	_      [1 << 10]byte
}

func (d *departed) Header() http.Header              { return d.header }
func (*departed) Write([]byte) (int, error)          { return 0, errDeparted }
func (*departed) WriteHeader(int)                    {}
func (*departed) FlushError() error                  { return errDeparted }
func (*departed) SetReadDeadline(time.Time) error    { return nil }
func (*departed) SetWriteDeadline(t time.Time) error { return nil }

var errDeparted = errors.New("the client is gone")

// A watch whose client left before its answer began holds nothing afterwards.
func TestWatchOfADepartedClient(t *testing.T) {
	s := apiservertest.Start(t)
	const watches = 100
	var freed atomic.Int64
	for range watches {
		w := &departed{header: http.Header{}}
		runtime.AddCleanup(w, func(int) { freed.Add(1) }, 0)
		ctx, cancel := context.WithCancel(t.Context())
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, mapsPath+"?watch=true&resourceVersion=1", nil)
		s.Handler().ServeHTTP(w, r)
		cancel()
	}
	const last = 2 // may still be on the stack
	for deadline := time.Now().Add(3 * time.Minute); freed.Load() < watches-last; runtime.GC() {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d requests are held after their end", watches-freed.Load(), watches)
		}
	}
}
