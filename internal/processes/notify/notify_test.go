package notify

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
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
	socket := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: socket})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	t.Setenv("NOTIFY_SOCKET", socket)
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
		if err := l.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		buffer := make([]byte, 4096)
		size, err := l.Read(buffer)
		if got := string(buffer[:size]); err != nil || got != want {
			t.Fatalf("told %q (%v), want %q", got, err, want)
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
