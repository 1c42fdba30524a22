// Package logging gives every component one form of log line:
//
//	I1121 03:38:52.123456 scheduler  Bound pod  pod="default/web" node="n1"
//
// The letter is the severity (I, W, E), the word after the time the
// component. The level (--v=0..10) can be set for each component alone
// (--v=2,kubelet=5). client-go and the other k8s.io libraries log through
// klog, which is directed here as the component "lib".
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
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// Libraries is the component as which client-go and the other k8s.io libraries
// log.
const Libraries = "lib"

// Levels says how much each component logs.
type Levels struct {
	Default     int
	ByComponent map[string]int
}

// ParseLevels reads "2" or "2,kubelet=5,scheduler=4".
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

// Check refuses levels of components that are none of those given.
func (l Levels) Check(components ...string) error {
	for _, name := range slices.Sorted(maps.Keys(l.ByComponent)) {
		if !slices.Contains(components, name) {
			return fmt.Errorf("log level of %q: want one of %s", name, strings.Join(components, ", "))
		}
	}
	return nil
}

func (l Levels) of(component string) int {
	if n, ok := l.ByComponent[component]; ok {
		return n
	}
	return l.Default
}

// Log is the one place where a process's log lines go.
type Log struct {
	levels Levels
	now    func() time.Time

	mu  sync.Mutex // guards out and buf
	out io.Writer
	buf bytes.Buffer
}

// New makes a log that writes to out.
func New(out io.Writer, levels Levels) *Log {
	return &Log{out: out, levels: levels, now: time.Now}
}

// Component returns the logger of one component.
func (l *Log) Component(name string) logr.Logger {
	return logr.New(&sink{log: l, component: name, level: l.levels.of(name)})
}

// Context returns a context from which klog.FromContext gets the component's logger.
func (l *Log) Context(ctx context.Context, component string) context.Context {
	return klog.NewContext(ctx, l.Component(component))
}

// CaptureKlog directs what libraries log through klog to the component "lib".
func (l *Log) CaptureKlog() {
	klog.SetLoggerWithOptions(l.Component(Libraries), klog.ContextualLogger(true))
}

// Check returns an error if nothing can be logged with a context: a line has
// been on its way out since ctx began, and longer than patience.
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
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case <-free:
		return nil
	case <-ctx.Done():
		return errors.New("logging blocked")
	}
}

// patience is how long Check waits for a line to be written.
const patience = 2 * time.Second

func (l *Log) write(severity byte, component, name, msg string, values []any, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := &l.buf
	b.Reset()
	b.WriteByte(severity)
	b.WriteString(l.now().Format("0102 15:04:05.000000 "))
	b.WriteString(component)
	if name != "" {
		b.WriteString("/" + name)
	}
	b.WriteString("  ")
	b.WriteString(strings.ReplaceAll(msg, "\n", "\n\t"))
	if err != nil {
		fmt.Fprintf(b, "  err=%q", err.Error())
	}
	for i := 0; i+1 < len(values); i += 2 {
		fmt.Fprintf(b, "  %v=", values[i])
		writeValue(b, values[i+1])
	}
	b.WriteByte('\n')
	_, _ = l.out.Write(b.Bytes()) // there is nowhere left to report to
}

func writeValue(b *bytes.Buffer, value any) {
	switch v := value.(type) {
	case string:
		fmt.Fprintf(b, "%q", v)
	case error:
		fmt.Fprintf(b, "%q", v.Error())
	case fmt.Stringer:
		fmt.Fprintf(b, "%q", v.String())
	default:
		fmt.Fprintf(b, "%+v", v)
	}
}

// sink is a logr.LogSink of one component.
type sink struct {
	log       *Log
	component string
	level     int
	name      string
	values    []any
}

func (s *sink) Init(logr.RuntimeInfo)  {}
func (s *sink) Enabled(level int) bool { return level <= s.level }

func (s *sink) Info(_ int, msg string, values ...any) {
	s.log.write('I', s.component, s.name, msg, append(s.values[:len(s.values):len(s.values)], values...), nil)
}

func (s *sink) Error(err error, msg string, values ...any) {
	s.log.write('E', s.component, s.name, msg, append(s.values[:len(s.values):len(s.values)], values...), err)
}

func (s *sink) WithValues(values ...any) logr.LogSink {
	c := *s
	c.values = append(s.values[:len(s.values):len(s.values)], values...)
	return &c
}

func (s *sink) WithName(name string) logr.LogSink {
	c := *s
	if c.name != "" {
		c.name += "/"
	}
	c.name += name
	return &c
}
