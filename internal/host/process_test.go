package host

import (
	"bufio"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"
)

const headlessEnv = "TEST_HEADLESS"

// headless ends the first thread of this process, and lives on.
func headless() {
	ended := make(chan struct{})
	for {
		go func() {
			runtime.LockOSThread()
			if syscall.Gettid() == syscall.Getpid() {
				close(ended)
				_, _, _ = syscall.Syscall(syscall.SYS_EXIT, 0, 0, 0)
			}
			select {} // the next one is another thread
		}()
		select {
		case <-ended:
			return
		case <-time.After(time.Millisecond):
		}
	}
}

// A process whose first thread has ended still has its files and ports.
func TestAProcessWithoutItsFirstThreadRuns(t *testing.T) {
	if os.Getenv(headlessEnv) != "" {
		headless()
		_, _ = os.Stdout.WriteString("ended\n")
		<-time.After(time.Minute) // it is killed before
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestAProcessWithoutItsFirstThreadRuns$")
	cmd.Env = append(os.Environ(), headlessEnv+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill() }()
	start, err := StartTime(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	rec := Record{PID: cmd.Process.Pid, PIDStart: start}
	if !rec.Running() {
		t.Error("it is said not to run")
	}
	if err := rec.Stop(t.Context(), 10*time.Second); err != nil {
		t.Error(err)
	}
	if rec.Running() {
		t.Error("it runs after its end")
	}
}
