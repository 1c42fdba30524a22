package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coracle-io/coracle/internal/component/apiserver"
	"github.com/coracle-io/coracle/internal/host"
	"github.com/coracle-io/coracle/internal/processes"
	"github.com/coracle-io/coracle/internal/sharedfile"
	"github.com/coracle-io/coracle/test/mark"
)

// The holder of the lock of a data directory owns the processes of its cluster:
// a command that does not get it ends none of them.
func TestStopLeavesWhatOthersHaveLocked(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("run directories need root")
	}
	rec := host.Record{Occupied: host.Occupied{Name: mark.Name("stop"), DataDir: t.TempDir()}}
	run := host.RunDir(rec.Name)
	if err := os.MkdirAll(run, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = host.RemoveRun(run) })
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(cmd.Process.Kill(), cmd.Wait()) })
	start, err := host.StartTime(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	p := processes.Process{Name: processes.ControlPlane, PID: cmd.Process.Pid, Start: start}
	raw, err := json.Marshal(processes.Status{Processes: []processes.Process{p}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(run, "processes.json"), raw, 0o600); err != nil {
		t.Fatal(err)
	}
	lock, err := host.LockData(t.Context(), rec.DataDir, rec.Name, 0)
	if err != nil {
		t.Fatal(err)
	}
	lock.SetHolder(sharedfile.Holder{}) // of one that could not write who it is
	var held *sharedfile.HeldError
	if _, err := stopAndLock(t.Context(), rec); !errors.As(err, &held) {
		t.Errorf("got %v, want that another process has the lock", err)
	}
	if !p.Running() {
		t.Error("a process was ended without the lock")
	}
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	got, err := stopAndLock(t.Context(), rec)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = got.Release() }()
	select {
	case err := <-ended:
		t.Log("the process has ended:", err)
	case <-time.After(time.Minute):
		t.Error("with the lock the process is not ended")
	}
}

// A directory that another cluster has by now is left to it, and so are its
// processes.
func TestStopLeavesAnotherClustersData(t *testing.T) {
	rec := host.Record{Occupied: host.Occupied{Name: "test-a", DataDir: settled(t, "test-b")}}
	if _, err := stopAndLock(t.Context(), rec); err == nil || !strings.Contains(err.Error(), "holds the data of cluster test-b") {
		t.Errorf("swapped: %v", err)
	}
	if err := os.Remove(host.SettingsFile(rec.DataDir)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(cmd.Process.Kill(), cmd.Wait()) })
	lock, err := host.LockData(t.Context(), rec.DataDir, "test-b", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Release() }()
	host.HandOver(lock, "test-b", cmd.Process.Pid)
	var held *sharedfile.HeldError
	if _, err := stopAndLock(t.Context(), rec); !errors.As(err, &held) || held.Holder.Cluster != "test-b" {
		t.Errorf("locked by another cluster: %v", err)
	}
	start, err := host.StartTime(cmd.Process.Pid)
	if err != nil || !(processes.Process{PID: cmd.Process.Pid, Start: start}).Running() {
		t.Errorf("another cluster's process was ended: %v", err)
	}
}

// That a cluster has objects is recorded whether or not its kubeconfig can be
// written.
func TestServedIsRecordedByItself(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var rec host.Record
	unwritable := errors.New("the kubeconfig is read-only")
	writeRecord(ctx, &processes.Reporter{}, []func(*host.Record) error{
		func(rec *host.Record) error { rec.Served = true; return nil },
		func(*host.Record) error { cancel(); return unwritable },
	}, func(change func(*host.Record) error) error { return change(&rec) })
	if !rec.Served {
		t.Error("the record does not say that the cluster has served")
	}
}

// Before the network is there a cluster that has served waits, and says so.
func TestAwaitAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := 3
		began := time.Now()
		if err := awaitAddress(t.Context(), &processes.Reporter{}, func() error {
			if left--; left > 0 {
				return fmt.Errorf("the node: %w", apiserver.ErrNoAddress)
			}
			return nil
		}); err != nil || time.Since(began) != 2*addressRetry {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := awaitAddress(ctx, &processes.Reporter{}, func() error { return apiserver.ErrNoAddress }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("never: %v", err)
		}
	})
	p := processes.Process{Name: processes.Node, PID: 1, Components: waitsFor(apiserver.ErrNoAddress, time.Now()).Components}
	if texts := currentProblems(p); len(texts) != 1 || !strings.Contains(texts[0], "no network address but loopback") {
		t.Errorf("status says %q", texts)
	}
}
