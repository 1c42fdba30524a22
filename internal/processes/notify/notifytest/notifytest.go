// Package notifytest plays a service manager that is told of a service (sd_notify(3)).
package notifytest

import (
	"net"
	"path/filepath"
	"testing"
	"time"
)

// Manager is a service manager. It ends with its test.
type Manager struct {
	// Socket is the value of NOTIFY_SOCKET.
	Socket string

	t    *testing.T
	conn *net.UnixConn
}

// New returns a manager that can be told.
func New(t *testing.T) *Manager {
	t.Helper()
	m := &Manager{Socket: filepath.Join(t.TempDir(), "notify"), t: t}
	var err error
	if m.conn, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: m.Socket}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.conn.Close() })
	return m
}

// Told returns what the manager is told next. It waits for up to three minutes.
func (m *Manager) Told() string {
	m.t.Helper()
	if err := m.conn.SetReadDeadline(time.Now().Add(3 * time.Minute)); err != nil {
		m.t.Fatal(err)
	}
	buffer := make([]byte, 4096)
	n, err := m.conn.Read(buffer)
	if err != nil {
		m.t.Fatalf("the service manager is not told: %v", err)
	}
	return string(buffer[:n])
}
