package component

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/coracle-io/coracle/internal/processes/notify"
	"github.com/coracle-io/coracle/internal/processes/notify/notifytest"
)

// The service manager's watchdog hears of a kubelet that is healthy.
func TestKubeletKeepsAlive(t *testing.T) {
	manager := notifytest.New(t)
	t.Setenv("NOTIFY_SOCKET", manager.Socket)
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
		if got := manager.Told(); got != want {
			t.Fatalf("told %q, want %q", got, want)
		}
		if want == "WATCHDOG=1" && asked.Load() <= failures {
			t.Error("the kubelet was not healthy")
		}
	}
}
