package processes

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// notifier reports the state of the service to systemd (sd_notify(3)) by
// datagrams to the socket in NOTIFY_SOCKET. Without the variable it does
// nothing.
type notifier struct {
	fd       int
	to       *syscall.SockaddrUnix
	watchdog time.Duration // interval of WATCHDOG=1; 0 for never
}

func newNotifier() notifier {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return notifier{}
	}
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		return notifier{}
	}
	n := notifier{fd: fd, to: &syscall.SockaddrUnix{Name: path}} // a leading @ means the abstract namespace
	if pid := os.Getenv("WATCHDOG_PID"); pid == "" || pid == strconv.Itoa(os.Getpid()) {
		if usec, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64); err == nil && usec > 0 {
			n.watchdog = time.Duration(usec) * time.Microsecond / 2
		}
	}
	return n
}

// send sends lines such as READY=1. Errors are ignored: the service manager may
// not listen.
func (n notifier) send(lines ...string) {
	if n.to != nil {
		_ = syscall.Sendto(n.fd, []byte(strings.Join(lines, "\n")), syscall.MSG_NOSIGNAL, n.to)
	}
}

// childEnvironment returns the environment of the processes, without variables
// that are meant for the supervisor.
func childEnvironment() []string {
	var env []string
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(e, "=")
		switch name {
		case "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", ProgressEnv, FailedEnv:
		default:
			env = append(env, e)
		}
	}
	return env
}
