package processes

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ProgressEnv names the file to which a supervisor in the background writes
// its stages, one a line; the last is ReadyStage. From ServesStage on the
// cluster is never taken away for a start that failed. FailedStage begins each
// line of why the cluster could not start.
const (
	ProgressEnv = "CORACLE_PROGRESS_FD"
	ServesStage = "serves"
	ReadyStage  = "ready"
	FailedStage = "failed: "
)

// FailedEnv is for what Config.Failed runs, and kept from the processes.
const FailedEnv = "CORACLE_UNDO"

// Config of a supervisor.
type Config struct {
	// Program and Name start the processes: the file, and what they are called.
	Program, Name string
	// RunDir takes the status and the reports of crashes.
	RunDir string
	// Log is the file that standard error is, which the processes may move away
	// when it is full; "" if it is none.
	Log string
	// Processes are started in this order and stopped in the opposite one.
	Processes []Spec
	// LockFD is a file whose lock this process holds; 0 is none.
	LockFD int
	// Served says that the cluster has served before as it is started now: a
	// start that fails is tried again, for what failed, such as a full disk or a
	// network that is not there yet, passes.
	Served bool
	// Failed runs in this process's place when a process could not start for
	// a reason that starting it again does not mend; nil is to end. It gets
	// LockFD, as --lock-fd, and the reason as its last argument.
	Failed []string
}

// Spec says what a process is.
type Spec struct {
	Name string
	Args []string
	// First are further arguments until the process was ready once.
	First []string
	// Patience is how long it may take to end when it is asked to.
	Patience time.Duration
}

// calm is how long after the last event the supervisor gives its memory back.
const calm = 3 * time.Second

// supervisor is the loop's state. All of it belongs to the goroutine of run.
type supervisor struct {
	config   Config
	since    time.Time
	children []*child
	events   chan func()
	progress *os.File // nil: the terminal, or nobody any more
	notify   notifier
	serves   bool   // others may have stored something in the cluster
	ready    bool   // every process was ready at some time
	failure  string // why the cluster cannot start
	stopping bool
	done     bool
}

