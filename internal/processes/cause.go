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

// end is what is known of the end of a process.
type end struct {
	state  *os.ProcessState
	failed string // what it said itself
	crash  string // what the Go runtime said
	oom    string // what the kernel said about the want of memory
	limit  int64  // what it kept its memory to, in bytes; 0 or math.MaxInt64 is nothing
}

// runtimeExit is the exit code by which Go's runtime ends a process that cannot
// go on.
const runtimeExit = 2

// cause says why a process ended: what it said itself, what the runtime said,
// or what the kernel says.
func (e end) cause() string {
	switch status, _ := e.state.Sys().(syscall.WaitStatus); {
	case status.Signaled() && status.Signal() == syscall.SIGKILL && e.oom != "":
		return "killed by the kernel for want of memory (" + e.oom + "); " + e.memory()
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
		return fmt.Sprintf("it ended by itself with exit code %d", status.ExitStatus())
	}
}

// memory says what the process used at most, and what it kept to.
func (e end) memory() string {
	usage, _ := e.state.SysUsage().(*syscall.Rusage)
	text := fmt.Sprintf("it had used up to %d MiB of memory", usage.Maxrss>>10) // in KiB, getrusage(2)
	if e.limit > 0 && e.limit < math.MaxInt64 {
		text += fmt.Sprintf(", with a limit of %d MiB for its heap", e.limit>>20)
	}
	return text
}

// oomKills is how many processes the kernel has ended for want of memory, of
// the machine or of a control group; 0 if that cannot be told.
func oomKills() int {
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

// maxRecords bounds how much of the kernel's log is read.
const maxRecords = 1 << 16

// oomReport is what the kernel says of the end of a process for want of
// memory; "" if nothing. before is what oomKills was when it lived.
func oomReport(pid, before int) string {
	if oomKills() == before {
		return ""
	}
	const unnamed = "it ended a process of this machine for that meanwhile"
	fd, err := syscall.Open("/dev/kmsg", syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return unnamed
	}
	defer func() { _ = syscall.Close(fd) }()
	report, whole := killReport(func(record []byte) (int, error) { return syscall.Read(fd, record) }, pid)
	if report == "" && (!whole || !kernelNumbers()) {
		return unnamed
	}
	return report
}

// killReport is the last record of the kernel's log that says that a process
// was killed for want of memory; "" if there is none. whole says that no record
// was lost.
func killReport(read func(record []byte) (int, error), pid int) (report string, whole bool) {
	whole = true
	record := make([]byte, 8<<10)
	for range maxRecords {
		n, err := read(record)
		if errors.Is(err, syscall.EPIPE) { // older ones were overwritten meanwhile
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

// kernelNumbers says that processes have the numbers here by which the kernel's
// log calls them: those of the first namespace.
func kernelNumbers() bool {
	const first = "pid:[4026531836]" // PROC_PID_INIT_INO
	name, err := os.Readlink("/proc/self/ns/pid")
	return err == nil && name == first
}

// saysCause reports whether Go's runtime says by a line why it ends. Of a fault,
// as in a mapped file that became shorter, a crash report has the signal alone.
func saysCause(line string) bool {
	for _, start := range []string{"panic: ", "fatal error: ", "unexpected fault address ", "[signal "} {
		if strings.HasPrefix(line, start) {
			return true
		}
	}
	return false
}

// maxReport bounds what is read of a crash report or a log, in bytes.
const maxReport = 32 << 20

// lineOf is the first line of a crash report, or of a log from a place in it,
// by which Go's runtime says what happened; "" if there is none.
func lineOf(path string, from int64) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err != nil || info.Size() < from {
		from = 0 // it was full, and this is a new one
	}
	lines := bufio.NewReader(io.NewSectionReader(f, from, maxReport))
	for {
		line, more, err := lines.ReadLine()
		if text := string(line); saysCause(text) {
			return text
		}
		for more && err == nil { // the rest of a long line
			_, more, err = lines.ReadLine()
		}
		if err != nil {
			return ""
		}
	}
}
