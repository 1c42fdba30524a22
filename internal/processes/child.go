package processes

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"syscall"
	"time"
)

// maxMessage bounds a message of a process, in bytes.
const maxMessage = 1 << 20

// child is a process and its successors.
type child struct {
	spec       Spec
	status     Process
	backoff    backoff
	wasReady   bool      // at some time
	readySince time.Time // while status.Ready
	failed     string    // what this process said before it ended
	final      bool      // and that it says so each time
	limit      int64     // what it keeps its memory to, as it said, in bytes
	process    *os.Process
}

// start starts the process. What becomes of it is posted as events, the end
// last.
func (c *child) start(s *supervisor) error {
	config := s.config
	c.failed, c.final, c.limit, c.status.Since = "", false, 0, time.Now()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer func() { _ = null.Close() }()
	if err := os.MkdirAll(config.RunDir, 0o711); err != nil { // somebody may have cleaned up
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
	kills := oomKills()
	args := append([]string{config.Name}, c.spec.Args...)
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
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		defer func() { _ = messages.Close() }()
		lines := bufio.NewScanner(messages)
		lines.Buffer(nil, maxMessage)
		lines.Split(shortLines)
		for lines.Scan() {
			var m Message
			if json.Unmarshal(lines.Bytes(), &m) == nil {
				s.post(func() { s.message(c, m) })
			}
		}
	}()
	go func() {
		state, _ := p.Wait() // fails for what is no child only
		<-heard
		e := end{state: state, crash: lineOf(crashFile, 0), oom: oomReport(p.Pid, kills)}
		if e.crash == "" && state.ExitCode() == runtimeExit && config.Log != "" { // before there could be a crash report
			e.crash = lineOf(config.Log, logged)
		}
		s.post(func() { s.exited(c, e) })
	}()
	return nil
}

// shortLines splits into lines, as bufio.ScanLines, but skips what is longer
// than a message may be.
func shortLines(data []byte, atEOF bool) (advance int, token []byte, err error) {
	if advance, token, err = bufio.ScanLines(data, atEOF); advance == 0 && len(data) >= maxMessage {
		return len(data), nil, nil
	}
	return advance, token, err
}

// stop asks the process to end, and makes it when it takes too long.
func (c *child) stop(s *supervisor) {
	p := c.process // it stays this one, whoever gets its id
	_ = p.Signal(syscall.SIGTERM)
	_ = p.Signal(syscall.SIGCONT) // one that is held could not hear
	time.AfterFunc(c.spec.Patience, func() { _ = p.Kill() })
}
