package host

import (
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/coracle-io/coracle/internal/sharedfile"
)

// A process that is suspended is continued, so that it can end by itself.
func TestStopOfASuspendedProcess(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	h := sharedfile.Holder{PID: cmd.Process.Pid}
	var err error
	if h.PIDStart, err = StartTime(h.PID); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := StopHolder(t.Context(), h, time.Minute); err != nil {
		t.Error(err)
	}
	<-ended //nolint:errcheck // a process that is ended by a signal has failed
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGTERM {
		t.Errorf("it ended with %v, want SIGTERM", cmd.ProcessState)
	}
}
