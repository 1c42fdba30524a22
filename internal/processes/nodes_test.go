package processes

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// together is a node that ends once both nodes and not the control plane were
// asked to.
func together(dir, name string) int {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)
	NewReporter().Send(Message{Ready: true})
	<-asked
	if os.WriteFile(filepath.Join(dir, "asked-"+name), nil, 0o600) != nil {
		return 1
	}
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for range again.C {
		if all, err := filepath.Glob(filepath.Join(dir, "asked-*")); err != nil || len(all) == 2 {
			break
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "ended")); err == nil {
		return 1
	}
	return 0
}

// TestNodesAreStoppedTogether checks that several nodes are asked to end at the
// same time, and the control plane after them.
func TestNodesAreStoppedTogether(t *testing.T) {
	s := superviseIn(t, t.TempDir(), "works", "together", nil, "TEST_NODES=2")
	st := s.until("all are ready", func(st Status) bool { return st.Ready })
	if len(st.Processes) != 3 || st.Processes[2].Name != "node-2" {
		t.Errorf("processes %+v", st.Processes)
	}
	if code := s.stop(); code != 0 {
		t.Errorf("exit code %d\n%s", code, s.log)
	}
	for _, name := range []string{"asked-node", "asked-node-2", "ended"} {
		if _, err := os.Stat(filepath.Join(s.dir, name)); err != nil {
			t.Error(err)
		}
	}
}

// killsSibling is a process that ends its control plane when it is asked to end,
// and records how often it is asked.
func killsSibling(dir string) int {
	asked := make(chan os.Signal, 2)
	signal.Notify(asked, syscall.SIGTERM)
	r := NewReporter()
	r.Send(Message{Ready: true})
	<-asked
	times := "x"
	st, _, err := Read(dir)
	if err != nil {
		return 1
	}
	_ = syscall.Kill(st.Processes[0].PID, syscall.SIGKILL) // it may have ended
	// The status has the end of the control plane once the supervisor has
	// handled it, which is when it would ask again.
	for st.Processes[0].PID != 0 {
		r.Send(Message{Components: []byte(`"publish"`)})
		if st, _, err = Read(dir); err != nil {
			return 1
		}
	}
	select {
	case <-asked:
		times += "x"
	case <-time.After(100 * time.Millisecond): // signals that were sent have arrived
	}
	if os.WriteFile(filepath.Join(dir, "asked"), []byte(times), 0o600) != nil {
		return 1
	}
	return 0
}

// TestProcessIsAskedOnceToEnd checks that the supervisor asks a process to end only
// once, even if another process ends before it does.
func TestProcessIsAskedOnceToEnd(t *testing.T) {
	s := supervise(t, "killssibling")
	s.until("both are ready", bothReady)
	if code := s.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if asked, err := os.ReadFile(filepath.Join(s.dir, "asked")); err != nil || string(asked) != "x" {
		t.Errorf("asked %q times, %v", asked, err)
	}
}

// main runs the supervisor, or a process that it starts.
func main(args []string) int {
	if args[0] == Command {
		return Main(args[1:])
	}
	name, dir := args[1], ""
	for _, argument := range args[2:] {
		switch flag, value, _ := strings.Cut(argument, "="); flag {
		case "--data-dir":
			dir = value
		case "--node":
			name += "-" + value
		}
	}
	SetName(name)
	return works(dir, []string{name})
}

// The processes of a cluster have names that ps shows, and not the umask of who started
// the cluster.
func TestNamesAndUmask(t *testing.T) {
	dir := t.TempDir()
	arguments := Arguments{Name: "a", DataDir: dir, RunDir: dir, Nodes: 2}.List()
	s := &supervised{t: t, dir: dir, log: &bytes.Buffer{}}
	s.cmd = exec.Command("sh", append([]string{"-c", `umask 077; exec "$0" "$@"`, os.Args[0]}, arguments...)...)
	s.cmd.Stderr = s.log
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait() // it may have been waited for already
	})
	st := s.until("all processes are ready", func(st Status) bool { return st.Ready && len(st.Processes) == 3 })
	for pid, want := range map[int]string{
		st.PID: "coracle-supervi", st.Processes[0].PID: "coracle-control", st.Processes[1].PID: "coracle-node", st.Processes[2].PID: "coracle-node-2",
	} {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			t.Fatal(err)
		}
		if text := string(raw); !strings.HasPrefix(text, "Name:\t"+want+"\n") || !strings.Contains(text, "\nUmask:\t0022\n") {
			t.Errorf("process %d, %s:\n%s", pid, want, text)
		}
	}
	if code := s.stop(); code != 0 {
		t.Errorf("exit code %d\n%s", code, s.log)
	}
}
