package processes

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coracle-io/coracle/internal/processes/notify/notifytest"
)

func TestBackoff(t *testing.T) {
	var b backoff
	for i, step := range []struct{ ready, want time.Duration }{
		{0, 0},
		{0, 500 * time.Millisecond},
		{0, time.Second},
		{900 * time.Millisecond, 2 * time.Second},
		{0, 4 * time.Second},
		{0, 8 * time.Second},
		{0, 10 * time.Second},
		{0, 10 * time.Second},
		{time.Second, 500 * time.Millisecond},
		{3 * time.Second, 500 * time.Millisecond},
		{0, time.Second},
		{10 * time.Second, 0},
		{0, 500 * time.Millisecond},
	} {
		if got := b.after(step.ready); got != step.want {
			t.Errorf("end %d, after %v of work: restarted after %v, want %v", i, step.ready, got, step.want)
		}
	}
}

// TestMain runs the tests, a supervisor, or a process of one, by its arguments.
func TestMain(m *testing.M) {
	if len(os.Args) < 3 {
		os.Exit(m.Run())
	}
	switch dir := os.Args[2]; os.Args[1] {
	case "supervised":
		os.Exit(Run(supervisedConfig(dir, os.Args[3], os.Args[4])))
	case "owns":
		if _, err := lockRunDir(dir, "/data"); err != nil {
			os.Exit(1)
		}
		_, _ = os.Stdout.WriteString(".")
		select {}
	case "works":
		os.Exit(works(dir, os.Args[3:]))
	case "together":
		os.Exit(together(dir, os.Args[3]))
	case "fails":
		NewReporter().Send(Message{Failed: "the disk is full\nof old logs" + os.Getenv(FailedEnv)})
		os.Exit(1)
	case "isdamaged":
		NewReporter().Send(Message{Failed: "the database is damaged", Final: true})
		os.Exit(1)
	case "undoes":
		os.Exit(undoes(dir, os.Args[3:]))
	case "talks":
		r := NewReporter()
		r.Send(Message{Components: []byte(`"` + strings.Repeat("a", 3*maxMessage) + `"`)})
		r.Send(Message{Stage: "after a long message"})
		r.Send(Message{Failed: strings.Repeat("b", 2*maxMessage)})
		os.Exit(1)
	case "failslate": // once the other process serves
		r, deadline := NewReporter(), time.Now().Add(patience)
		for st, _, _ := Read(dir); time.Now().Before(deadline) && (len(st.Processes) == 0 || !st.Processes[0].Ready); st, _, _ = Read(dir) {
			<-time.After(time.Millisecond)
		}
		r.Send(Message{Failed: "the disk is full"})
		os.Exit(1)
	case "panics":
		NewReporter()
		var none []string
		_ = none[len(os.Args)]
	case "faults":
		NewReporter()
		f, err := os.CreateTemp(dir, "")
		if err != nil || f.Truncate(1) != nil {
			os.Exit(1)
		}
		mapped, err := syscall.Mmap(int(f.Fd()), 0, 1, syscall.PROT_READ, syscall.MAP_SHARED)
		if err != nil || os.Remove(f.Name()) != nil || f.Truncate(0) != nil {
			os.Exit(1)
		}
		os.Exit(int(mapped[0]))
	case "starves":
		NewReporter().Send(Message{MemoryLimit: 64 << 20})
		if syscall.Setrlimit(syscall.RLIMIT_AS, &syscall.Rlimit{}) != nil {
			os.Exit(1)
		}
		for all := [][]byte{}; ; {
			all = append(all, make([]byte, 64<<20))
		}
	case "killssibling":
		os.Exit(killsSibling(dir))
	case Command, RunCommand:
		os.Exit(main(os.Args[1:]))
	case "deaf":
		signal.Ignore(syscall.SIGTERM)
		NewReporter().Send(Message{Ready: true})
		select {}
	}
	os.Exit(m.Run())
}

// patience bounds each wait. It says nothing of speed.
const patience = 3 * time.Minute

