package processes

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/coracle-io/coracle/internal/sharedfile"
)

// maxStatus bounds a status, in bytes.
const maxStatus = 4 << 20

func statusFile(runDir string) string { return runDir + "/processes.json" }

// errDamaged reports that a status cannot be read. A cluster with a damaged
// status can still be ended: the kernel ends the processes with their
// supervisor.
var errDamaged = errors.New("the file is damaged")

// Read returns the status that the supervisor wrote last. ok is false if there
// is none. A status that other users may have written is an error.
func Read(runDir string) (s Status, ok bool, err error) {
	f, err := os.OpenFile(statusFile(runDir), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return s, false, nil
	}
	if err != nil {
		return s, false, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return s, false, err
	}
	if err := sharedfile.CheckOwner(f.Name(), info); err != nil {
		return s, false, err
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxStatus))
	if err != nil {
		return s, false, err
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		return s, false, fmt.Errorf("%s: %w (%w)", statusFile(runDir), errDamaged, err)
	}
	return s, true, nil
}

// write replaces the status in one step.
func (s *Status) write(runDir string) error {
	raw, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return sharedfile.Replace(statusFile(runDir), sharedfile.Content{Data: append(raw, '\n'), Mode: 0o600})
}

// Stat is the kernel's state of a process (proc_pid_stat(5)).
type Stat struct {
	State  byte // its letter, such as T for stopped
	Parent int
	Start  uint64 // in clock ticks since boot
}

// ReadStat reads the state of a process. ok is false if there is no such
// process, or if it is a zombie.
func ReadStat(pid int) (s Stat, ok bool) {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return s, false
	}
	// the command, field 2, is in parentheses and may contain any character
	_, rest, found := cutLast(string(raw), ')')
	fields := strings.Fields(rest)
	if !found || len(fields) < 20 {
		return s, false
	}
	// After the end of its first thread a process keeps its files, such as
	// listening sockets, until all threads have ended.
	if threads, _ := strconv.Atoi(fields[17]); threads <= 1 && (fields[0] == "Z" || fields[0] == "X") {
		return s, false
	}
	s.State = fields[0][0]
	s.Parent, err = strconv.Atoi(fields[1])
	if err != nil {
		return s, false
	}
	s.Start, err = strconv.ParseUint(fields[19], 10, 64)
	return s, err == nil
}

func cutLast(s string, sep byte) (before, after string, found bool) {
	if i := strings.LastIndexByte(s, sep); i >= 0 {
		return s[:i], s[i+1:], true
	}
	return s, "", false
}

// Running reports whether the process is alive.
func (p Process) Running() bool {
	if p.PID == 0 {
		return false
	}
	s, ok := ReadStat(p.PID)
	return ok && s.Start == p.Start
}

// Suspended reports whether the process is stopped by a signal or a debugger.
func (p Process) Suspended() bool {
	s, ok := ReadStat(p.PID)
	return ok && s.Start == p.Start && (s.State == 'T' || s.State == 't')
}

// String describes the state of the process.
func (p Process) String() string {
	text := p.Name
	switch p.PID {
	case 0:
		text += " not running, started again in " + max(0, time.Until(p.NextStart)).Round(100*time.Millisecond).String()
	default:
		text += fmt.Sprintf(" %d, up for %v", p.PID, time.Since(p.Since).Round(time.Second))
		if p.MemoryLimit > 0 {
			text += fmt.Sprintf(", limit of memory %d MiB", p.MemoryLimit>>20)
		}
		if !p.Ready {
			text += ", not ready yet"
		}
	}
	if p.Restarts > 0 {
		text += fmt.Sprintf(", started again %d times, last %v ago: %s", p.Restarts, time.Since(p.LastEnd).Round(time.Second), p.LastCause)
	}
	return text
}

// EndLeftover ends the processes of a supervisor that was killed, and returns
// when they are gone. It kills those that do not end within timeout.
func EndLeftover(runDir string, timeout time.Duration) error {
	s, ok, err := Read(runDir)
	if err != nil || !ok {
		if errors.Is(err, errDamaged) {
			return nil
		}
		return err
	}
	deadline := time.Now().Add(timeout)
	for _, p := range s.Processes {
		if err := p.kill(deadline); err != nil {
			return err
		}
	}
	return nil
}

// kill sends SIGKILL to the process and returns when it is gone.
func (p Process) kill(deadline time.Time) error {
	if !p.Running() {
		return nil
	}
	handle, err := os.FindProcess(p.PID) // from here on the handle identifies it
	if err != nil {
		return fmt.Errorf("find process %d (%s): %w", p.PID, p.Name, err)
	}
	defer func() { _ = handle.Release() }()
	for p.Running() {
		if time.Now().After(deadline) {
			return fmt.Errorf("process %d (%s) of this cluster does not end", p.PID, p.Name)
		}
		if err := handle.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("end process %d (%s): %w", p.PID, p.Name, err)
		}
		time.Sleep(2 * time.Millisecond)
	}
	return nil
}
