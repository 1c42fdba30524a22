package processes

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
)

// maxMessage bounds a message of a process, in bytes.
const maxMessage = 1 << 20

// child is a process that is restarted, with its current instance.
type child struct {
	spec       Spec
	status     Process
	backoff    backoff
	wasReady   bool      // since the supervisor started
	readySince time.Time // while status.Ready
	failed     string    // reported by this instance before it ended
	final      bool      // failed is final: a restart cannot help
	limit      int64     // its memory limit as it reported it, in bytes
	process    *os.Process
	stopping   bool // stop was called
	next       fate
}

// fate says what follows the end of a process.
type fate int

const (
	restarts    fate = iota // it has failed, and is started again with back-off
	startsAgain             // it was asked to end, and is started again at once
	leaves                  // it was asked to end, and runs no more
)

// start starts the process. Its messages and its end are posted as events, the
// end last.
func (c *child) start(s *supervisor) error {
	config := s.config
	c.failed, c.final, c.limit, c.status.MemoryLimit, c.status.Since = "", false, 0, 0, time.Now()
	c.stopping = false
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer func() { _ = null.Close() }()
	if err := os.MkdirAll(config.RunDir, 0o711); err != nil { // it may have been removed
		return err
	}
	crashFile := config.RunDir + "/" + c.spec.Name + ".crash"
	crash, err := os.OpenFile(crashFile, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = crash.Close() }()
	messages, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = theirs.Close() }()
	out, done := s.standardError()
	defer done()
	var logged int64
	if info, err := out.Stat(); err == nil {
		logged = info.Size()
	}
	kills := oomKillCount()
	args := append([]string{config.Argument0}, c.spec.Args...)
	if !c.wasReady {
		args = append(args, c.spec.First...)
	}
	p, err := os.StartProcess(config.Program, args, &os.ProcAttr{
		Env:   append(childEnvironment(), fmt.Sprintf("%s=%d", messagesEnv, messagesFD)),
		Files: []*os.File{null, out, out, theirs, crash},
		Sys:   &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		_ = messages.Close()
		return err
	}
	c.process, c.status.PID = p, p.Pid
	stat, _ := ReadStat(p.Pid)
	c.status.Start = stat.Start
	received := make(chan struct{})
	go func() {
		defer close(received)
		defer func() { _ = messages.Close() }()
		lines := bufio.NewScanner(messages)
		lines.Buffer(nil, maxMessage)
		lines.Split(scanMessages)
		for lines.Scan() {
			var m Message
			if json.Unmarshal(lines.Bytes(), &m) == nil {
				s.post(func() { s.message(c, m) })
			}
		}
	}()
	go func() {
		state, _ := p.Wait() // fails only for processes that are not children
		<-received
		e := end{state: state, crash: causeLine(crashFile, 0), oom: oomKillReport(p.Pid, kills)}
		if e.crash == "" && state.ExitCode() == runtimeExit && config.Log != "" { // it ended before it could set up crash reports
			e.crash = causeLine(config.Log, logged)
		}
		s.post(func() { s.exited(c, e) })
	}()
	return nil
}

// scanMessages is a bufio.SplitFunc for lines. It skips lines that are longer
// than a message can be.
func scanMessages(data []byte, atEOF bool) (advance int, token []byte, err error) {
	if advance, token, err = bufio.ScanLines(data, atEOF); advance == 0 && len(data) >= maxMessage {
		return len(data), nil, nil
	}
	return advance, token, err
}

// stop sends SIGTERM to the process, and SIGKILL after StopTimeout. It sends
// SIGTERM once: the second one ends a process without its work being finished.
func (c *child) stop() {
	if c.stopping {
		return
	}
	c.stopping = true
	p := c.process // this one, even if its id is reused
	_ = p.Signal(syscall.SIGTERM)
	_ = p.Signal(syscall.SIGCONT) // a stopped process does not handle signals
	time.AfterFunc(c.spec.StopTimeout, func() { _ = p.Kill() })
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
