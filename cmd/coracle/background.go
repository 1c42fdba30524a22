package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coracle-io/coracle/internal/host"
)

// The process in the background tells its progress through a pipe, one line
// a stage; the last line is readyStage.
//
// It inherits the lock of the data directory in another descriptor, so that
// nobody else can have the cluster between the two.
const (
	progressEnv = "CORACLE_PROGRESS_FD"
	progressFD  = 3
	lockFD      = 4
	readyStage  = "ready"
)

// startedInBackground reports whether this process is the one that another
// `up` started to stay behind.
func startedInBackground() bool { return os.Getenv(progressEnv) != "" }

// runInherited runs the cluster that another `up` has prepared.
func runInherited(ctx context.Context, f *upFlags, registry host.Registry) error {
	lock, err := host.InheritData(lockFD, f.dataDir, f.told.Name)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Release() }()
	settings, err := host.ReadSettings(f.dataDir)
	if err != nil {
		return err
	}
	rec, err := registry.Get(settings.Name)
	if err != nil {
		return err
	}
	log, err := host.OpenLog(host.LogFile(f.dataDir), toStandardOutput)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	return runCluster(ctx, registry, rec, settings, log)
}

// toStandardOutput lets what is printed, as by a crash, go to a file.
func toStandardOutput(f *os.File) error {
	return errors.Join(unix.Dup3(int(f.Fd()), 1, 0), unix.Dup3(int(f.Fd()), 2, 0))
}

// reporter returns where progress goes, and what ends the reporting.
func reporter() (report func(string), done func()) {
	if !startedInBackground() {
		return func(stage string) { fmt.Fprintln(os.Stderr, "coracle:", stage) }, func() {}
	}
	unix.CloseOnExec(progressFD)
	pipe := os.NewFile(progressFD, "progress")
	report = func(stage string) { _, _ = fmt.Fprintln(pipe, stage) } // the reader may have gone; the cluster goes on
	return report, func() { _ = pipe.Close() }
}

// upInBackground starts the cluster in a process of its own session and
// prints its progress until it is ready.
func upInBackground(ctx context.Context, f *upFlags, p *prepared) error {
	rec := p.record
	logFile := host.LogFile(rec.DataDir)
	log, err := host.OpenLog(logFile, nil)
	if err != nil {
		return startError{err}
	}
	defer func() { _ = log.Close() }()
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(exe, "up", "--name="+rec.Name, "--data-dir="+rec.DataDir, "--foreground")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", progressEnv, progressFD))
	cmd.Stdout, cmd.Stderr = log.File(), log.File()
	cmd.ExtraFiles = []*os.File{w, p.claim.Lock.File()}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	started := time.Now()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the cluster: %w", err)
	}
	_ = w.Close()
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()

	stages := make(chan string)
	go func() {
		defer close(stages)
		for lines := bufio.NewScanner(r); lines.Scan(); {
			stages <- lines.Text()
		}
	}()
	timeout := time.NewTimer(f.timeout)
	defer timeout.Stop()
	for {
		select {
		case stage, ok := <-stages:
			switch {
			case !ok:
				<-exited //nolint:errcheck // the log says why it ended
				return startError{errors.New(lastError(logFile))}
			case stage == readyStage:
				fmt.Printf("Cluster %s is ready after %.1f s: %s\n", rec.Name, time.Since(started).Seconds(), rec.Server)
				return nil
			default:
				fmt.Printf("  %5.2f s  %s\n", time.Since(started).Seconds(), stage)
			}
		case <-timeout.C:
			return fmt.Errorf("the cluster is not ready after %v; it goes on trying: see %s, or end it with coracle stop --name=%s", f.timeout, logFile, rec.Name)
		case <-ctx.Done():
			_ = cmd.Process.Signal(syscall.SIGTERM)
			<-exited //nolint:errcheck // the log says why it ended
			return startError{ctx.Err()}
		}
	}
}

// lastError is the last line of the log that the command line wrote.
func lastError(logFile string) string {
	raw, err := os.ReadFile(logFile)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	for _, line := range slices.Backward(lines) {
		if after, ok := strings.CutPrefix(line, "coracle: "); ok {
			return after
		}
	}
	return "the cluster ended while it was starting: see " + logFile
}
