package processes

import (
	"fmt"
	"math"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/coracle-io/coracle/internal/processes/notify"
)

// ProgressEnv is the environment variable with the file descriptor to which a
// supervisor in the background writes its stages, one on each line. The last
// one is ReadyStage. After ServesStage a failed start no longer removes the
// cluster. FailedStage is the prefix of each line with the reason why the
// cluster could not start.
const (
	ProgressEnv = "CORACLE_PROGRESS_FD"
	ServesStage = "serves"
	ReadyStage  = "ready"
	FailedStage = "failed: "
)

// FailedEnv is an environment variable for the command Arguments.Failed. The
// processes do not get it.
const FailedEnv = "CORACLE_UNDO"

// Config configures a supervisor.
type Config struct {
	Arguments
	// Program is the file of the processes' program, Argument0 their argument 0.
	Program, Argument0 string
	// Processes are started in this order. They are stopped by stages.
	Processes []Spec
	// Changed returns which processes are to run from now on. It is called after
	// SetNodes. Processes are the same if their names are, and are started again if
	// their Args differ.
	Changed func() ([]Spec, error)
}

// Spec describes a process.
type Spec struct {
	Name string
	Args []string
	// First are further arguments until the process was ready once.
	First []string
	// StopTimeout is how long the process may take to end before it is killed.
	StopTimeout time.Duration
	// Stage says when the process is stopped: together with the others of its
	// stage, when the processes of higher stages have ended.
	Stage int
}

// idleTime is the time without an event after which the supervisor releases
// memory.
const idleTime = 3 * time.Second

// supervisor is the state of the loop. Only the goroutine of run uses it.
type supervisor struct {
	config   Config
	since    time.Time
	children []*child
	events   chan func()
	progress *os.File // nil if progress goes to the terminal, or has ended
	notify   notify.Notifier
	serves   bool   // clients may have stored something in the cluster
	ready    bool   // every process was ready at some time
	failure  string // why the cluster cannot start
	stopping bool
	done     bool
}

// Run starts the processes and keeps them running until this process is asked
// to end. It returns the exit code. Call it from the program's first goroutine:
// the kernel ends the processes with the thread that started them.
func Run(c Config) int {
	runtime.LockOSThread()
	debug.SetGCPercent(10)
	s := &supervisor{config: c, since: time.Now(), events: make(chan func()), notify: notify.New()}
	if fd, err := strconv.Atoi(os.Getenv(ProgressEnv)); err == nil {
		syscall.CloseOnExec(fd)
		s.progress = os.NewFile(uintptr(fd), "progress")
	}
	for _, spec := range c.Processes {
		s.children = append(s.children, &child{spec: spec, status: Process{Name: spec.Name}})
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	if !signal.Ignored(syscall.SIGHUP) { // nohup sets it to be ignored
		signal.Notify(signals, syscall.SIGHUP)
	}
	changes := make(chan os.Signal, 1)
	signal.Notify(changes, changeSignal)
	s.loop(signals, changes)
	s.notify.Send("STOPPING=1")
	_ = os.Remove(statusFile(c.RunDir))
	return s.end()
}

func (s *supervisor) loop(signals, changes <-chan os.Signal) {
	for _, c := range s.children {
		s.start(c)
	}
	quiet := time.NewTimer(idleTime)
	var watchdog <-chan time.Time
	if s.notify.Watchdog > 0 {
		ticker := time.NewTicker(s.notify.Watchdog)
		defer ticker.Stop()
		watchdog = ticker.C
	}
	for !s.done {
		select {
		case event := <-s.events:
			event()
			quiet.Reset(idleTime)
		case <-signals:
			s.stop()
		case <-changes:
			s.change()
			quiet.Reset(idleTime)
		case <-quiet.C:
			debug.FreeOSMemory()
			_ = ReleaseProgram() // on an error the pages stay resident
		case <-watchdog:
			s.notify.Send("WATCHDOG=1")
		}
	}
}

// end reports why the cluster could not start, if it could not.
func (s *supervisor) end() int {
	if s.failure == "" {
		return 0
	}
	if len(s.config.Failed) > 0 {
		arguments := append([]string{s.config.Argument0}, s.config.Failed...)
		arguments = append(arguments, fmt.Sprintf("--lock-fd=%d", s.config.LockFD), "--", s.failure)
		err := inheritOnExec(s.config.LockFD)
		if err == nil {
			err = syscall.Exec(s.config.Program, arguments, os.Environ())
		}
		s.log('E', "Cleaning up failed", "err", err)
	}
	for line := range strings.SplitSeq(s.failure, "\n") {
		fmt.Fprintln(os.Stderr, "coracle:", line)
		if s.progress != nil { // the log may be on a full disk
			s.progressLine(FailedStage + line)
		}
	}
	return 1
}

// inheritOnExec keeps an open file across an exec; 0 for none.
func inheritOnExec(fd int) error {
	if fd == 0 {
		return nil
	}
	if _, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_SETFD, 0); errno != 0 {
		return fmt.Errorf("keep file %d open: %w", fd, errno)
	}
	return nil
}

func (s *supervisor) start(c *child) {
	c.status.NextStart = time.Time{}
	if err := c.start(s); err != nil {
		s.ended(c, err.Error())
		return
	}
	s.publish()
}

// post passes an event to the loop.
func (s *supervisor) post(event func()) { s.events <- event }

