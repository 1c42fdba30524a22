// Package logging formats the log lines of all components:
//
//	I1121 03:38:52.123456 scheduler  Bound pod  pod="default/web" node="n1"
//
// A component can have lines in JSON instead (SetFormat).
//
// The letter is the severity (I, W, E). The word after the time is the component, with
// @NODE if it belongs to a further node of the machine (scheduler, kubelet,
// kubelet@n1-2). The level (--v=0..10) can be set for each component (--v=2,kubelet=5), and
// changed while the component runs (LevelHandler).
// client-go and the other k8s.io libraries log through klog, which CaptureKlog redirects
// to the component "lib".
package logging

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// Libraries is the component name of client-go and the other k8s.io libraries.
const Libraries = "lib"

// Levels are the log levels of the components.
type Levels struct {
	Default     int
	ByComponent map[string]int
}

// ParseLevels parses levels such as "2" or "2,kubelet=5,scheduler=4".
func ParseLevels(s string) (Levels, error) {
	l := Levels{ByComponent: map[string]int{}}
	if s == "" {
		return l, nil
	}
	for _, part := range strings.Split(s, ",") {
		component, level, named := strings.Cut(part, "=")
		if !named {
			component, level = "", part
		}
		n, err := strconv.Atoi(level)
		if err != nil || n < 0 || n > 10 || named && component == "" {
			return l, fmt.Errorf("log level %q: want a number from 0 to 10, or component=number", part)
		}
		if named {
			l.ByComponent[component] = n
		} else {
			l.Default = n
		}
	}
	return l, nil
}

// Check returns an error if a level is for a component that is not among
// components.
func (l Levels) Check(components ...string) error {
	for _, name := range slices.Sorted(maps.Keys(l.ByComponent)) {
		if !slices.Contains(components, name) {
			return fmt.Errorf("log level of %q: want one of %s", name, strings.Join(components, ", "))
		}
	}
	return nil
}

// of returns the level of a component. Without a level of their own, libraries
// log one level less than the components: level 1 of components is meant for
// users, but level 1 of client-go lists its feature gates.
func (l Levels) of(component string) int {
	if n, ok := l.ByComponent[component]; ok {
		return n
	}
	if component == Libraries {
		return max(0, l.Default-1)
	}
	return l.Default
}

// Log writes the log lines of a process. It may be used by several goroutines.
type Log struct {
	current *current
	node    string // of the components; "" if they need not be told apart
	now     func() time.Time

	mu  sync.Mutex // guards out and buf
	out io.Writer
	buf bytes.Buffer
}

// New returns a log that writes to out.
func New(out io.Writer, levels Levels) *Log {
	return &Log{out: out, current: &current{initial: levels, components: map[string]*settings{}}, now: time.Now}
}

// Of returns a log like l for the components of a node, which becomes a part of
// their names.
func (l *Log) Of(node string) *Log {
	return &Log{out: l.out, current: l.current, node: node, now: l.now}
}

// Component returns the logger of a component.
func (l *Log) Component(name string) logr.Logger { return logr.New(l.sink(name)) }

func (l *Log) sink(component string) *sink {
	s, logger := l.current.of(component), component
	if l.node != "" {
		logger += "@" + l.node
	}
	return &sink{log: l, logger: logger, level: &s.level, json: &s.json}
}

// Context returns a context from which klog.FromContext gets the component's logger.
func (l *Log) Context(ctx context.Context, component string) context.Context {
	return klog.NewContext(ctx, l.Component(component))
}

// CaptureKlog redirects klog to the component "lib", whose lines have the format
// of the component that the process runs, "" if it runs several. It changes
// process-wide state.
func (l *Log) CaptureKlog(component string) {
	libraries := l.sink(Libraries)
	if component != "" {
		libraries.json = &l.current.of(component).json
	}
	klog.SetLoggerWithOptions(logr.New(libraries), klog.ContextualLogger(true))
}

