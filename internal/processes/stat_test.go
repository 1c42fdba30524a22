package processes

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Whoever runs a program chooses its name, which the kernel writes among the rest.
func TestNameOfAProcessIsNotBelieved(t *testing.T) {
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
