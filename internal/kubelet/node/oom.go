package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// KernelLogger is a Machine with a log of its kernel.
type KernelLogger interface {
	// KernelLog opens the kernel's log after its newest record. A Read returns one
	// record, or waits for one. Close ends a Read.
	KernelLog() (io.ReadCloser, error)
}

// maxRecord is the size of the largest record of the kernel's log, in bytes.
const maxRecord = 8 << 10

// KernelLog implements KernelLogger. Another file may be in the place of the log in a
// container; its bytes are left alone.
func (l *Local) KernelLog() (io.ReadCloser, error) {
	const path = "/dev/kmsg"
	log, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := log.Stat()
	if err == nil {
		if st, ok := info.Sys().(*syscall.Stat_t); !ok || info.Mode()&os.ModeCharDevice == 0 || st.Rdev != unix.Mkdev(1, 11) {
			err = fmt.Errorf("%s is not the kernel's log", path)
		}
	}
	if err == nil {
		_, err = log.Seek(0, io.SeekEnd)
	}
	if err != nil {
		_ = log.Close()
		return nil, err
	}
	return log, nil
}

// WatchOOM calls killed with the name and the id of the process that the kernel kills
// when the machine has no memory, until ctx ends: of several at once, such as those of a
// container, with the first. It closes the log. An error says why the log cannot be read
// any more.
func WatchOOM(ctx context.Context, log io.ReadCloser, killed func(process string, pid int)) error {
	stop := context.AfterFunc(ctx, func() { _ = log.Close() })
	defer func() {
		if stop() {
			_ = log.Close()
		}
	}()
	record, begun := make([]byte, maxRecord), false // begun: a process is about to be killed
	for {
		n, err := log.Read(record)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, syscall.EPIPE): // the kernel has overwritten older records
		case err != nil:
			return err
		default:
			text := kernelText(string(record[:n]))
			if process, pid, ok := oomVictim(text); ok && begun {
				killed(process, pid)
			}
			begun = strings.Contains(text, "invoked oom-killer:") || begun && !strings.Contains(text, killedProcess)
		}
	}
}

// kernelText returns the text of a record of the kernel's log, "" if a user has written
// it. A record has this form (Documentation/ABI/testing/dev-kmsg), of which the first
// number has the facility above its lowest three bits; it is 0 for the kernel:
//
//	3,1342,81267,-;Out of memory: Killed process 91 (postgres) total-vm:1000kB, anon-rss:…
func kernelText(record string) string {
	prefix, text, _ := strings.Cut(record, ";")
	priority, _, _ := strings.Cut(prefix, ",")
	if n, err := strconv.Atoi(priority); err != nil || n>>3 != 0 {
		return ""
	}
	return text
}

const killedProcess = ": Killed process "

// oomVictim returns the process that was killed because the machine has no memory, if a
// text of the kernel's log says so. That of a process that was killed for the limit of a
// control group, such as that of a pod, begins with "Memory cgroup".
func oomVictim(text string) (process string, pid int, ok bool) {
	cause, victim, _ := strings.Cut(text, killedProcess)
	number, name, _ := strings.Cut(victim, " (")
	end := strings.LastIndex(name, ") total-vm:") // the name may have parentheses
	pid, err := strconv.Atoi(number)
	if err != nil || end < 0 || !strings.HasPrefix(cause, "Out of memory") {
		return "", 0, false
	}
	return name[:end], pid, true
}
