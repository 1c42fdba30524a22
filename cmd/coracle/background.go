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

// File descriptors that the supervisor in the background inherits: a pipe for
// its progress, and the lock of the data directory, which is never free in
// between.
const (
	progressFD = 3
	lockFD     = 4
)

// background is a supervisor that was started in the background, as its parent
// sees it.
type background struct {
	prepared *prepared
	timeout  time.Duration
	started  time.Time
	process  *exec.Cmd
	stages   <-chan string // lines of progress; closed when the supervisor has ended its report
	logFile  string
	logStart os.FileInfo // the log file before the start
}

// runInBackground starts the supervisor in a session of its own and prints its
// progress until the cluster is ready, fails, or --timeout has passed. When ctx
// ends, it stops the supervisor.
func runInBackground(ctx context.Context, f *upFlags, p *prepared) error {
	b, err := startInBackground(p)
	if err != nil {
		return err
	}
	b.timeout = f.timeout
	exited := make(chan error, 1)
	go func() { exited <- b.process.Wait() }()
	return b.follow(ctx, exited)
}

// startInBackground starts the supervisor and hands the lock to it.
func startInBackground(p *prepared) (*background, error) {
	b := &background{prepared: p, logFile: host.LogFile(p.record.DataDir)}
	log, err := logging.OpenFile(b.logFile, nil)
	if err != nil {
		return nil, startError{err}
	}
	defer func() { _ = log.Close() }()
	if b.logStart, err = log.File().Stat(); err != nil {
		return nil, startError{err}
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	progress, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	arguments := p.supervisor()
	arguments.LockFD, arguments.Log = lockFD, b.logFile
	cmd := exec.Command(exe, arguments.List()...)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", processes.ProgressEnv, progressFD))
	cmd.Stdout, cmd.Stderr = log.File(), log.File()
	cmd.ExtraFiles = []*os.File{w, p.claim.Lock.File()}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	b.process, b.started = cmd, time.Now()
	err = cmd.Start()
	_ = w.Close() // the supervisor has its own
	if err != nil {
		_ = progress.Close()
		return nil, fmt.Errorf("start the cluster: %w", err)
	}
	host.HandOver(p.claim.Lock, p.record.Name, cmd.Process.Pid)
	b.stages = lines(progress)
	return b, nil
}

// lines returns a channel with the lines of r, which it closes at the end of r.
func lines(r io.ReadCloser) <-chan string {
	out := make(chan string)
	go func() {
		defer close(out)
		defer func() { _ = r.Close() }()
		for scanner := bufio.NewScanner(r); scanner.Scan(); {
			out <- scanner.Text()
		}
	}()
	return out
}

// follow prints the progress until the cluster is ready, fails, or the time is
// up. exited receives the end of the supervisor.
func (b *background) follow(ctx context.Context, exited <-chan error) error {
	rec := b.prepared.record
	var failed []string
	timeout := time.NewTimer(b.timeout)
	defer timeout.Stop()
	for {
		select {
		case stage, ok := <-b.stages:
			switch {
			case !ok:
				<-exited //nolint:errcheck // the stages or the log have the reason
				if len(failed) == 0 {
					failed = append(failed, lastError(b.logFile, b.logStart))
				}
				return startError{errors.New(strings.Join(failed, "\n"))}
			case strings.HasPrefix(stage, processes.FailedStage):
				failed = append(failed, strings.TrimPrefix(stage, processes.FailedStage))
			case stage == processes.ServesStage:
				b.prepared.serves = true
			case stage == processes.ReadyStage:
				fmt.Printf("Cluster %s is ready after %.1f s: %s\n", rec.Name, time.Since(b.started).Seconds(), rec.Server)
				if !b.prepared.served && rec.Node.Joined == nil {
					fmt.Printf("kubectl uses it: context %s of %s.\n", rec.Name, rec.Kubeconfig)
				}
				return nil
			default:
				fmt.Printf("  %5.2f s  %s\n", time.Since(b.started).Seconds(), stage)
			}
		case <-timeout.C:
			late := fmt.Errorf("the cluster is not ready after %v; it keeps trying: see %s, or end it with coracle stop --name=%s", b.timeout, b.logFile, rec.Name)
			return errors.Join(append([]error{late}, awaited(rec)...)...)
		case <-ctx.Done():
			return b.interrupt(exited)
		}
	}
}

// awaited returns what the processes of a cluster wait for, as coracle status shows it.
func awaited(rec host.Record) (all []error) {
	st, _, err := processes.Read(rec.RunDirectory())
	if err != nil {
		return []error{err}
	}
	for _, p := range st.Processes {
		for _, text := range currentProblems(p) {
			all = append(all, fmt.Errorf("%s: %s", p.Name, text))
		}
	}
	return all
}

// interrupt stops the supervisor and waits until it has ended. It returns what
// is left of the cluster as an error.
func (b *background) interrupt(exited <-chan error) error {
	process, name := b.process.Process, b.prepared.record.Name
	_ = process.Signal(syscall.SIGTERM)
	_ = process.Signal(syscall.SIGCONT) // a suspended process does not see SIGTERM
	late := time.AfterFunc(stopTimeout, func() { _ = process.Kill() })
	defer late.Stop()
	for stage := range b.stages {
		b.prepared.serves = b.prepared.serves || stage == processes.ServesStage
	}
	<-exited //nolint:errcheck // the log has the reason
	err := fmt.Errorf("%w before the cluster was ready", errInterrupted)
	if b.prepared.keeps() {
		err = fmt.Errorf("%w: it is stopped and keeps its data; coracle start %s starts it again, coracle down --name=%s removes it", err, name, name)
	}
	return startError{err}
}

// maxLastLines bounds how much of a log lastError reads, in bytes.
const maxLastLines = 64 << 10

// lastError returns the last error that a coracle command has written to the log
// since the file was in the state before.
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
	if os.SameFile(before, now) { // otherwise the log was rotated
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