// Check returns an error if nothing can be logged with a context: a line has
// been on its way out since ctx began, and longer than checkTimeout.
func Check(ctx context.Context) error {
	s, ok := klog.FromContext(ctx).GetSink().(*sink)
	if !ok {
		return nil
	}
	free := make(chan struct{})
	go func() {
		s.log.mu.Lock()
		s.log.mu.Unlock() //nolint:staticcheck // only waits for whoever writes
		close(free)
	}()
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	select {
	case <-free:
		return nil
	case <-ctx.Done():
		return errors.New("logging blocked")
	}
}

// checkTimeout is how long Check waits for a line to be written.
const checkTimeout = 2 * time.Second

// timeFormat is the form of a line's time.
const timeFormat = "0102 15:04:05.000000 "

// A line is what is logged.
type line struct {
	isError bool
	level   int // of a line that is no error
	logger  string
	caller  string // of a line in JSON
	msg     string
	values  []any // names and values in turn
	err     error
}

// write writes a line by the given form.
func (l *Log) write(e *line, form func(b *bytes.Buffer, at time.Time, e *line)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := &l.buf
	b.Reset()
	form(b, l.now(), e)
	b.WriteByte('\n')
	_, _ = l.out.Write(b.Bytes()) // there is nowhere left to report to
	if b.Cap() > maxText {
		l.buf = bytes.Buffer{}
	}
}

func writeText(b *bytes.Buffer, at time.Time, e *line) {
	severity := byte('I')
	if e.isError {
		severity = 'E'
	}
	b.WriteByte(severity)
	b.WriteString(at.Format(timeFormat))
	b.WriteString(e.logger)
	b.WriteString("  ")
	b.WriteString(strings.ReplaceAll(cut(e.msg), "\n", "\n\t"))
	if e.err != nil {
		fmt.Fprintf(b, "  err=%q", cut(e.err.Error()))
	}
	for i := 0; i+1 < len(e.values); i += 2 {
		fmt.Fprintf(b, "  %v=", e.values[i])
		writeValue(b, e.values[i+1])
	}
}

// maxText is the maximum number of bytes of a message, an error or a value in a
// line. Some repeat what a client sent.
const maxText = 32 << 10

// cut returns at most maxText bytes of text, and how many are left out.
func cut(text string) string {
	if len(text) <= maxText {
		return text
	}
	return fmt.Sprintf("%s... (%d more bytes)", text[:maxText], len(text)-maxText)
}

func writeValue(b *bytes.Buffer, value any) {
	switch v := value.(type) {
	case string:
		fmt.Fprintf(b, "%q", cut(v))
	case error:
		fmt.Fprintf(b, "%q", cut(v.Error()))
	case fmt.Stringer:
		fmt.Fprintf(b, "%q", cut(v.String()))
	default:
		b.WriteString(cut(fmt.Sprintf("%+v", v)))
	}
}

// sink is the logr.LogSink of a component.
type sink struct {
	log    *Log
	logger string        // the component, its node and the names of the logger
	level  *atomic.Int32 // of all sinks of the component
	json   *atomic.Bool  // of all sinks of the component: the lines are JSON
	depth  int           // of further calls between the code that logs and the sink
	values []any
}

func (s *sink) Init(logr.RuntimeInfo)  {}
func (s *sink) Enabled(level int) bool { return level <= int(s.level.Load()) }

func (s *sink) Info(level int, msg string, values ...any) {
	s.write(&line{level: level, msg: msg, values: values})
}

func (s *sink) Error(err error, msg string, values ...any) {
	s.write(&line{isError: true, msg: msg, values: values, err: err})
}

// write completes a line and writes it. Info and Error must call it.
func (s *sink) write(e *line) {
	e.logger = s.logger
	e.values = append(s.values[:len(s.values):len(s.values)], e.values...)
	if !s.json.Load() {
		s.log.write(e, writeText)
		return
	}
	e.caller = caller(s.depth)
	s.log.write(e, writeJSON)
}

// WithCallDepth implements logr.CallDepthLogSink.
func (s *sink) WithCallDepth(depth int) logr.LogSink {
	c := *s
	c.depth += depth
	return &c
}

func (s *sink) WithValues(values ...any) logr.LogSink {
	c := *s
	c.values = append(s.values[:len(s.values):len(s.values)], values...)
	return &c
}

func (s *sink) WithName(name string) logr.LogSink {
	c := *s
	c.logger += "/" + name
	return &c
}
