package component

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coracle-io/coracle/internal/processes/notify"
)

// The service manager's watchdog hears of a kubelet that is healthy.
func TestKubeletKeepsAlive(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: socket})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	t.Setenv("NOTIFY_SOCKET", socket)
	t.Setenv("WATCHDOG_USEC", "2000")
	t.Setenv("WATCHDOG_PID", "")
	var asked atomic.Int32
	const failures = 3
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() {
		keepAlive(ctx, notify.New(), func() error {
			if asked.Add(1) <= failures {
				return errors.New("the runtime does not answer")
			}
			return nil
		})
	})
	for _, want := range []string{"READY=1", "WATCHDOG=1", "WATCHDOG=1"} {
		if err := l.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		buffer := make([]byte, 4096)
		n, err := l.Read(buffer)
		if got := string(buffer[:n]); err != nil || got != want {
			t.Fatalf("told %q (%v), want %q", got, err, want)
		}
		if want == "WATCHDOG=1" && asked.Load() <= failures {
			t.Error("the kubelet was not healthy")
		}
	}
}