// message handles a message of a process.
func (s *supervisor) message(c *child, m Message) {
	if m.Stage != "" {
		s.progressLine(m.Stage)
	}
	if m.Serves && !s.serves {
		s.serves = true
		if s.progress != nil {
			s.progressLine(ServesStage)
		}
	}
	if m.Failed != "" {
		c.failed, c.final = m.Failed, m.Final
	}
	if m.MemoryLimit != 0 {
		c.limit, c.status.MemoryLimit = m.MemoryLimit, m.MemoryLimit
		if m.MemoryLimit == math.MaxInt64 {
			c.status.MemoryLimit = 0
		}
	}
	if m.Components != nil {
		c.status.Components = m.Components
	}
	if m.Ready {
		c.status.Ready, c.wasReady, c.readySince = true, true, time.Now()
		s.checkReady()
	}
	s.publish()
}

// checkReady reports that the cluster is ready once every process was ready.
func (s *supervisor) checkReady() {
	for _, c := range s.children {
		if !c.wasReady {
			return
		}
	}
	if s.ready {
		return
	}
	s.ready = true
	s.progressLine(ReadyStage)
	if s.progress != nil {
		_ = s.progress.Close()
	}
	s.progress = nil
	s.notify.Send("READY=1", "STATUS=The cluster is ready.")
}

// progressLine reports a stage of the start.
func (s *supervisor) progressLine(stage string) {
	switch {
	case s.progress != nil:
		_, _ = fmt.Fprintln(s.progress, stage) // the reader may be gone
	case os.Getenv(ProgressEnv) == "":
		fmt.Fprintln(os.Stderr, "coracle:", stage)
	}
	if !s.ready {
		s.notify.Send("STATUS=" + stage)
	}
}

// exited handles the end of a process. If a process cannot start and no client
// could have used the cluster, the cluster ends. Otherwise the process is
// restarted, because the cause may go away.
func (s *supervisor) exited(c *child, e end) {
	if c.next != restarts {
		s.asked(c)
		return
	}
	if c.failed != "" && !s.serves && !s.stopping && (c.final || !s.config.Served) {
		s.failure = c.failed
		c.status.PID = 0
		s.stop()
		return
	}
	e.failed, e.limit = c.failed, c.limit
	s.ended(c, e.cause())
}

// ended schedules the next start.
func (s *supervisor) ended(c *child, cause string) {
	var working time.Duration
	if c.status.Ready {
		working = time.Since(c.readySince)
	}
	life, pid := time.Since(c.status.Since), c.status.PID
	c.status.PID, c.status.Start, c.status.Ready, c.status.Components = 0, 0, false, nil
	c.status.LastEnd, c.status.LastCause = time.Now(), cause
	if s.stopping {
		s.stopNext()
		return
	}
	delay := c.backoff.after(working)
	c.status.Restarts++
	c.status.NextStart = time.Now().Add(delay)
	s.log('E', "Process ended, restarting it", "process", c.spec.Name, "pid", pid, "cause", cause, "after", life.Round(time.Millisecond), "in", delay)
	again := "The process " + c.spec.Name + " ended (" + strings.ReplaceAll(cause, "\n", "; ") + ") and is being restarted."
	s.notify.Send("STATUS=" + again)
	if s.progress != nil {
		s.progressLine(again)
	}
	s.publish()
	if delay == 0 {
		s.start(c)
		return
	}
	time.AfterFunc(delay, func() {
		s.post(func() {
			if !s.stopping && c.next != leaves && c.status.PID == 0 {
				s.start(c)
			}
		})
	})
}

// stop ends the processes, stage by stage.
func (s *supervisor) stop() {
	if s.stopping {
		return
	}
	s.stopping = true
	s.notify.Send("STOPPING=1")
	s.stopNext()
}

// stopNext asks the processes of the last stage with a running process to end,
// once each.
func (s *supervisor) stopNext() {
	last, running := 0, false
	for _, c := range s.children {
		if c.status.PID != 0 && (!running || c.spec.Stage > last) {
			last, running = c.spec.Stage, true
		}
	}
	for _, c := range s.children {
		if c.status.PID != 0 && c.spec.Stage == last {
			c.stop()
		}
	}
	s.done = !running
}

// publish writes the status. It ignores errors.
func (s *supervisor) publish() {
	st := Status{PID: os.Getpid(), Since: s.since, Ready: s.ready, ChangesNodes: s.config.Changed != nil}
	stat, _ := ReadStat(st.PID)
	st.Start = stat.Start
	for _, c := range s.children {
		st.Processes = append(st.Processes, c.status)
	}
	if err := st.write(s.config.RunDir); err != nil {
		s.log('E', "Cannot write the status of the processes", "err", err)
	}
}

// log writes a line in the form of package logging.
func (s *supervisor) log(severity byte, message string, values ...any) {
	var b strings.Builder
	b.WriteByte(severity)
	b.WriteString(time.Now().Format("0102 15:04:05.000000 ") + Supervisor + "  " + message)
	for i := 0; i+1 < len(values); i += 2 {
		fmt.Fprintf(&b, "  %v=%q", values[i], fmt.Sprint(values[i+1]))
	}
	b.WriteByte('\n')
	out, done := s.standardError()
	defer done()
	_, _ = out.WriteString(b.String())
}

// standardError returns the file that lines are written to now.
func (s *supervisor) standardError() (out *os.File, done func()) {
	if s.config.Log != "" {
		if f, err := os.OpenFile(s.config.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY|syscall.O_NOFOLLOW, 0o600); err == nil {
			return f, func() { _ = f.Close() }
		}
	}
	return os.Stderr, func() {}
}
