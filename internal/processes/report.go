package processes

import (
	"encoding/json"
	"os"
	"runtime/debug"
	"strconv"
	"sync"
	"syscall"
)

// Files that the supervisor hands to a process.
const (
	messagesFD = 3 // where its messages go
	crashFD    = 4 // where the runtime writes why it ended
)

// maxText bounds each text of a message, in bytes, so that what is written of
// it as JSON is less than maxMessage.
const maxText = 64 << 10

// messagesEnv tells a process that it has the files.
const messagesEnv = "CORACLE_MESSAGES_FD"

// Reporter sends a process's messages to its supervisor. A process without
// one may use it as well: nothing is sent then.
type Reporter struct {
	mu sync.Mutex // guards to
	to *os.File   // nil for nobody
}

// NewReporter takes over what the supervisor handed to this process. A crash
// is written for the supervisor to read, beside standard error.
func NewReporter() *Reporter {
	if os.Getenv(messagesEnv) != strconv.Itoa(messagesFD) {
		return &Reporter{}
	}
	_ = os.Unsetenv(messagesEnv)
	syscall.CloseOnExec(messagesFD)
	syscall.CloseOnExec(crashFD)
	crash := os.NewFile(crashFD, "crash")
	_ = debug.SetCrashOutput(crash, debug.CrashOptions{}) // else the log alone has it
	_ = crash.Close()
	return &Reporter{to: os.NewFile(messagesFD, "messages")}
}

// Send sends a message, and reports whether it went out. A supervisor that is
// gone does not stop the process: the kernel does.
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
