// Package supervise keeps components running. An error or a panic of one ends
// that component alone, and it is started again with back-off.
//
//	Group ──► component ──► Run: f(ctx) and every goroutine begun with Go(ctx)
//	  │          ▲             │ error, or a panic in any of them
//	  │          │             ▼ ctx is canceled, all are waited for
//	  │          └─ back-off ◄─┴─ logged with its stack, counted, shown in Status
//	  └──► KeepRunning(ctx, name, f): a part of a component that restarts alone
//
// A goroutine can only recover from its own panics, so a component starts its
// goroutines with Go or with Tasks, never with a bare go statement. Fatal errors
// of the runtime, such as concurrent map writes, still end the process.
package supervise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// The back-off of a component that failed doubles from firstDelay to lastDelay.
// It starts over once an instance has run for longer than lastDelay.
const (
	firstDelay = 50 * time.Millisecond
	lastDelay  = 10 * time.Second
)

// errEnded is the error of a component that returned before its context ended.
var errEnded = errors.New("it returned without being asked to")

// Options are the options of a Group. The zero value is ready to use.
type Options struct {
	// Context derives the context of a component, for example with its logger.
	Context func(ctx context.Context, name string) context.Context
	// Changed is called at every change of a component's phase, in order. It
	// must not block and must not call the Group.
	Changed func(Component)
}

// Group keeps components running and records the state of each.
type Group struct {
	options Options
	running sync.WaitGroup

	mu      sync.Mutex // guards the following
	members map[string]*member
	changed chan struct{} // closed at the next change
}

// NewGroup returns a group without components.
func NewGroup(o Options) *Group {
	if o.Context == nil {
		o.Context = func(ctx context.Context, _ string) context.Context { return ctx }
	}
	if o.Changed == nil {
		o.Changed = func(Component) {}
	}
	return &Group{options: o, members: map[string]*member{}, changed: make(chan struct{})}
}

// Go keeps a component running until ctx ends. f blocks until its context
// ends; any earlier return is a failure, after which f is called again. The
// channel is closed once the component has stopped permanently.
func (g *Group) Go(ctx context.Context, name string, f func(context.Context) error) (ended <-chan struct{}) {
	m := g.join(name)
	done := make(chan struct{})
	g.running.Go(func() {
		defer close(done)
		m.keepRunning(g.options.Context(ctx, name), f)
	})
	return done
}

// RunOnce runs a component that is not restarted, such as the only one of a
// process, and returns its error. Its parts and its panics are counted.
func RunOnce(ctx context.Context, name string, f func(context.Context) error) error {
	m := NewGroup(Options{}).join(name)
	m.begin(false)
	err := run(ctx, m, f)
	if panicked := (*Panic)(nil); errors.As(err, &panicked) {
		logFailure(klog.FromContext(ctx), err, "ending", name)
	}
	return err
}

// Wait returns once every component has stopped permanently.
func (g *Group) Wait() { g.running.Wait() }

// KeepRunning keeps a part of the component that ctx belongs to running, and
// returns when ctx ends. The part restarts without its component. A Status shows
// it as COMPONENT/NAME.
func KeepRunning(ctx context.Context, name string, f func(context.Context) error) {
	if s := scopeOf(ctx); s != nil && s.member != nil {
		s.member.group.join(s.member.state.Name+"/"+name).keepRunning(ctx, f)
		return
	}
	NewGroup(Options{}).join(name).keepRunning(ctx, f)
}

// join returns the member of a name. A member that has stopped is used again,
// with its counts; beside one that has not, the new member is called NAME-2.
func (g *Group) join(name string) *member {
	g.mu.Lock()
	defer g.mu.Unlock()
	free := name
	for n := 2; g.members[free] != nil && g.members[free].state.Phase != Stopped; n++ {
		free = fmt.Sprintf("%s-%d", name, n)
	}
	m := g.members[free]
	if m == nil {
		m = &member{group: g, state: Component{Name: free}, conditions: map[string]Condition{}}
		g.members[free] = m
	}
	m.enter(Starting)
	return m
}

// member is one component or part in a group. The group's mutex guards it.
type member struct {
	group      *Group
	state      Component
	conditions map[string]Condition
}

func (m *member) keepRunning(ctx context.Context, f func(context.Context) error) {
	log := klog.FromContext(ctx)
	delay := firstDelay
	for again := false; ctx.Err() == nil; again = true {
		began := time.Now()
		m.begin(again)
		err := run(ctx, m, f)
		if ctx.Err() != nil {
			m.recordPanic(log, err)
			break
		}
		if err == nil {
			err = errEnded
		}
		if time.Since(began) > lastDelay {
			delay = firstDelay
		}
		m.fail(log, err, delay)
		Pause(ctx, delay)
		delay = min(2*delay, lastDelay)
	}
	m.update(func() { m.enter(Stopped) })
}

func (m *member) begin(again bool) {
	m.update(func() {
		if again {
			m.state.Restarts++
		}
		clear(m.conditions)
		m.enter(Running)
	})
}

// fail records and logs why an instance ended.
func (m *member) fail(log klog.Logger, err error, delay time.Duration) {
	m.update(func() {
		m.record(err)
		m.enter(BackOff)
		m.state.NextStart = m.state.Since.Add(delay)
	})
	logFailure(log, err, "starting it again", m.state.Name, "after", delay)
}

// recordPanic records and logs err if it is a panic. The instance goes on.
func (m *member) recordPanic(log klog.Logger, err error) {
	if panicked := (*Panic)(nil); errors.As(err, &panicked) {
		m.update(func() { m.record(err) })
		logFailure(log, err, "going on", m.state.Name)
	}
}

// record sets the component's last error. The caller holds the mutex.
func (m *member) record(err error) {
	panicked := (*Panic)(nil)
	m.state.LastError, m.state.LastErrorTime = errorText(err), time.Now()
	if m.state.Panicked = errors.As(err, &panicked); m.state.Panicked {
		m.state.Panics++
	}
}

// enter changes the phase. The caller holds the mutex.
func (m *member) enter(p Phase) {
	m.state.Phase, m.state.Since, m.state.NextStart = p, time.Now(), time.Time{}
	m.group.options.Changed(m.snapshot())
}

func (m *member) update(change func()) {
	m.group.mu.Lock()
	defer m.group.mu.Unlock()
	change()
	close(m.group.changed)
	m.group.changed = make(chan struct{})
}

// snapshot copies the state. The caller holds the mutex.
func (m *member) snapshot() Component {
	c := m.state
	for _, condition := range m.conditions {
		c.Conditions = append(c.Conditions, condition)
	}
	slices.SortFunc(c.Conditions, func(a, b Condition) int { return cmp.Compare(a.Name, b.Name) })
	return c
}

func logFailure(log klog.Logger, err error, then, name string, values ...any) {
	values = append([]any{"component", name}, values...)
	if panicked := (*Panic)(nil); errors.As(err, &panicked) {
		log.Error(err, "Component panicked, "+then, append(values, "stack", string(panicked.Stack))...)
		return
	}
	log.Error(err, "Component failed, "+then, values...)
}