// stopTimeout is how long a process with a given behaviour has to end. Only the
// one that never does is killed soon.
func stopTimeout(behaviour string) time.Duration {
	if behaviour == "deaf" {
		return 100 * time.Millisecond
	}
	return patience
}

// supervisedConfig returns the configuration of a supervisor of a control plane
// and, with TEST_NODES, several nodes.
func supervisedConfig(dir, node, controlPlane string) Config {
	lock, _ := strconv.Atoi(os.Getenv("TEST_LOCK_FD")) // none is 0
	c := Config{
		Program: "/proc/self/exe", Argument0: os.Args[0],
		Arguments: Arguments{RunDir: dir, Log: os.Getenv("TEST_LOG"), LockFD: lock, Served: os.Getenv("TEST_SERVED") != "", Failed: strings.Fields(os.Getenv("TEST_FAILED"))},
		Processes: []Spec{
			{Name: ControlPlane, Args: []string{controlPlane, dir, ControlPlane}, First: []string{"first"}, StopTimeout: stopTimeout(controlPlane)},
			{Name: Node, Args: []string{node, dir, Node}, StopTimeout: stopTimeout(node), Stage: 1},
		},
	}
	nodes, _ := strconv.Atoi(os.Getenv("TEST_NODES")) // one if it is not set
	for n := 2; n <= nodes; n++ {
		c.Processes = append(c.Processes, Spec{Name: NodeProcess(n), Args: []string{node, dir, NodeProcess(n)}, StopTimeout: stopTimeout(node), Stage: 1})
	}
	return c
}

// works is a process that is ready at once. It records its name when it is
// asked to end.
func works(dir string, args []string) int {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)
	r := NewReporter()
	r.Send(Message{Stage: strings.Join(args, " ")})
	r.Send(Message{Serves: args[0] == ControlPlane})
	r.Send(Message{Ready: true, Components: []byte(`{"n":1}`)})
	<-asked
	f, err := os.OpenFile(filepath.Join(dir, "ended"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.WriteString(args[0] + "\n")
	}
	if err != nil {
		return 1
	}
	return 0
}

// undoes is the command that runs when a start has failed. It records its
// arguments, and whether another process can take the lock.
func undoes(dir string, args []string) int {
	f, err := os.Open(filepath.Join(dir, "lock"))
	if err == nil {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	state := "unlocked"
	if errors.Is(err, syscall.EWOULDBLOCK) {
		state = "locked"
	}
	told := strings.Join(append(args, os.Getenv(FailedEnv), state), "|")
	if err := os.WriteFile(filepath.Join(dir, "undone"), []byte(told), 0o600); err != nil {
		return 1
	}
	return 3
}

// supervised is a running supervisor.
type supervised struct {
	t   *testing.T
	dir string
	cmd *exec.Cmd
	log *bytes.Buffer
}

// supervise starts a supervisor of a control plane that works and a node with a
// given behaviour.
func supervise(t *testing.T, node string, env ...string) *supervised {
	return superviseIn(t, t.TempDir(), "works", node, nil, env...)
}

func superviseIn(t *testing.T, dir, controlPlane, node string, files []*os.File, env ...string) *supervised {
	s := &supervised{t: t, dir: dir, log: &bytes.Buffer{}}
	s.cmd = exec.Command(os.Args[0], "supervised", s.dir, node, controlPlane)
	s.cmd.ExtraFiles = files
	s.cmd.Stderr = s.log
	s.cmd.Env = append(os.Environ(), env...)
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait() // it may have been waited for already
	})
	return s
}

// until waits for a status that satisfies is, and returns it.
func (s *supervised) until(what string, is func(Status) bool) Status {
	s.t.Helper()
	deadline := time.After(patience)
	again := time.NewTicker(2 * time.Millisecond)
	defer again.Stop()
	for {
		st, ok, err := Read(s.dir)
		if err != nil {
			s.t.Fatal(err)
		}
		if ok && is(st) {
			return st
		}
		select {
		case <-again.C:
		case <-deadline:
			raw, _ := json.Marshal(st)
			s.t.Fatalf("waiting until %s: the status is %s\n%s", what, raw, s.log)
		}
	}
}

