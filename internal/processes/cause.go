package processes

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// end holds how a process ended, and the causes that are known.
type end struct {
	state  *os.ProcessState
	failed string // what it reported itself
	crash  string // what the Go runtime reported
	oom    string // what the kernel reported about the lack of memory
	limit  int64  // its memory limit, in bytes; 0 or math.MaxInt64 for none
}

// runtimeExit is the exit code of a process that Go's runtime ends.
const runtimeExit = 2

// cause returns why a process ended, according to the process, the Go runtime
// or the kernel.
func (e end) cause() string {
	switch status, _ := e.state.Sys().(syscall.WaitStatus); {
	case status.Signaled() && status.Signal() == syscall.SIGKILL && e.oom != "":
		return "killed by the kernel for lack of memory (" + e.oom + "); " + e.memory()
	case status.Signaled() && status.Signal() == syscall.SIGKILL:
		return "killed by signal 9, as by kill -9; " + e.memory()
	case status.Signaled():
		return fmt.Sprintf("killed by signal %d (%v)", int(status.Signal()), status.Signal())
	case e.failed != "":
		return e.failed
	case strings.Contains(e.crash, "memory"):
		return e.crash + "; " + e.memory()
	case e.crash != "":
		return e.crash
	case status.ExitStatus() == runtimeExit:
		return "ended by the Go runtime (exit code 2), see the cluster's log; " + e.memory()
	default:
		return fmt.Sprintf("it exited with code %d", status.ExitStatus())
	}
}

// memory returns the most memory that the process used, and its limit.
func (e end) memory() string {
	usage, _ := e.state.SysUsage().(*syscall.Rusage)
	text := fmt.Sprintf("it used up to %d MiB of memory", usage.Maxrss>>10) // in KiB, getrusage(2)
	if e.limit > 0 && e.limit < math.MaxInt64 {
		text += fmt.Sprintf(", with a limit of %d MiB for its heap", e.limit>>20)
	}
	return text
}

// oomKillCount returns how many processes the kernel has killed for lack of
// memory, of the machine or of a control group. It returns 0 if that is
// unknown.
func oomKillCount() int {
	f, err := os.Open("/proc/vmstat")
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), "oom_kill "); ok {
			n, _ := strconv.Atoi(value)
			return n
		}
	}
	return 0
}

// maxRecords bounds how many records of the kernel's log are read.
const maxRecords = 1 << 16

// oomKillReport returns what the kernel reports about the kill of a process for
// lack of memory, or "". before is the oomKillCount while the process lived.
func oomKillReport(pid, before int) string {
	if oomKillCount() == before {
		return ""
	}
	const unnamed = "it killed a process of this machine at that time"
	fd, err := syscall.Open("/dev/kmsg", syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return unnamed
	}
	defer func() { _ = syscall.Close(fd) }()
	report, whole := killReport(func(record []byte) (int, error) { return syscall.Read(fd, record) }, pid)
	if report == "" && (!whole || !inInitialNamespace()) {
		return unnamed
	}
	return report
}

// killReport returns the last record of the kernel's log about the kill of a
// process for lack of memory, or "". whole reports that no record was lost.
func killReport(read func(record []byte) (int, error), pid int) (report string, whole bool) {
	whole = true
	record := make([]byte, 8<<10)
	for range maxRecords {
		n, err := read(record)
		if errors.Is(err, syscall.EPIPE) { // older records were overwritten
			whole = false
			continue
		}
		if err != nil || n <= 0 {
			return report, whole && (err == nil || errors.Is(err, syscall.EAGAIN))
		}
		_, text, _ := strings.Cut(string(record[:n]), ";")
		if strings.Contains(text, fmt.Sprintf("Killed process %d (", pid)) {
			report, _, _ = strings.Cut(text, "\n")
		}
	}
	return report, false
}

// inInitialNamespace reports whether this process is in the initial PID namespace,
// whose process ids the kernel's log has.
func inInitialNamespace() bool {
	const first = "pid:[4026531836]" // PROC_PID_INIT_INO
	name, err := os.Readlink("/proc/self/ns/pid")
	return err == nil && name == first
}

// isCause reports whether a line of Go's runtime contains the reason why the
// program ended. The crash report of a fault, such as in a mapped file that
// became shorter, contains only the signal.
func isCause(line string) bool {
	for _, start := range []string{"panic: ", "fatal error: ", "unexpected fault address ", "[signal "} {
		if strings.HasPrefix(line, start) {
			return true
		}
	}
	return false
}

// maxReport bounds how much of a crash report or a log is read, in bytes.
const maxReport = 32 << 20

// causeLine returns the first line of a crash report, or of a log from an
// offset, in which Go's runtime says what happened, or "".
func causeLine(path string, from int64) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err != nil || info.Size() < from {
		from = 0 // the log was rotated
	}
	lines := bufio.NewReader(io.NewSectionReader(f, from, maxReport))
	for {
		line, more, err := lines.ReadLine()
		if text := string(line); isCause(text) {
			return text
		}
		for more && err == nil { // skip the rest of a long line
			_, more, err = lines.ReadLine()
		}
		if err != nil {
			return ""
		}
	}
}
