package containerd

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// process is a containerd that this process started or found running. A pidfd
// identifies it, so that signals never reach a process that reuses its id.
type process struct {
	pid   int
	pidfd int
	// gone is closed when the process has ended.
	gone chan struct{}
}

// start runs containerd in a session of its own with its output in the log
// file, so that it outlives this process and its terminal.
func (r *Runtime) start() (*process, error) {
	log, err := os.OpenFile(r.LogFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY|unix.O_NOFOLLOW, 0o640) // appending, for logging.Trim
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(r.config.program("containerd"), "--config", r.config.configFile())
	cmd.Stdout, cmd.Stderr = log, log
	pidfd := -1
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, PidFD: &pidfd}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting containerd (is the bundle in %s built? run: make bundle): %w", r.config.BundleDir, err)
	}
	if pidfd < 0 {
		if pidfd, err = unix.PidfdOpen(cmd.Process.Pid, 0); err != nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			return nil, fmt.Errorf("opening containerd's pidfd (Linux 5.3 or newer is needed): %w", err)
		}
	}
	p := &process{pid: cmd.Process.Pid, pidfd: pidfd, gone: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		close(p.gone)
	}()
	return p, nil
}

// mayBeOwn reports whether a process can be one that this process or an earlier
// one has started. Processes of other users and of pods may have our command
// line.
func (r *Runtime) mayBeOwn(pid int) bool {
	dir := fmt.Sprintf("/proc/%d", pid)
	info, err := os.Stat(dir)
	if err != nil {
		return false
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() {
		return false
	}
	namespace, err := os.Readlink(dir + "/ns/pid")
	if err != nil {
		return false
	}
	own, err := os.Readlink("/proc/self/ns/pid")
	return err == nil && namespace == own && len(r.groups(pid)) == 0
}

// find returns the containerd that an earlier process has started with our
// configuration file, or nil. It identifies it by its command line, because
// files in the run directory, such as one with its process id, may have been
// removed.
func (r *Runtime) find() (*process, error) {
	own := func(pid int) bool {
		args := commandLine(pid)
		return len(args) > 0 && filepath.Base(args[0]) == "containerd" && slices.Contains(args, r.config.configFile()) && r.mayBeOwn(pid)
	}
	pids, err := processes(own)
	if err != nil {
		return nil, err
	}
	for _, pid := range pids {
		pidfd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue
		}
		// What the process runs is certain only while the pidfd holds it.
		if !own(pid) {
			_ = unix.Close(pidfd)
			continue
		}
		p := &process{pid: pid, pidfd: pidfd, gone: make(chan struct{})}
		go func() {
			waitGone(pidfd)
			close(p.gone)
		}()
		return p, nil
	}
	return nil, nil
}

// stop sends SIGTERM to the process, and SIGKILL after timeout. It returns when
// the process has ended.
func (p *process) stop(timeout time.Duration) {
	_ = unix.PidfdSendSignal(p.pidfd, unix.SIGTERM, nil, 0)
	select {
	case <-p.gone:
	case <-time.After(timeout):
		_ = unix.PidfdSendSignal(p.pidfd, unix.SIGKILL, nil, 0)
		<-p.gone
	}
}

// close releases the pidfd of a process that has ended.
func (p *process) close() { _ = unix.Close(p.pidfd) }

// waitGone returns when the process of a pidfd has ended.
func waitGone(pidfd int) {
	for {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, -1)
		if err != unix.EINTR {
			return
		}
	}
}

// commandLine returns the arguments of a process, or nil if there is none.
func commandLine(pid int) []string {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(content) == 0 {
		return nil
	}
	return strings.Split(strings.TrimRight(string(content), "\x00"), "\x00")
}
