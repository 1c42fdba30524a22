package main

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coracle-io/coracle/internal/host"
)

// Of two that start a cluster at once the second waits for the first, and has
// the cluster if that one gives it up.
func TestUpWaitsForAnotherOne(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("clusters need root")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	f := &upFlags{dataDir: t.TempDir(), timeout: 2 * claimAgain, told: host.Settings{
		Name: "test-" + strings.ToLower(t.Name())[:20], BindAddress: "127.0.0.1", Ports: host.Ports{Secure: port}, LogLevels: "1",
		Kubeconfig: filepath.Join(t.TempDir(), "config"),
	}}
	registry := host.NewRegistry(t.TempDir())
	lock, err := host.LockData(t.Context(), f.dataDir, f.told.Name, 0)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	var busy *host.BusyError
	if _, _, err := f.claim(t.Context(), registry); !errors.As(err, &busy) || busy.PID != os.Getpid() || time.Since(began) < f.timeout {
		t.Errorf("%v after %v", err, time.Since(began))
	}
	f.timeout = time.Minute
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
	p, _, err := f.claim(t.Context(), registry)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.claim.Abandon(), p.claim.Vacate(), p.claim.Lock.Release()); err != nil {
		t.Error(err)
	}
}
