package processes

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
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

// failingNode is the number of a node that fails at each start.
const failingNode = 9

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
	if name == NodeProcess(failingNode) {
		NewReporter().Send(Message{Failed: "the disk is full"})
		return 1
	}
	SetName(name)
	return works(dir, []string{name})
}

// superviseNodes starts a supervisor of a control plane and nodes that work, as coracle
// up starts it, with the umask of a careful user.
func superviseNodes(t *testing.T, nodes Nodes) *supervised {
	t.Helper()
	dir := t.TempDir()
	arguments := Arguments{Name: "a", DataDir: dir, RunDir: dir, Nodes: nodes}.List()
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
	return s
}

// untilNodes waits until exactly these processes run, and all are ready.
func (s *supervised) untilNodes(names ...string) map[string]Process {
	s.t.Helper()
	st := s.until(strings.Join(names, ", ")+" are ready", func(st Status) bool {
		var ready []string
		for _, p := range st.Processes {
			if p.Ready {
				ready = append(ready, p.Name)
			}
		}
		return st.Ready && len(st.Processes) == len(names) && slices.Equal(ready, names)
	})
	all := map[string]Process{}
	for _, p := range st.Processes {
		all[p.Name] = p
	}
	return all
}

// TestSetNodes adds and removes nodes. The processes of the others run on, except that
// all are started again when the first further node comes.
func TestSetNodes(t *testing.T) {
	s := superviseNodes(t, Nodes{Numbers: []int{1}})
	set := func(several bool, numbers ...int) {
		t.Helper()
		for range 2 { // telling it again changes nothing
			if err := SetNodes(s.dir, Nodes{Numbers: numbers, Several: several}); err != nil {
				t.Fatal(err)
			}
		}
	}
	alone := s.untilNodes("control-plane", "node")
	if err := CheckSetNodes(s.dir); err != nil {
		t.Error(err)
	}
	set(true, 1, 2)
	two := s.until("both are started again", func(st Status) bool {
		return len(st.Processes) == 3 && st.Processes[0].Ready && st.Processes[1].Ready && st.Processes[2].Ready &&
			st.Processes[0].PID != alone["control-plane"].PID && st.Processes[1].PID != alone["node"].PID
	})
	if two.Processes[0].Restarts != 0 || two.Processes[2].Name != "node-2" {
		t.Errorf("with two nodes: %+v", two.Processes)
	}
	set(true, 1, 2, 3)
	s.untilNodes("control-plane", "node", "node-2", "node-3")
	set(true, 1, 3)
	left := s.untilNodes("control-plane", "node", "node-3")
	if left["control-plane"].PID != two.Processes[0].PID || left["node"].PID != two.Processes[1].PID {
		t.Errorf("others were started again: %+v, before %+v", left, two.Processes)
	}
	if (Process{PID: two.Processes[2].PID, Start: two.Processes[2].Start}).Running() {
		t.Error("the process of a node that was removed runs")
	}
	if code := s.stop(); code != 0 {
		t.Errorf("exit code %d\n%s", code, s.log)
	}
	if ended, err := os.ReadFile(filepath.Join(s.dir, "ended")); err != nil || strings.Count(string(ended), "control-plane\n") != 2 || strings.Contains(s.log.String(), "Process ended") {
		t.Errorf("ended: %q, %v, and the log is\n%s", ended, err, s.log)
	}
	if err := SetNodes(s.dir, Nodes{Numbers: []int{1}}); err == nil {
		t.Error("a supervisor that has ended was told")
	}
}

// A node that is wanted again while it ends, and one that fails at each start and is
// removed.
func TestNodesThatComeBackAndFail(t *testing.T) {
	s := superviseNodes(t, Nodes{Numbers: []int{1, 2}, Several: true})
	s.untilNodes("control-plane", "node", "node-2")
	for _, numbers := range [][]int{{1}, {1, 2}} {
		if err := SetNodes(s.dir, Nodes{Numbers: numbers, Several: true}); err != nil {
			t.Fatal(err)
		}
	}
	s.until("the node is ready", func(st Status) bool {
		return len(st.Processes) == 3 && st.Processes[2].Name == "node-2" && st.Processes[2].Ready
	})
	if err := SetNodes(s.dir, Nodes{Numbers: []int{1, failingNode}, Several: true}); err != nil {
		t.Fatal(err)
	}
	s.until("the node waits for its next start", func(st Status) bool {
		return len(st.Processes) == 3 && st.Processes[2].Name == NodeProcess(failingNode) && st.Processes[2].Restarts >= 2
	})
	if err := SetNodes(s.dir, Nodes{Numbers: []int{1}, Several: true}); err != nil {
		t.Fatal(err)
	}
	s.untilNodes("control-plane", "node")
	if code := s.stop(); code != 0 {
		t.Errorf("exit code %d\n%s", code, s.log)
	}
}

func TestSupervisorsThatCannotChangeNodes(t *testing.T) {
	s := supervise(t, "works")
	s.until("both are ready", bothReady)
	for _, err := range []error{SetNodes(s.dir, Nodes{}), CheckSetNodes(s.dir)} {
		if !errors.Is(err, ErrOldSupervisor) {
			t.Error(err)
		}
	}
	if err := SetNodes(t.TempDir(), Nodes{}); err == nil || errors.Is(err, ErrOldSupervisor) {
		t.Error(err)
	}
}

func TestNodesOnTheCommandLine(t *testing.T) {
	for _, numbers := range [][]int{nil, {1}, {1, 3, 50}} {
		var parsed Nodes
		given := Nodes{Numbers: numbers}
		if err := parsed.Set(given.String()); err != nil || !slices.Equal(parsed.Numbers, numbers) {
			t.Errorf("%v becomes %v, %v", numbers, parsed.Numbers, err)
		}
	}
	for _, text := range []string{"x", "0", "1,-2"} {
		if err := new(Nodes).Set(text); err == nil {
			t.Errorf("%s is accepted", text)
		}
	}
}

// The processes of a cluster have names that ps shows, and not the umask of who started
// the cluster.
func TestNamesAndUmask(t *testing.T) {
	s := superviseNodes(t, Nodes{Numbers: []int{1, 2}, Several: true})
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
