package processes

import (
	"encoding/json"
	"os"
	"runtime/debug"
	"strconv"
	"sync"
	"syscall"
)

// File descriptors that the supervisor passes to a process.
const (
	messagesFD = 3 // for its messages
	crashFD    = 4 // for the runtime's crash report
)

// maxText bounds each text of a message, in bytes, so that its JSON is shorter
// than maxMessage.
const maxText = 64 << 10

// messagesEnv is the environment variable of a process that has these
// descriptors.
const messagesEnv = "CORACLE_MESSAGES_FD"

// Reporter sends a process's messages to its supervisor. Without a supervisor
// it sends nothing. It may be used by several goroutines.
type Reporter struct {
	mu sync.Mutex // guards to
	to *os.File   // nil without a supervisor
}

// NewReporter takes over the descriptors that the supervisor has passed to this
// process. From then on crash reports go to the supervisor, in addition to
// standard error.
func NewReporter() *Reporter {
	if os.Getenv(messagesEnv) != strconv.Itoa(messagesFD) {
		return &Reporter{}
	}
	_ = os.Unsetenv(messagesEnv)
	syscall.CloseOnExec(messagesFD)
	syscall.CloseOnExec(crashFD)
	crash := os.NewFile(crashFD, "crash")
	_ = debug.SetCrashOutput(crash, debug.CrashOptions{}) // without it, only the log has the report
	_ = crash.Close()
	return &Reporter{to: os.NewFile(messagesFD, "messages")}
}

// Send sends a message, and reports whether it was sent. If the supervisor is
// gone, the kernel ends the process.
func (r *Reporter) Send(m Message) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.to == nil {
		return false
	}
	m.Stage, m.Failed = m.Stage[:min(len(m.Stage), maxText)], m.Failed[:min(len(m.Failed), maxText)]
	raw, err := json.Marshal(m)
	if err == nil {
		_, err = r.to.Write(append(raw, '\n'))
	}
	return err == nil
}
