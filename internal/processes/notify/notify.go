// Package notify tells a service manager, such as systemd, of the state of a service.
package notify

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Notifier reports the state of the service (sd_notify(3)) by datagrams to the
// socket in NOTIFY_SOCKET. Without the variable it does nothing.
type Notifier struct {
	// Watchdog is the interval of WATCHDOG=1, without which the service manager ends
	// the service; 0 for never.
	Watchdog time.Duration

	to *syscall.SockaddrUnix // nil without a service manager
}

// New returns the notifier of this process.
func New() Notifier {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return Notifier{}
	}
	n := Notifier{to: &syscall.SockaddrUnix{Name: path}} // a leading @ means the abstract namespace
	if pid := os.Getenv("WATCHDOG_PID"); pid == "" || pid == strconv.Itoa(os.Getpid()) {
		if usec, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64); err == nil && usec > 0 {
			n.Watchdog = time.Duration(usec) * time.Microsecond / 2
		}
	}
	return n
}

// Send sends lines such as READY=1 in one datagram. Errors are ignored: the service
// manager may not listen.
func (n Notifier) Send(lines ...string) {
	if n.to == nil {
		return
	}
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer func() { _ = syscall.Close(fd) }()
	_ = syscall.Sendto(fd, []byte(strings.Join(lines, "\n")), syscall.MSG_NOSIGNAL, n.to)
}
