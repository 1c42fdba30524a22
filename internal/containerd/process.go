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

// process is a containerd that this process started or found running. It is
// held by a pidfd, so that signals never reach another process that was
// given the same id later.
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
	args := []string{"--config", r.configFile()}
	if r.config.Debug {
		args = append(args, "--log-level", "debug")
	}
	cmd := exec.Command(r.program("containerd"), args...)
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

// mayBeOurs tells whether a process can be one that this process or an earlier
// one has started. Any user's process, and any in a pod, can have our command
// line.
func (r *Runtime) mayBeOurs(pid int) bool {
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

// find returns the containerd that runs with our configuration file, started
// by an earlier process, or nil. It is known by its command line: the files in
// the run directory, a process id among them, are the first that others remove.
func (r *Runtime) find() (*process, error) {
	own := func(pid int) bool {
		args := commandLine(pid)
		return len(args) > 0 && filepath.Base(args[0]) == "containerd" && slices.Contains(args, r.configFile()) && r.mayBeOurs(pid)
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
		// Only now that the pidfd holds the process is what it runs final.
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

// stop ends the process, kindly at first, and returns when it is gone.
func (p *process) stop(patience time.Duration) {
	_ = unix.PidfdSendSignal(p.pidfd, unix.SIGTERM, nil, 0)
	select {
	case <-p.gone:
	case <-time.After(patience):
		_ = unix.PidfdSendSignal(p.pidfd, unix.SIGKILL, nil, 0)
		<-p.gone
	}
}

// close forgets the process, which must be gone.
func (p *process) close() { _ = unix.Close(p.pidfd) }

// waitGone returns when the process that pidfd refers to has ended.
func waitGone(pidfd int) {
	for {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, -1)
		if err != unix.EINTR {
			return
		}
	}
}

// commandLine is the arguments of a process, nil when there is no such one.
func commandLine(pid int) []string {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(content) == 0 {
		return nil
	}
	return strings.Split(strings.TrimRight(string(content), "\x00"), "\x00")
}
