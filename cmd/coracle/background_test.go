package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/internal/host"
	"github.com/coracle-io/coracle/internal/processes"
)

// A start that takes too long says what it waits for.
func TestALateStartSaysWhatItWaitsFor(t *testing.T) {
	rec := host.Record{RunDir: t.TempDir()}
	waits := cluster.Condition{Name: "Starting", Message: "waiting for containerd", Since: time.Now().Add(-time.Minute)}
	components, err := json.Marshal([]cluster.Component{{Name: "containerd", Phase: cluster.Running, Conditions: []cluster.Condition{waits}}, {Name: "proxy", Phase: cluster.Running}})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(processes.Status{Processes: []processes.Process{{Name: processes.ControlPlane}, {Name: processes.Node, Components: components}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(rec.RunDir, "processes.json"), raw, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := errors.Join(awaited(rec)...); got == nil || !strings.HasPrefix(got.Error(), "node: containerd, for 1m") || !strings.HasSuffix(got.Error(), ": waiting for containerd") {
		t.Errorf("got %v", got)
	}
}

// An error of an earlier start is not the reason of this one.
func TestLastErrorIsOfThisStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "coracle.log")
	write := func(text string) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err == nil {
			_, err = f.WriteString(text)
		}
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write("coracle: the port was taken\n")
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	write("I0101 something else\n")
	if got := lastError(path, before); strings.Contains(got, "port") {
		t.Errorf("got %q", got)
	}
	write("coracle: the disk is full\n" + strings.Repeat("I0101 noise\n", 1000))
	if got := lastError(path, before); got != "the disk is full" {
		t.Errorf("got %q", got)
	}
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	write("coracle: new\n")
	if got := lastError(path, before); got != "new" {
		t.Errorf("got %q", got)
	}
}
