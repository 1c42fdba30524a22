package containerd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/logging"
	"github.com/coracle-io/coracle/internal/supervise"
)

const (
	// stopPatience is how long containerd may take to end on SIGTERM.
	stopPatience = 10 * time.Second
	// A crash is answered by a restart after firstBackoff, doubled for each
	// further one up to maxBackoff, and forgotten after stableAfter.
	firstBackoff = 100 * time.Millisecond
	maxBackoff   = 10 * time.Second
	stableAfter  = time.Minute
	// adoptPatience is how long a containerd that was found running may take
	// to answer.
	adoptPatience = 5 * time.Second
	// askPeriod is how often one that runs is asked whether it answers, and
	// silence is the condition that is shown if it does not.
	askPeriod = 10 * time.Second
	silence   = "Silent"
	// logPeriod is how often the size of containerd's log is looked at.
	logPeriod = 10 * time.Second
	// condition is shown from the end of a containerd until another answers.
	condition = "Ended"
	strays    = "Containers that containerd does not know are not ended"
)

// Run starts containerd, or adopts the one that a killed predecessor of this
// process left, and restarts it whenever it ends. Ready is closed when it
// first answers. When ctx ends, Run stops containerd and returns nil;
// containers go on and are found again by the next Run, in this process or
// another. It returns an error where containerd cannot be started at all, as
// on a full disk.
func (r *Runtime) Run(ctx context.Context) error {
	log := klog.FromContext(ctx)
	changed, err := r.prepare()
	if err != nil {
		return err
	}
	supervise.Go(ctx, func() { r.boundLog(ctx) })
	supervise.Go(ctx, func() { r.reportSilence(ctx) })
	current, err := r.adopt(ctx, changed)
	if err != nil {
		return err
	}
	backoff := firstBackoff
	announced := false
	for {
		started := time.Now()
		if current == nil {
			if _, err := r.prepare(); err != nil { // again: others may have removed the run directory
				return err
			}
			if err := r.killStrays(ctx); err != nil {
				log.Error(err, strays)
			}
			if current, err = r.start(); err != nil {
				return err
			}
			log.V(2).Info("Started containerd", "pid", current.pid, "config", r.configFile())
		}
		watched, endWatch := context.WithCancel(ctx)
		lost := r.socketLost(watched)
		if r.awaitReady(ctx, current, lost, !announced) {
			supervise.Report(ctx, condition, nil)
			if !announced {
				log.Info("Container runtime is ready", "endpoint", r.Endpoint(), "took", time.Since(started).Round(time.Millisecond))
				r.answered.Do(func() { close(r.ready) })
			}
			announced = true
			if err := r.killStrays(ctx); err != nil {
				log.Error(err, strays)
			}
		}
		select {
		case <-ctx.Done():
			endWatch()
			current.stop(stopPatience)
			current.close()
			return nil
		case <-current.gone:
		case <-lost:
			log.Error(nil, "containerd's socket is gone; starting containerd again", "socket", r.socket())
			current.stop(stopPatience)
		}
		endWatch()
		current.close()
		current = nil
		if time.Since(started) > stableAfter {
			backoff = firstBackoff
		}
		last := lastLine(r.LogFile())
		supervise.Report(ctx, condition, fmt.Errorf("containerd ended and is started again, see %s: %s", r.LogFile(), last))
		log.Error(nil, "containerd ended; starting it again", "in", backoff, "log", r.LogFile(), "last", last)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(backoff):
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

// firstSocketPeriod is how often containerd's socket is looked for until it is
// there, and socketPeriod from then on.
const (
	firstSocketPeriod = 10 * time.Millisecond
	socketPeriod      = time.Second
)

// socketLost returns a channel that is closed when the socket has been removed
// after it was there: nobody can reach containerd any more then.
func (r *Runtime) socketLost(ctx context.Context) <-chan struct{} {
	lost := make(chan struct{})
	supervise.Go(ctx, func() {
		seen := false
		ticker := time.NewTicker(firstSocketPeriod)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			switch _, err := os.Lstat(r.socket()); {
			case err == nil && !seen:
				seen = true
				ticker.Reset(socketPeriod)
			case seen && errors.Is(err, os.ErrNotExist):
				close(lost)
				return
			}
		}
	})
	return lost
}

// boundLog keeps containerd's log from growing without end until ctx ends.
// containerd outlives this process, so nobody but the file takes its lines.
func (r *Runtime) boundLog(ctx context.Context) {
	ticker := time.NewTicker(logPeriod)
	defer ticker.Stop()
	for {
		if err := logging.Trim(r.LogFile()); err != nil {
			klog.FromContext(ctx).Error(err, "containerd's log is not bounded, will try again", "log", r.LogFile())
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// reportSilence shows, until ctx ends, that a containerd which has answered
// does so no longer, as one that is suspended or waits for its disk.
func (r *Runtime) reportSilence(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-r.ready:
	}
	ticker := time.NewTicker(askPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		err := r.ask(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			err = fmt.Errorf("containerd does not answer at %s within %v: see whether it is suspended, and %s", r.socket(), adoptPatience, r.LogFile())
		}
		supervise.Report(ctx, silence, err)
	}
}

// prepare makes the folders and writes the configuration; changed tells that
// it was another one before.
func (r *Runtime) prepare() (changed bool, err error) {
	for _, dir := range []string{r.config.DataDir, r.config.RunDir, r.shimSocketDir(), r.config.CNIConfDir} {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return false, err
		}
	}
	restrict, err := lacksSysResource()
	if err != nil {
		return false, err
	}
	content := []byte(r.render(restrict))
	before, err := os.ReadFile(r.configFile())
	if err == nil && bytes.Equal(before, content) {
		return false, nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	return true, os.WriteFile(r.configFile(), content, 0o644)
}

// adopt returns the containerd that still runs, unless its program or its
// configuration is no longer the wanted one, or it does not answer, as when its
// socket was removed: then it is stopped, which does not touch the containers.
func (r *Runtime) adopt(ctx context.Context, changed bool) (*process, error) {
	p, err := r.find()
	if p == nil || err != nil {
		return nil, err
	}
	if changed || !sameProgram(p.pid, r.program("containerd")) || !r.answers(ctx) {
		p.stop(stopPatience)
		p.close()
		return nil, nil
	}
	klog.FromContext(ctx).Info("Adopted the running containerd", "pid", p.pid)
	return p, nil
}

// answers tells whether the CRI answers within adoptPatience.
func (r *Runtime) answers(ctx context.Context) bool {
	if err := r.ask(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "The running containerd does not answer; starting it anew", "socket", r.socket())
		return false
	}
	return true
}

// ask returns once the CRI answers, or after adoptPatience an error.
func (r *Runtime) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, adoptPatience)
	defer cancel()
	conn, err := r.dial(ctx)
	if err != nil {
		return err
	}
	return conn.Close()
}

