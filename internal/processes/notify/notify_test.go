package notify

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coracle-io/coracle/internal/processes/notify/notifytest"
)

// sockets returns how many sockets this process has.
func sockets(t *testing.T) (n int) {
	t.Helper()
	const open = "/proc/self/fd"
	entries, err := os.ReadDir(open)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if target, err := os.Readlink(filepath.Join(open, e.Name())); err == nil && strings.HasPrefix(target, "socket:") {
			n++
		}
	}
	return n
}

// The service manager gets what is sent, in order. No descriptor is left.
func TestSend(t *testing.T) {
	manager := notifytest.New(t)
	t.Setenv("NOTIFY_SOCKET", manager.Socket)
	t.Setenv("WATCHDOG_USEC", "2000000")
	t.Setenv("WATCHDOG_PID", "")
	before := sockets(t)
	n := New()
	if n.Watchdog != time.Second {
		t.Errorf("the watchdog is told every %v, want every second", n.Watchdog)
	}
	n.Send("READY=1", "STATUS=ready")
	n.Send("WATCHDOG=1")
	for _, want := range []string{"READY=1\nSTATUS=ready", "WATCHDOG=1"} {
		if got := manager.Told(); got != want {
			t.Fatalf("told %q, want %q", got, want)
		}
	}
	if after := sockets(t); after != before {
		t.Errorf("%d sockets are open, before %d", after, before)
	}
}

// Without a service manager, and with one that does not listen, nothing happens.
func TestNobodyListens(t *testing.T) {
	for _, socket := range []string{"", filepath.Join(t.TempDir(), "none")} {
		t.Setenv("NOTIFY_SOCKET", socket)
		New().Send("READY=1")
	}
}
