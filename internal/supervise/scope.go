package supervise

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// patience is how long an instance that has failed may take to end. One that
// holds a lock over a panic never does; it is left behind then.
const patience = 10 * time.Second

// ErrLeft is an instance some of whose goroutines would not end.
var ErrLeft = fmt.Errorf("goroutines that did not end within %v are left behind", patience)

// Panic is a panic as an error.
type Panic struct {
	Value any
	Stack []byte // of the goroutine that panicked
}

// Error implements error. It leaves the stack out.
func (p *Panic) Error() string { return fmt.Sprintf("panic: %v", p.Value) }

// Unwrap returns the error that was panicked with, if it was one.
func (p *Panic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// Call calls f and returns a panic of it as a *Panic.
func Call(f func() error) (err error) {
	defer Catch(&err)
	return f()
}

// Catch makes a panic of the function that defers it a *Panic in *err. It is
// Call for where a closure costs too much.
func Catch(err *error) {
	if value := recover(); value != nil {
		*err = &Panic{Value: value, Stack: debug.Stack()}
	}
}

// Run calls f and returns its error once f and every goroutine begun with Go
// in its context have ended. When one of them fails or panics, or f returns,
// the context of all ends. Those that do not end then are left behind after
// some seconds, unless ctx itself has ended.
func Run(ctx context.Context, f func(context.Context) error) error {
	var m *member
	if outer := scopeOf(ctx); outer != nil {
		m = outer.member
	}
	return run(ctx, m, f)
}

func run(outer context.Context, m *member, f func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(outer)
	defer cancel(nil)
	s := &scope{member: m, cancel: cancel, failure: make(chan struct{}), empty: make(chan struct{})}
	ctx = context.WithValue(ctx, scopeKey{}, s)
	s.enter()
	early := make(chan struct{}) // closed if f returns without being asked to
	go func() {
		defer s.leave()
		defer cancel(nil)
		if err := Call(func() error { return f(ctx) }); !s.fail(err) {
			Note(ctx, err)
		}
		if outer.Err() == nil {
			close(early)
		}
	}()
	select {
	case <-s.empty:
		return s.err
	case <-s.failure:
	case <-early:
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-s.empty:
		return s.err
	case <-late.C:
	}
	if s.fail(errEnded); s.isEmpty() {
		return s.err
	}
	return errors.Join(s.err, ErrLeft)
}

// Go runs f in a goroutine of the component that ctx belongs to: a panic of
// it ends the instance of the component, which is waited for until f has
// returned. Where ctx belongs to no component, Go is a bare go statement.
func Go(ctx context.Context, f func()) {
	s := scopeOf(ctx)
	if s == nil {
		go f()
		return
	}
	entered := s.enter()
	go func() {
		if entered {
			defer s.leave()
		}
		if err := call(f); err != nil && !s.fail(err) {
			Note(ctx, err)
		}
	}()
}

// Fail ends the instance of the component that ctx belongs to with an error.
// Where ctx belongs to none, the error is logged.
func Fail(ctx context.Context, err error) {
	if s := scopeOf(ctx); s != nil {
		s.fail(err)
		return
	}
	klog.FromContext(ctx).Error(err, "Failed outside of any component")
}

// Guard calls f, which works for the component that ctx belongs to in a
// goroutine of somebody else. A panic of it ends the instance of the component.
// Where ctx belongs to none, Guard only calls f.
func Guard(ctx context.Context, f func()) {
	if scopeOf(ctx) == nil {
		f()
		return
	}
	if err := call(f); err != nil {
		Fail(ctx, err)
	}
}

func call(f func()) (err error) {
	defer Catch(&err)
	f()
	return nil
}

type scopeKey struct{}

func scopeOf(ctx context.Context) *scope {
	s, _ := ctx.Value(scopeKey{}).(*scope)
	return s
}

// scope is one instance of a component: goroutines that fail together.
type scope struct {
	member  *member // nil if no group shows it
	cancel  context.CancelCauseFunc
	failure chan struct{} // closed at the first failure
	empty   chan struct{} // closed when the last goroutine has ended

	mu      sync.Mutex // guards the following
	running int
	ended   bool
	err     error // the first failure; fixed once failure or empty is closed
}

// enter counts a goroutine in, unless the last one has ended already.
func (s *scope) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	s.running++
	return true
}

func (s *scope) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running--; s.running == 0 {
		s.ended = true
		close(s.empty)
	}
}

func (s *scope) isEmpty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// fail ends the instance with its first error. It reports whether that was it.
func (s *scope) fail(err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil || s.err != nil || s.ended {
		return false
	}
	s.err = err
	close(s.failure)
	s.cancel(err)
	return true
}
