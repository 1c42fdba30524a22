package processes

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The user chooses the name of a program, which the kernel writes between the
// other fields.
func TestProcessNameIsNotTrusted(t *testing.T) {
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "a) Z 1 (b")
	if err := os.Symlink(sleep, program); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if s, ok := ReadStat(cmd.Process.Pid); !ok || s.Parent != os.Getpid() || s.State == 'Z' || s.Start == 0 {
		t.Errorf("%+v, %t; want a living child of %d", s, ok, os.Getpid())
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait() // it was killed
	if s, ok := ReadStat(cmd.Process.Pid); ok {
		t.Errorf("%+v after the end", s)
	}
}

// Processes are ended as the status says, so only the cluster's user may write it.
func TestStatusOfOthersIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := (&Status{}).write(dir); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := Read(dir); !ok || err != nil {
		t.Errorf("the own status: %v, %v", ok, err)
	}
	if err := os.Chmod(statusFile(dir), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := Read(dir); ok || err == nil {
		t.Errorf("a status that all can write: %v, %v", ok, err)
	}
}

// The status has the memory limit of a process that has one.
func TestMemoryLimitOfTheStatus(t *testing.T) {
	for limit, want := range map[int64]string{64 << 20: ", limit of memory 64 MiB", math.MaxInt64: "up for 0s, not ready yet"} {
		c := &child{status: Process{Name: Node, PID: 7, Since: time.Now()}}
		s := &supervisor{config: Config{Arguments: Arguments{RunDir: t.TempDir()}}, children: []*child{c}}
		s.message(c, Message{MemoryLimit: limit})
		st, ok, err := Read(s.config.RunDir)
		if err != nil || !ok || len(st.Processes) != 1 {
			t.Fatalf("%+v, %v", st, err)
		}
		if got := st.Processes[0]; !strings.Contains(got.String(), want) || got.MemoryLimit != limit && got.MemoryLimit != 0 {
			t.Errorf("limit %d: %s, %d", limit, got, got.MemoryLimit)
		}
	}
}