// Run starts the processes and keeps them running until this process is asked
// to end. It returns the exit code. It must be called from the program's first
// goroutine: the kernel ends the processes with the thread that started them.
func Run(c Config) int {
	runtime.LockOSThread()
	debug.SetGCPercent(10)
	s := &supervisor{config: c, since: time.Now(), events: make(chan func()), notify: newNotifier()}
	if fd, err := strconv.Atoi(os.Getenv(ProgressEnv)); err == nil {
		syscall.CloseOnExec(fd)
		s.progress = os.NewFile(uintptr(fd), "progress")
	}
	for _, spec := range c.Processes {
		s.children = append(s.children, &child{spec: spec, status: Process{Name: spec.Name}})
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	if !signal.Ignored(syscall.SIGHUP) { // as by nohup
		signal.Notify(signals, syscall.SIGHUP)
	}
	s.loop(signals)
	s.notify.tell("STOPPING=1")
	_ = os.Remove(statusFile(c.RunDir))
	return s.end()
}

func (s *supervisor) loop(signals <-chan os.Signal) {
	for _, c := range s.children {
		s.start(c)
	}
	quiet := time.NewTimer(calm)
	var watchdog <-chan time.Time
	if s.notify.watchdog > 0 {
		ticker := time.NewTicker(s.notify.watchdog)
		defer ticker.Stop()
		watchdog = ticker.C
	}
	for !s.done {
		select {
		case event := <-s.events:
			event()
			quiet.Reset(calm)
		case <-signals:
			s.stop()
		case <-quiet.C:
			debug.FreeOSMemory()
			_ = ReleaseProgram() // else the pages stay
		case <-watchdog:
			s.notify.tell("WATCHDOG=1")
		}
	}
}

// end reports why the cluster could not start, if so.
func (s *supervisor) end() int {
	if s.failure == "" {
		return 0
	}
	if len(s.config.Failed) > 0 {
		arguments := append([]string{s.config.Name}, s.config.Failed...)
		arguments = append(arguments, fmt.Sprintf("--lock-fd=%d", s.config.LockFD), "--", s.failure)
		err := keepOnExec(s.config.LockFD)
		if err == nil {
			err = syscall.Exec(s.config.Program, arguments, os.Environ())
		}
		s.log('E', "Cleaning up failed", "err", err)
	}
	for line := range strings.SplitSeq(s.failure, "\n") {
		fmt.Fprintln(os.Stderr, "coracle:", line)
		if s.progress != nil { // the log may be on a full disk
			s.tell(FailedStage + line)
		}
	}
	return 1
}

// keepOnExec lets an open file outlast an exec; 0 is none.
func keepOnExec(fd int) error {
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

// post hands an event to the loop.
func (s *supervisor) post(event func()) { s.events <- event }

// message takes over what a process says.
func (s *supervisor) message(c *child, m Message) {
	if m.Stage != "" {
		s.tell(m.Stage)
	}
	if m.Serves && !s.serves {
		s.serves = true
		if s.progress != nil {
			s.tell(ServesStage)
		}
	}
	if m.Failed != "" {
		c.failed, c.final = m.Failed, m.Final
	}
	if m.MemoryLimit != 0 {
		c.limit = m.MemoryLimit
	}
	if m.Components != nil {
		c.status.Components = m.Components
	}
	if m.Ready {
		c.status.Ready, c.wasReady, c.readySince = true, true, time.Now()
		s.becomeReady()
	}
	s.publish()
}

// becomeReady says so once every process was ready.
func (s *supervisor) becomeReady() {
	for _, c := range s.children {
		if !c.wasReady {
			return
		}
	}
	if s.ready {
		return
	}
	s.ready = true
	s.tell(ReadyStage)
	if s.progress != nil {
		_ = s.progress.Close()
	}
	s.progress = nil
	s.notify.tell("READY=1", "STATUS=The cluster is ready.")
}

// tell says what is up to whoever waits for it.
func (s *supervisor) tell(stage string) {
	switch {
	case s.progress != nil:
		_, _ = fmt.Fprintln(s.progress, stage) // the reader may have gone; the cluster goes on
	case os.Getenv(ProgressEnv) == "":
		fmt.Fprintln(os.Stderr, "coracle:", stage)
	}
	if !s.ready {
		s.notify.tell("STATUS=" + stage)
	}
}

// exited takes note of the end of a process. One that cannot start ends the
// cluster as long as nobody could use that. Later it is started again like any
// other, for what failed then, such as a full disk, may be mended.
func (s *supervisor) exited(c *child, e end) {
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
	s.log('E', "Process ended; starting it again", "process", c.spec.Name, "pid", pid, "cause", cause, "after", life.Round(time.Millisecond), "in", delay)
	again := "The process " + c.spec.Name + " ended (" + strings.ReplaceAll(cause, "\n", "; ") + ") and is started again."
	s.notify.tell("STATUS=" + again)
	if s.progress != nil {
		s.tell(again)
	}
	s.publish()
	if delay == 0 {
		s.start(c)
		return
	}
	time.AfterFunc(delay, func() {
		s.post(func() {
			if !s.stopping {
				s.start(c)
			}
		})
	})
}

// stop ends the processes, the last one first.
func (s *supervisor) stop() {
	if s.stopping {
		return
	}
	s.stopping = true
	s.notify.tell("STOPPING=1")
	s.stopNext()
}

func (s *supervisor) stopNext() {
	for i := len(s.children) - 1; i >= 0; i-- {
		if c := s.children[i]; c.status.PID != 0 {
			c.stop(s)
			return
		}
	}
	s.done = true
}

// publish writes the status. What cannot be written is no reason to end.
func (s *supervisor) publish() {
	st := Status{PID: os.Getpid(), Since: s.since, Ready: s.ready}
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
	b.WriteString(time.Now().Format("0102 15:04:05.000000 ") + "supervisor  " + message)
	for i := 0; i+1 < len(values); i += 2 {
		fmt.Fprintf(&b, "  %v=%q", values[i], fmt.Sprint(values[i+1]))
	}
	b.WriteByte('\n')
	out, done := s.standardError()
	defer done()
	_, _ = out.WriteString(b.String())
}

// standardError is where lines go now.
func (s *supervisor) standardError() (out *os.File, done func()) {
	if s.config.Log != "" {
		if f, err := os.OpenFile(s.config.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY|syscall.O_NOFOLLOW, 0o600); err == nil {
			return f, func() { _ = f.Close() }
		}
	}
	return os.Stderr, func() {}
}
