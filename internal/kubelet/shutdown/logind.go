package shutdown

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"github.com/coracle-io/coracle/internal/supervise"
)

// Names of logind on the bus.
const (
	logindName    = "org.freedesktop.login1"
	logindPath    = "/org/freedesktop/login1"
	logindManager = "org.freedesktop.login1.Manager"
	shutdownName  = "PrepareForShutdown"
)

// bus is logind over D-Bus.
type bus struct {
	conn      *dbus.Conn
	logind    dbus.BusObject
	override  string // directory of logind's drop-in files
	signals   chan *dbus.Signal
	shutdowns chan bool
	ended     chan struct{}
}

// System connects to logind on the machine's bus.
func System(ctx context.Context) (Logind, error) {
	conn, err := dbus.ConnectSystemBus(dbus.WithContext(context.WithoutCancel(ctx)))
	if err != nil {
		return nil, fmt.Errorf("connect to the system bus: %w", err)
	}
	return newBus(ctx, conn, "/etc/systemd/logind.conf.d")
}

func newBus(ctx context.Context, conn *dbus.Conn, override string) (Logind, error) {
	b := &bus{
		conn: conn, logind: conn.Object(logindName, logindPath), override: override,
		signals: make(chan *dbus.Signal, 8), shutdowns: make(chan bool), ended: make(chan struct{}),
	}
	if err := conn.AddMatchSignal(dbus.WithMatchInterface(logindManager), dbus.WithMatchObjectPath(logindPath), dbus.WithMatchMember(shutdownName)); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("subscribe to the PrepareForShutdown signal: %w", err)
	}
	conn.Signal(b.signals) // closed with the connection
	supervise.Go(ctx, b.listen)
	return b, nil
}

// listen passes on the signals until the connection is closed.
func (b *bus) listen() {
	defer close(b.shutdowns)
	for s := range b.signals {
		if s.Name != logindManager+"."+shutdownName || len(s.Body) == 0 {
			continue
		}
		if begins, ok := s.Body[0].(bool); ok {
			select {
			case b.shutdowns <- begins:
			case <-b.ended:
				return
			}
		}
	}
}

// Shutdowns implements Logind.
func (b *bus) Shutdowns() <-chan bool { return b.shutdowns }

// InhibitDelay implements Logind.
func (b *bus) InhibitDelay(ctx context.Context) (time.Duration, error) {
	var microseconds uint64
	err := b.logind.CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", 0, logindManager, "InhibitDelayMaxUSec").Store(&microseconds)
	return time.Duration(min(microseconds, math.MaxInt64/uint64(time.Microsecond))) * time.Microsecond, err
}

// SetInhibitDelay implements Logind.
func (b *bus) SetInhibitDelay(ctx context.Context, d time.Duration) error {
	content := fmt.Sprintf("# Kubelet logind override\n[Login]\nInhibitDelayMaxSec=%.0f\n", d.Seconds())
	if err := os.MkdirAll(b.override, 0o755); err != nil { //nolint:gosec // all may read the system's configuration
		return err
	}
	if err := os.WriteFile(filepath.Join(b.override, "99-kubelet.conf"), []byte(content), 0o644); err != nil { //nolint:gosec // as above
		return err
	}
	systemd := b.conn.Object("org.freedesktop.systemd1", "/org/freedesktop/systemd1")
	call := systemd.CallWithContext(ctx, "org.freedesktop.systemd1.Manager.KillUnit", 0, "systemd-logind.service", "all", int32(unix.SIGHUP))
	if call.Err != nil {
		return fmt.Errorf("make logind read its configuration again: %w", call.Err)
	}
	return nil
}

// Inhibit implements Logind.
func (b *bus) Inhibit(ctx context.Context) (io.Closer, error) {
	var fd dbus.UnixFD
	err := b.logind.CallWithContext(ctx, logindManager+".Inhibit", 0, "shutdown", "kubelet", "Kubelet needs time to handle node shutdown", "delay").Store(&fd)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "inhibitor"), nil
}

// Close implements Logind.
func (b *bus) Close() error {
	close(b.ended)
	return b.conn.Close()
}
