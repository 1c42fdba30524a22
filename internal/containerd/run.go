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
	// stopTimeout is how long containerd may take to end on SIGTERM.
	stopTimeout = 10 * time.Second
	// containerd is restarted after a crash: after firstBackoff, which doubles
	// with each further crash up to maxBackoff, and is reset after stableAfter.
	firstBackoff = 100 * time.Millisecond
	maxBackoff   = 10 * time.Second
	stableAfter  = time.Minute
	// answerTimeout is how long a running containerd may take to answer.
	answerTimeout = 5 * time.Second
	// healthPeriod is the interval at which a running containerd is checked.
	// unresponsive is the condition that is reported if it does not answer.
	healthPeriod = 10 * time.Second
	unresponsive = "Unresponsive"
	// logPeriod is the interval at which the size of containerd's log is
	// checked.
	logPeriod = 10 * time.Second
	// condition is reported from the end of a containerd until the next one
	// answers.
	condition     = "Ended"
	orphansFailed = "Ending the containers that containerd has lost failed"
	// starting is reported from the start of a containerd until it answers and the
	// bundled images are there.
	starting = "Starting"
)

// Run starts containerd, or adopts the one that an earlier process, which was
// killed, has started, and restarts it whenever it ends. Ready is closed when
// it first answers. When ctx ends, Run stops containerd and returns nil.
// Containers keep running; the next Run, in this process or another, finds
// them. Run returns an error if containerd cannot be started at all, for
// example because the disk is full, and after it has moved damaged databases
// aside: the next Run then starts without them.
func (r *Runtime) Run(ctx context.Context) error {
	log := klog.FromContext(ctx)
	changed, err := r.prepare()
	if err != nil {
		return err
	}
	supervise.Go(ctx, func() { r.boundLog(ctx) })
	supervise.Go(ctx, func() { r.reportUnresponsive(ctx) })
	current, err := r.adopt(ctx, changed)
	if err != nil {
		return err
	}
	backoff := firstBackoff
	announced := false
	known := &databases{runtime: r}
	known.starting()
	for {
		started, own := time.Now(), time.Time{}
		var before []string // the network namespaces from before containerd starts
		if current == nil {
			own = started
			if before, err = (namespaces{r}).list(); err != nil {
				log.Error(err, "Looking for network namespaces failed")
			}
			if current, err = r.launch(ctx, known); err != nil {
				return err
			}
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
			if err := r.killOrphanedShims(ctx, (tasks{r}).isGone); err != nil {
				log.Error(err, orphansFailed)
			}
			if err := (namespaces{r}).removeLost(ctx, before); err != nil {
				log.Error(err, "Removing network namespaces of lost sandboxes failed, will try again when containerd starts again")
			}
			supervise.Go(watched, func() { (&leases{runtime: r, started: own}).bound(watched) })
			supervise.Go(watched, func() { (tasks{r}).finishRemovals(watched) })
		}
		select {
		case <-ctx.Done():
			endWatch()
			current.stop(stopTimeout)
			current.close()
			return nil
		case <-current.gone:
			known.ended()
		case <-lost:
			log.Error(nil, "containerd's socket was removed, restarting containerd", "socket", r.config.socket())
			current.stop(stopTimeout)
		}
		endWatch()
		current.close()
		current = nil
		if time.Since(started) > stableAfter {
			backoff = firstBackoff
		}
		last := lastLine(r.LogFile())
		supervise.Report(ctx, condition, fmt.Errorf("containerd ended and is being restarted, see %s: %s", r.LogFile(), last))
		log.Error(nil, "containerd ended, restarting it", "in", backoff, "log", r.LogFile(), "last", last)
		if !supervise.Pause(ctx, backoff) {
			return nil
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

// launch starts containerd, once what an earlier one has left is removed. If its
// databases are damaged, launch moves them aside and returns an error.
func (r *Runtime) launch(ctx context.Context, known *databases) (*process, error) {
	log := klog.FromContext(ctx)
	if _, err := r.prepare(); err != nil { // the run directory may have been removed
		return nil, err
	}
	if err := known.check(); errors.Is(err, errDamaged) {
		return nil, r.moveAside(ctx, err)
	} else if err != nil {
		log.Error(err, "Checking containerd's databases failed, starting it with them")
	}
	if err := r.killOrphanedShims(ctx, (tasks{r}).isLost); err != nil {
		log.Error(err, orphansFailed)
	}
	if err := (tasks{r}).removeLost(); err != nil {
		log.Error(err, "Removing what is left of deleted containers failed")
	}
	known.starting()
	p, err := r.start()
	if err == nil {
		log.V(2).Info("Started containerd", "pid", p.pid, "config", r.config.configFile())
	}
	return p, err
}

// firstSocketPeriod is the interval at which containerd's socket is checked
// until it exists, and socketPeriod the one from then on.
const (
	firstSocketPeriod = 10 * time.Millisecond
	socketPeriod      = time.Second
)

// socketLost returns a channel that is closed when the socket was removed:
// clients cannot reach containerd any more.
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
			switch _, err := os.Lstat(r.config.socket()); {
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

// boundLog limits the size of containerd's log until ctx ends. containerd
// writes the file itself, because it outlives this process.
func (r *Runtime) boundLog(ctx context.Context) {
	supervise.Repeat(ctx, logPeriod, func() {
		if err := logging.Trim(r.LogFile()); err != nil {
			klog.FromContext(ctx).Error(err, "Limiting the size of containerd's log failed, will try again", "log", r.LogFile())
		}
	})
}

// reportUnresponsive reports a containerd that no longer answers, for example
// because it is suspended or waits for its disk, until ctx ends.
func (r *Runtime) reportUnresponsive(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-r.ready:
	}
	supervise.Every(ctx, healthPeriod, func() {
		err := r.ask(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			err = fmt.Errorf("containerd does not answer at %s within %v: check whether it is suspended, and see %s", r.config.socket(), answerTimeout, r.LogFile())
		}
		supervise.Report(ctx, unresponsive, err)
	})
}

// prepare creates the directories and writes the configuration. changed reports
// whether the configuration was different.
func (r *Runtime) prepare() (changed bool, err error) {
	for _, dir := range []string{r.config.DataDir, r.config.RunDir, r.config.shimSocketDir(), r.config.CNIConfDir} {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return false, err
		}
	}
	restrict, err := lacksSysResource()
	if err != nil {
		return false, err
	}
	if err := r.writeRegistries(); err != nil {
		return false, fmt.Errorf("containerd's hosts files: %w", err)
	}
	dropIns, err := r.dropIns()
	if err != nil {
		return false, fmt.Errorf("containerd's drop-in files: %w", err)
	}
	content := []byte(r.render(restrict, dropIns))
	before, err := os.ReadFile(r.config.configFile())
	if err == nil && bytes.Equal(before, content) {
		return false, nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	return true, os.WriteFile(r.config.configFile(), content, 0o644)
}

// adopt returns the containerd that still runs. If its program or configuration
// is outdated, or it does not answer, adopt stops it, which leaves the
// containers running, and returns nil.
func (r *Runtime) adopt(ctx context.Context, changed bool) (*process, error) {
	p, err := r.find()
	if p == nil || err != nil {
		return nil, err
	}
	if changed || !sameProgram(p.pid, r.config.program("containerd")) || !r.answers(ctx) {
		p.stop(stopTimeout)
		p.close()
		return nil, nil
	}
	klog.FromContext(ctx).Info("Adopted the running containerd", "pid", p.pid)
	return p, nil
}

// answers reports whether the CRI answers within answerTimeout.
func (r *Runtime) answers(ctx context.Context) bool {
	if err := r.ask(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "The running containerd does not answer, restarting it", "socket", r.config.socket())
		return false
	}
	return true
}

// ask returns when the CRI answers, or an error after answerTimeout.
func (r *Runtime) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	conn, err := r.dial(ctx)
	if err != nil {
		return err
	}
	return conn.Close()
}

// sameProgram reports whether the process runs the file that path names now.
func sameProgram(pid int, path string) bool {
	running, err := os.Stat(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return false
	}
	wanted, err := os.Stat(path)
	return err == nil && os.SameFile(running, wanted)
}

// awaitReady waits until the CRI answers and, if images is set, the bundled
// images are imported. It returns false if the process or ctx has ended, or the
// socket was removed. It reports what it waits for.
func (r *Runtime) awaitReady(ctx context.Context, p *process, lost <-chan struct{}, images bool) bool {
	supervise.Report(ctx, starting, fmt.Errorf("waiting for containerd (process %d) to answer at %s, see %s", p.pid, r.config.socket(), r.LogFile()))
	defer supervise.Report(ctx, starting, nil)
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
	supervise.Report(ctx, starting, fmt.Errorf("waiting for the import of the images in %s", r.config.BundleDir))
	for backoff := firstBackoff; ; backoff = min(2*backoff, maxBackoff) {
		err := r.loadImages(ctx, cri)
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		klog.FromContext(ctx).Error(err, "Loading the bundled images failed; trying again", "in", backoff)
		supervise.Report(ctx, starting, fmt.Errorf("waiting for the import of the images in %s, which fails: %w", r.config.BundleDir, err))
		if !supervise.Pause(ctx, backoff) {
			return false
		}
	}
}

// lastLine returns the last line of a log, which may say why its writer ended.
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
