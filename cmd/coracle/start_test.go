package main

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/internal/host"
)

// A cluster that down removes while start waits for it is not made anew.
func TestStartMakesNoCluster(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("clusters need root")
	}
	registry := host.NewRegistry(t.TempDir())
	f := newUpFlags()
	f.existing, f.timeout = true, claimRetry
	f.settings.Options.Name = "test-" + strings.ToLower(t.Name())[:20]
	var coded codedError
	if _, err := f.prepare(t.Context(), registry); !errors.As(err, &coded) || coded.code != exitNoCluster {
		t.Errorf("got %v, want that there is no cluster", err)
	}
	if _, err := os.Lstat(registry.DataDir(f.settings.Options.Name)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a data directory was made: %v", err)
	}
}

// Restart leaves a cluster running that could not start again.
func TestRestartStopsWhatCanStart(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("clusters need root")
	}
	name := "test-" + strings.ToLower(t.Name())[:20]
	for problem, damage := range map[string]func(t *testing.T, dir string) error{
		"":                             func(*testing.T, string) error { return nil },
		"settings.json is missing":     func(_ *testing.T, dir string) error { return os.Remove(host.SettingsFile(dir)) },
		"the file is damaged":          func(_ *testing.T, dir string) error { return os.WriteFile(host.SettingsFile(dir), []byte("{"), 0o600) },
		"the apiserver has no flag":    func(t *testing.T, dir string) error { return store(dir, name, "--no-such-flag=1") },
		"where etcd/member is missing": func(_ *testing.T, dir string) error { return os.RemoveAll(dir + "/etcd") },
	} {
		t.Run(problem, func(t *testing.T) {
			dir := t.TempDir()
			if err := errors.Join(store(dir, name), os.MkdirAll(dir+"/etcd/member", 0o700), damage(t, dir)); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("sleep", "1000")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			t.Cleanup(func() { _ = cmd.Process.Kill() })
			start, err := host.StartTime(cmd.Process.Pid)
			if err != nil {
				t.Fatal(err)
			}
			rec := host.Record{Occupied: host.Occupied{Name: name, DataDir: dir}, PID: cmd.Process.Pid, PIDStart: start, Settled: true, Served: true}
			err = stopToRestart(t.Context(), rec)
			if problem == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), problem) || !strings.Contains(err.Error(), "was not stopped") {
				t.Errorf("got %v, want that %s", err, problem)
			}
			select {
			case err := <-ended:
				t.Error("the cluster was stopped:", err)
			default:
			}
		})
	}
}

// store writes the settings of a cluster without a node.
func store(dir, name string, apiserverArgs ...string) error {
	s := host.Settings{Options: cluster.Options{Name: name, DataDir: dir, BindAddress: "127.0.0.1", LogLevels: "1", APIServerArgs: apiserverArgs}}
	s.Complete(0, "n", "/bundle", "/root/.kube/config")
	return s.Write()
}
