package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coracle-io/coracle/internal/processes"
	"github.com/coracle-io/coracle/internal/sharedfile"
)

// StartTime returns when a process was started, in clock ticks since boot
// (proc(5), field 22 of stat). Together with its id it identifies a process:
// ids are reused.
func StartTime(pid int) (uint64, error) {
	s, ok := processes.ReadStat(pid)
	if !ok {
		return 0, fmt.Errorf("process %d: %w", pid, os.ErrProcessDone)
	}
	return s.Start, nil
}

// Running reports whether the cluster's supervisor is alive.
func (rec Record) Running() bool { return rec.process().Running() }

func (rec Record) process() processes.Process {
	return processes.Process{PID: rec.PID, Start: rec.PIDStart}
}

// Suspended reports whether the cluster's supervisor is stopped by a signal or
// a debugger.
func (rec Record) Suspended() bool { return rec.process().Suspended() }

// Stop sends SIGTERM to the cluster's supervisor and waits until it has ended.
// After timeout it sends SIGKILL.
func (rec Record) Stop(ctx context.Context, timeout time.Duration) error {
	return end(ctx, rec.process(), unix.SIGTERM, timeout)
}

// Kill sends SIGKILL to the cluster's supervisor and waits until it has ended.
func (rec Record) Kill(ctx context.Context) error { return end(ctx, rec.process(), unix.SIGKILL, 0) }

// StopHolder ends the holder of a lock as Record.Stop does.
func StopHolder(ctx context.Context, h sharedfile.Holder, timeout time.Duration) error {
	return end(ctx, processes.Process{PID: h.PID, Start: h.PIDStart}, unix.SIGTERM, timeout)
}

func end(ctx context.Context, p processes.Process, signal unix.Signal, timeout time.Duration) error {
	if !p.Running() {
		return nil
	}
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		if errors.Is(err, unix.ESRCH) {
			return nil
		}
		return fmt.Errorf("watch process %d: %w", p.PID, err)
	}
	defer func() { _ = unix.Close(fd) }()
	if !p.Running() { // the id was reused before the descriptor was open
		return nil
	}
	if err := unix.PidfdSendSignal(fd, signal, nil, 0); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stop process %d: %w", p.PID, err)
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGCONT, nil, 0); err != nil && !errors.Is(err, syscall.ESRCH) { // a stopped process does not handle signals
		return fmt.Errorf("continue process %d: %w", p.PID, err)
	}
	if gone, err := waitGone(ctx, fd, timeout); gone || err != nil {
		return err
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("kill process %d: %w", p.PID, err)
	}
	if gone, err := waitGone(ctx, fd, 10*time.Second); gone || err != nil {
		return err
	}
	return fmt.Errorf("process %d does not end", p.PID)
}

// waitGone waits until the process of a pidfd ends: the descriptor then becomes
// readable (pidfd_open(2)). It returns false after timeout.
func waitGone(ctx context.Context, fd int, timeout time.Duration) (bool, error) {
	deadline := time.Now().Add(timeout)
	for {
		left := time.Until(deadline)
		if left <= 0 {
			return false, nil
		}
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(poll, int(min(left, 200*time.Millisecond).Milliseconds())+1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return false, err
		}
		if n > 0 {
			return true, nil
		}
		if err := ctx.Err(); err != nil {
			return false, err
		}
	}
}
