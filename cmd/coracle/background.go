package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/coracle-io/coracle/internal/host"
	"github.com/coracle-io/coracle/internal/logging"
	"github.com/coracle-io/coracle/internal/processes"
)

// Files that the supervisor in the background inherits: a pipe for its
// stages, and the lock of the data directory, so that nobody else can have the
// cluster between the two.
const (
	progressFD = 3
	lockFD     = 4
)

// upInBackground starts the cluster in a process of its own session and
// prints its progress until it is ready.
func upInBackground(ctx context.Context, f *upFlags, p *prepared) error {
	rec := p.record
	logFile := host.LogFile(rec.DataDir)
	log, err := logging.OpenFile(logFile, nil)
	if err != nil {
		return startError{err}
	}
	defer func() { _ = log.Close() }()
	before, err := log.File().Stat()
	if err != nil {
		return startError{err}
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	arguments := p.supervisor()
	arguments.LockFD, arguments.Log = lockFD, logFile
	cmd := exec.Command(exe, arguments.List()...)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", processes.ProgressEnv, progressFD))
	cmd.Stdout, cmd.Stderr = log.File(), log.File()
	cmd.ExtraFiles = []*os.File{w, p.claim.Lock.File()}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	started := time.Now()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the cluster: %w", err)
	}
	host.HandTo(p.claim.Lock, rec.Name, cmd.Process.Pid)
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
	var failed []string
	timeout := time.NewTimer(f.timeout)
	defer timeout.Stop()
	for {
		select {
		case stage, ok := <-stages:
			switch {
			case !ok:
				<-exited //nolint:errcheck // it has said why it ended, or the log does
				if len(failed) == 0 {
					failed = append(failed, lastError(logFile, before))
				}
				return startError{errors.New(strings.Join(failed, "\n"))}
			case strings.HasPrefix(stage, processes.FailedStage):
				failed = append(failed, strings.TrimPrefix(stage, processes.FailedStage))
			case stage == processes.ServesStage:
				p.serves = true
			case stage == processes.ReadyStage:
				fmt.Printf("Cluster %s is ready after %.1f s: %s\n", rec.Name, time.Since(started).Seconds(), rec.Server)
				return nil
			default:
				fmt.Printf("  %5.2f s  %s\n", time.Since(started).Seconds(), stage)
			}
		case <-timeout.C:
			return fmt.Errorf("the cluster is not ready after %v; it goes on trying: see %s, or end it with coracle stop --name=%s", f.timeout, logFile, rec.Name)
		case <-ctx.Done():
			_ = cmd.Process.Signal(syscall.SIGTERM)
			_ = cmd.Process.Signal(syscall.SIGCONT) // one that is suspended could not hear
			late := time.AfterFunc(stopPatience, func() { _ = cmd.Process.Kill() })
			defer late.Stop()
			for stage := range stages {
				p.serves = p.serves || stage == processes.ServesStage
			}
			<-exited //nolint:errcheck // the log says why it ended
			err := fmt.Errorf("%w before the cluster was ready", errInterrupted)
			if p.serves || !p.claim.New() {
				err = fmt.Errorf("%w: it is stopped and keeps its data; coracle up --name=%s starts it again, coracle down --name=%s takes it away", err, rec.Name, rec.Name)
			}
			return startError{err}
		}
	}
}

// maxLastLines bounds what is read of a log for its last error, in bytes.
const maxLastLines = 64 << 10

// lastError is the last line that the command line wrote to the log since the
// file was as before.
func lastError(logFile string, before os.FileInfo) string {
	f, err := os.Open(logFile)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = f.Close() }()
	now, err := f.Stat()
	if err != nil {
		return err.Error()
	}
	begin := max(0, now.Size()-maxLastLines)
	if os.SameFile(before, now) { // else it was full, and is a new one
		begin = max(begin, before.Size())
	}
	raw, err := io.ReadAll(io.NewSectionReader(f, begin, maxLastLines))
	if err != nil {
		return err.Error()
	}
	for _, line := range slices.Backward(strings.Split(string(raw), "\n")) {
		if after, ok := strings.CutPrefix(line, "coracle: "); ok {
			return after
		}
	}
	return "the cluster ended while it was starting: see " + logFile
}