func bothReady(st Status) bool {
	return st.Ready && len(st.Processes) == 2 && st.Processes[0].Ready && st.Processes[1].Ready
}

// stop asks the supervisor to end and returns its exit code.
func (s *supervised) stop() int { return s.end(syscall.SIGTERM) }

func (s *supervised) end(signal syscall.Signal) int {
	s.t.Helper()
	if err := s.cmd.Process.Signal(signal); err != nil {
		s.t.Fatal(err)
	}
	return s.wait()
}

func (s *supervised) wait() int {
	err := s.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.t.Fatal(err)
	}
	return s.cmd.ProcessState.ExitCode()
}

func TestNodeIsStoppedBeforeItsControlPlane(t *testing.T) {
	s := supervise(t, "works")
	s.until("both are ready", bothReady)
	if code := s.stop(); code != 0 {
		t.Errorf("exit code %d\n%s", code, s.log)
	}
	ended, err := os.ReadFile(filepath.Join(s.dir, "ended"))
	if want := "node\ncontrol-plane\n"; err != nil || string(ended) != want {
		t.Errorf("ended: %q (%v), want %q", ended, err, want)
	}
	if _, ok, _ := Read(s.dir); ok {
		t.Error("the status file still exists")
	}
	for _, stage := range []string{"control-plane first", "node"} {
		if !strings.Contains(s.log.String(), "coracle: "+stage+"\n") {
			t.Errorf("no stage %q in\n%s", stage, s.log)
		}
	}
}

// TestHangupEndsAllProcesses checks that a hangup of the terminal ends a
// cluster in the foreground.
func TestHangupEndsAllProcesses(t *testing.T) {
	if signal.Ignored(syscall.SIGHUP) {
		t.Skip("this test runs under nohup")
	}
	s := supervise(t, "works")
	s.until("both are ready", bothReady)
	if code := s.end(syscall.SIGHUP); code != 0 {
		t.Errorf("exit code %d\n%s", code, s.log)
	}
	ended, err := os.ReadFile(filepath.Join(s.dir, "ended"))
	if want := "node\ncontrol-plane\n"; err != nil || string(ended) != want {
		t.Errorf("ended: %q (%v), want %q", ended, err, want)
	}
}

