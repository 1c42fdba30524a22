package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/internal/freeport"
	"github.com/coracle-io/coracle/internal/host"
)

// If two commands start a cluster at once, the second waits for the first, and
// starts the cluster if the first gives up.
func TestUpWaitsForAnotherOne(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("clusters need root")
	}
	f := &upFlags{timeout: 2 * claimRetry, settings: host.Settings{
		Kubeconfig: filepath.Join(t.TempDir(), "config"),
		Options: cluster.Options{
			Name: "test-" + strings.ToLower(t.Name())[:20], DataDir: t.TempDir(), BindAddress: "127.0.0.1", Ports: cluster.Ports{Secure: freeport.For(t)}, LogLevels: "1",
			Etcd: &cluster.EtcdOptions{}, Node: &cluster.NodeOptions{},
		},
	}}
	registry := host.NewRegistry(t.TempDir())
	lock, err := host.LockData(t.Context(), f.settings.Options.DataDir, f.settings.Options.Name, 0)
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
