package processes

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// notifier tells systemd how the service is (sd_notify(3)): datagrams to the
// socket in NOTIFY_SOCKET. Without one it tells nobody.
type notifier struct {
	fd       int
	to       *syscall.SockaddrUnix
	watchdog time.Duration // how often to say WATCHDOG=1; 0 is never
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
	n := notifier{fd: fd, to: &syscall.SockaddrUnix{Name: path}} // a leading @ is the abstract namespace
	if pid := os.Getenv("WATCHDOG_PID"); pid == "" || pid == strconv.Itoa(os.Getpid()) {
		if usec, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64); err == nil && usec > 0 {
			n.watchdog = time.Duration(usec) * time.Microsecond / 2
		}
	}
	return n
}

// tell sends lines such as READY=1. A service manager that does not listen is
// no reason to fail.
func (n notifier) tell(lines ...string) {
	if n.to != nil {
		_ = syscall.Sendto(n.fd, []byte(strings.Join(lines, "\n")), syscall.MSG_NOSIGNAL, n.to)
	}
}

// childEnvironment is what the processes get: not what is meant for this one.
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