func TestKilledProcessIsRestartedAlone(t *testing.T) {
	s := supervise(t, "works")
	before := s.until("both are ready", bothReady)
	for i := range 2 {
		if err := syscall.Kill(before.Processes[i].PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		after := s.until("it is restarted", func(st Status) bool {
			return bothReady(st) && st.Processes[i].PID != before.Processes[i].PID
		})
		p := after.Processes[i]
		if p.Restarts != 1 || !strings.Contains(p.LastCause, "signal 9") || p.LastEnd.IsZero() || string(p.Components) != `{"n":1}` {
			t.Errorf("after the kill of %s: %+v", p.Name, p)
		}
		if other := 1 - i; after.Processes[other].PID != before.Processes[other].PID {
			t.Errorf("%s was restarted as well", after.Processes[other].Name)
		}
		before = after
	}
	s.stop()
	if n := strings.Count(s.log.String(), "control-plane first"); n != 1 {
		t.Errorf("the control plane was started %d times as the first", n)
	}
}

func TestPanicIsTheCause(t *testing.T) {
	s := supervise(t, "panics")
	st := s.until("it waits for its next start", func(st Status) bool {
		return len(st.Processes) == 2 && st.Processes[1].Restarts >= 2 && !st.Processes[1].NextStart.IsZero()
	})
	if want := "panic: runtime error: index out of range [4] with length 0"; !strings.HasPrefix(st.Processes[1].LastCause, want) {
		t.Errorf("cause %q, want %q", st.Processes[1].LastCause, want)
	}
	if st.Ready {
		t.Errorf("a node that panics is ready: %+v", st)
	}
	if code := s.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestFaultIsTheCause checks that a fault in a file that became shorter is not
// reported as lack of memory.
func TestFaultIsTheCause(t *testing.T) {
	s := supervise(t, "faults")
	st := s.until("it is restarted", func(st Status) bool { return len(st.Processes) == 2 && st.Processes[1].Restarts >= 1 })
	if cause := st.Processes[1].LastCause; !strings.Contains(cause, "SIGBUS: bus error") || strings.Contains(cause, "MiB of memory") {
		t.Errorf("cause %q", cause)
	}
	s.stop()
}

// TestOutOfMemoryIsTheCause checks that the status names lack of memory as the
// cause.
func TestOutOfMemoryIsTheCause(t *testing.T) {
	s := supervise(t, "starves", "TEST_LOG="+filepath.Join(t.TempDir(), "log"))
	st := s.until("it is restarted", func(st Status) bool { return len(st.Processes) == 2 && st.Processes[1].Restarts >= 1 })
	for _, want := range []string{"fatal error: ", "memory", "it used up to ", " MiB of memory, with a limit of 64 MiB"} {
		if !strings.Contains(st.Processes[1].LastCause, want) {
			t.Errorf("cause %q, want %q in it", st.Processes[1].LastCause, want)
		}
	}
	s.stop()
}

func TestFailedFirstStartEndsAll(t *testing.T) {
	s := superviseIn(t, t.TempDir(), "fails", "deaf", nil)
	if code := s.wait(); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	if want := "coracle: the disk is full\ncoracle: of old logs\n"; !strings.HasSuffix(s.log.String(), want) {
		t.Errorf("the last lines are not %q:\n%s", want, s.log)
	}
}

// TestFailedStartIsUndoneUnderTheLock checks that a failed start is undone
// while its directory is locked, and that the processes do not get
// Arguments.Failed.
func TestFailedStartIsUndoneUnderTheLock(t *testing.T) {
	dir := t.TempDir()
	lock, err := os.Create(filepath.Join(dir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	s := superviseIn(t, dir, "fails", "deaf", []*os.File{lock}, "TEST_LOCK_FD=3", "TEST_FAILED=undoes "+dir, FailedEnv+"=secret")
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	if code := s.wait(); code != 3 {
		t.Errorf("exit code %d, want that of the subcommand", code)
	}
	undone, err := os.ReadFile(filepath.Join(dir, "undone"))
	if want := "--lock-fd=3|--|the disk is full\nof old logs|secret|locked"; err != nil || string(undone) != want {
		t.Errorf("got %q (%v), want %q\n%s", undone, err, want, s.log)
	}
}

func TestLongMessagesAreSkippedOrTruncated(t *testing.T) {
	s := superviseIn(t, t.TempDir(), "talks", "deaf", nil)
	if code := s.wait(); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	if !strings.Contains(s.log.String(), "coracle: after a long message\n") || !strings.Contains(s.log.String(), "coracle: bbbb") {
		t.Errorf("a message after a long one is lost: %d bytes of log", s.log.Len())
	}
}

// TestLateFailureIsRetried checks that a failure after the API server has
// served is reported and retried, although the node was never ready.
func TestLateFailureIsRetried(t *testing.T) {
	s := supervise(t, "failslate")
	st := s.until("the node is restarted", func(st Status) bool { return len(st.Processes) == 2 && st.Processes[1].Restarts >= 2 })
	if p := st.Processes[0]; !p.Ready || p.Restarts != 0 {
		t.Errorf("the control plane is %+v", p)
	}
	if want := "the disk is full"; st.Processes[1].LastCause != want {
		t.Errorf("cause %q, want %q", st.Processes[1].LastCause, want)
	}
	if code := s.stop(); code != 0 {
		t.Errorf("exit code %d\n%s", code, s.log)
	}
}

// TestFailedStartOfServedClusterIsRetried checks that a failed start of a
// cluster that has served is retried, except for failures that are final.
func TestFailedStartOfServedClusterIsRetried(t *testing.T) {
	s := superviseIn(t, t.TempDir(), "fails", "works", nil, "TEST_SERVED=1")
	st := s.until("the control plane is restarted", func(st Status) bool { return len(st.Processes) == 2 && st.Processes[0].Restarts >= 2 })
	if want := "the disk is full\nof old logs"; st.Processes[0].LastCause != want {
		t.Errorf("cause %q, want %q", st.Processes[0].LastCause, want)
	}
	if code := s.stop(); code != 0 {
		t.Errorf("exit code %d\n%s", code, s.log)
	}
	progress, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s = superviseIn(t, t.TempDir(), "isdamaged", "works", []*os.File{theirs}, "TEST_SERVED=1", ProgressEnv+"=3")
	if err := theirs.Close(); err != nil {
		t.Fatal(err)
	}
	told, err := io.ReadAll(progress)
	if err := errors.Join(err, progress.Close()); err != nil {
		t.Fatal(err)
	}
	if code := s.wait(); code != 1 || !strings.Contains(string(told), FailedStage+"the database is damaged\n") {
		t.Errorf("exit code %d, progress %q", code, told)
	}
}

// TestRemovedRunDirectory checks that processes are restarted after
// their run directory was removed.
func TestRemovedRunDirectory(t *testing.T) {
	s := supervise(t, "works")
	st := s.until("both are ready", bothReady)
	if err := os.RemoveAll(s.dir); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(st.Processes[1].PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.until("the node is restarted", func(st Status) bool { return bothReady(st) && st.Processes[1].Restarts == 1 })
	if code := s.stop(); code != 0 {
		t.Errorf("exit code %d\n%s", code, s.log)
	}
}

func TestProcessThatIgnoresStopIsKilled(t *testing.T) {
	s := supervise(t, "deaf")
	s.until("both are ready", bothReady)
	if code := s.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestProcessesOfKilledSupervisorEnd checks that the processes of a killed
// supervisor end, and that EndLeftover ends one that does not.
func TestProcessesOfKilledSupervisorEnd(t *testing.T) {
	s := supervise(t, "deaf")
	st := s.until("both are ready", bothReady)
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = s.cmd.Wait() // it was killed
	if err := EndLeftover(s.dir, patience); err != nil {
		t.Fatal(err)
	}
	for _, p := range st.Processes {
		if p.Running() {
			t.Errorf("%s still runs", p.Name)
		}
	}
	if _, err := os.Stat(filepath.Join(s.dir, "ended")); err == nil {
		t.Error("the control plane was asked to end after its supervisor was killed")
	}
}

// TestRunDirectoryHasOneSupervisor checks that a run directory has one
// supervisor, which OwnerOf finds without its status.
func TestRunDirectoryHasOneSupervisor(t *testing.T) {
	dir := t.TempDir()
	if _, ok, err := OwnerOf(dir); ok || err != nil {
		t.Errorf("an empty directory has an owner: %v, %v", ok, err)
	}
	owner := exec.Command(os.Args[0], "owns", dir)
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if o, ok, err := OwnerOf(dir); !ok || err != nil || o.PID != owner.Process.Pid || o.DataDir != "/data" {
		t.Errorf("the owner is %+v, %v, %v, want process %d", o, ok, err, owner.Process.Pid)
	}
	if f, err := lockRunDir(dir, "/other"); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("process %d runs the cluster", owner.Process.Pid)) {
		t.Errorf("a second owner: %v, %v", f, err)
	}
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = owner.Wait() // it was killed
	if _, ok, err := OwnerOf(dir); ok || err != nil {
		t.Errorf("a killed process is the owner: %v, %v", ok, err)
	}
}

// TestDamagedStatusIsIgnored checks that a damaged status does not keep a
// cluster from starting and ending.
func TestDamagedStatusIsIgnored(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(statusFile(dir), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := EndLeftover(dir, time.Second); err != nil {
		t.Error(err)
	}
}

func TestServiceManagerNotifications(t *testing.T) {
	manager := notifytest.New(t)
	s := supervise(t, "works", "NOTIFY_SOCKET="+manager.Socket, "WATCHDOG_USEC=20000")
	var told []string
	expect := func(until string) {
		t.Helper()
		for !slices.Contains(told, until) {
			told = append(told, strings.Split(manager.Told(), "\n")...)
		}
	}
	expect("READY=1")
	expect("WATCHDOG=1")
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	expect("STOPPING=1")
	s.wait()
}