// sameProgram tells whether the process runs the file that path names now.
func sameProgram(pid int, path string) bool {
	running, err := os.Stat(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return false
	}
	wanted, err := os.Stat(path)
	return err == nil && os.SameFile(running, wanted)
}

// awaitReady returns true when the CRI answers and, with images, the bundled
// ones are loaded, false when the process or ctx ended or the socket was lost first.
func (r *Runtime) awaitReady(ctx context.Context, p *process, lost <-chan struct{}, images bool) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	supervise.Go(ctx, func() {
		select {
		case <-p.gone:
			cancel()
		case <-lost:
			cancel()
		case <-ctx.Done():
		}
	})
	cri, err := r.dial(ctx)
	if err != nil {
		return false
	}
	defer func() { _ = cri.Close() }()
	if !images {
		return true
	}
	for backoff := firstBackoff; ; backoff = min(2*backoff, maxBackoff) {
		err := r.loadImages(ctx, cri)
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		klog.FromContext(ctx).Error(err, "Loading the bundled images failed; trying again", "in", backoff)
		select {
		case <-ctx.Done():
			return false
		case <-time.After(backoff):
		}
	}
}

// lastLine is the last line of a log, for telling why its writer ended.
func lastLine(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	const window = 4 << 10
	info, err := f.Stat()
	if err != nil {
		return ""
	}
	tail := make([]byte, min(info.Size(), window))
	if _, err := f.ReadAt(tail, info.Size()-int64(len(tail))); err != nil {
		return ""
	}
	tail = bytes.TrimRight(tail, "\n")
	return string(tail[bytes.LastIndexByte(tail, '\n')+1:])
}
