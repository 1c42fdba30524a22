// Package supervise keeps components running: an error or a panic of one
// ends that one alone, and it is started again with back-off.
//
//	Group ──► component ──► Run: f(ctx) and every goroutine begun with Go(ctx)
//	  │          ▲             │ error, or a panic in any of them
//	  │          │             ▼ ctx is canceled, all are waited for
//	  │          └─ back-off ◄─┴─ logged with its stack, counted, shown in Status
//	  └──► Keep(ctx, name, f): a part of a component that restarts on its own
//
// The runtime cannot hand a panic to anyone but its own goroutine, so a
// component begins its goroutines with Go or with Tasks, never with a bare go
// statement. What is not a panic but ends the process all the same (memory
// that has run out, concurrent map writes) is beyond this package.
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

// Back-off of a component that failed: it doubles from the first delay to the
// last, and starts over once an instance has lived longer than the last.
const (
	firstDelay = 50 * time.Millisecond
	lastDelay  = 10 * time.Second
)

// errEnded is a component that returned while its context was alive.
var errEnded = errors.New("it returned without being asked to")

// Options of a Group. The zero value is ready to use.
type Options struct {
	// Context prepares the context of a component, as with its logger.
	Context func(ctx context.Context, name string) context.Context
	// Changed is told of every change of a component's phase, in order. It
	// must not block and must not call the Group.
	Changed func(Component)
}

// Group keeps components running and knows how each of them is.
type Group struct {
	options Options
	running sync.WaitGroup

	mu      sync.Mutex // guards the following
	members map[string]*member
	changed chan struct{} // closed at the next change
}

// NewGroup makes a group without components.
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
// ends; any earlier return is a failure, after which f is called again. ended is
// closed once the component has ended for good.
func (g *Group) Go(ctx context.Context, name string, f func(context.Context) error) (ended <-chan struct{}) {
	m := g.join(name)
	done := make(chan struct{})
	g.running.Go(func() {
		defer close(done)
		m.keep(g.options.Context(ctx, name), f)
	})
	return done
}

// Alone runs a component that is started again by nobody, as all that a process
// does, and returns why it ended. Its parts, and what it notes, are counted.
func Alone(ctx context.Context, name string, f func(context.Context) error) error {
	m := NewGroup(Options{}).join(name)
	m.begin(false)
	err := run(ctx, m, f)
	if panicked := (*Panic)(nil); errors.As(err, &panicked) {
		logFailure(klog.FromContext(ctx), err, "ending", name)
	}
	return err
}

// Wait returns once every component has ended for good.
func (g *Group) Wait() { g.running.Wait() }

// Keep keeps a part of the component that ctx belongs to running until ctx
// ends, and returns then. The part fails and restarts without the component
// noticing; it is shown as COMPONENT/NAME.
func Keep(ctx context.Context, name string, f func(context.Context) error) {
	if s := scopeOf(ctx); s != nil && s.member != nil {
		s.member.group.join(s.member.state.Name+"/"+name).keep(ctx, f)
		return
	}
	NewGroup(Options{}).join(name).keep(ctx, f)
}

// join returns the member of that name. One that was there before goes on
// counting; while it is there still, the next one is called NAME-2.
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

// member is one component of a group. The group's mutex guards it.
type member struct {
	group      *Group
	state      Component
	conditions map[string]Condition
}

func (m *member) keep(ctx context.Context, f func(context.Context) error) {
	log := klog.FromContext(ctx)
	delay := firstDelay
	for again := false; ctx.Err() == nil; again = true {
		began := time.Now()
		m.begin(again)
		err := run(ctx, m, f)
		if ctx.Err() != nil {
			m.note(log, err)
			break
		}
		if err == nil {
			err = errEnded
		}
		if time.Since(began) > lastDelay {
			delay = firstDelay
		}
		m.fail(log, err, delay)
		select {
		case <-ctx.Done():
		case <-time.After(delay):
		}
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

// note records and logs a panic that ended nothing but what was being done.
func (m *member) note(log klog.Logger, err error) {
	if panicked := (*Panic)(nil); errors.As(err, &panicked) {
		m.update(func() { m.record(err) })
		logFailure(log, err, "going on", m.state.Name)
	}
}

// record keeps an error as the component's last. The caller holds the mutex.
func (m *member) record(err error) {
	panicked := (*Panic)(nil)
	m.state.LastError, m.state.LastErrorTime = text(err), time.Now()
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
