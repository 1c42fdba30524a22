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

// abandonAfter is how long an instance that has failed may take to end. An
// instance that holds a lock over a panic never ends, and is abandoned.
const abandonAfter = 10 * time.Second

// ErrAbandoned says that an instance has goroutines that did not end in time.
var ErrAbandoned = fmt.Errorf("goroutines did not end within %v and were abandoned", abandonAfter)

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

// Call calls f. It recovers from a panic of f and returns it as a *Panic.
func Call(f func() error) (err error) {
	defer Catch(&err)
	return f()
}

// Catch recovers from a panic of the function that defers it and stores it in
// *err as a *Panic. It does what Call does, without a closure.
func Catch(err *error) {
	if value := recover(); value != nil {
		*err = &Panic{Value: value, Stack: debug.Stack()}
	}
}

// Run calls f and returns its error once f and every goroutine started with Go
// in its context have ended. When one of them fails or panics, or f returns,
// their context is canceled. Run returns ErrAbandoned if some have not ended ten
// seconds later, unless ctx itself is done.
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
			RecordPanic(ctx, err)
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
	late := time.NewTimer(abandonAfter)
	defer late.Stop()
	select {
	case <-s.empty:
		return s.err
	case <-late.C:
	}
	if s.fail(errEnded); s.isEmpty() {
		return s.err
	}
	return errors.Join(s.err, ErrAbandoned)
}

// Go runs f in a goroutine of the component that ctx belongs to. A panic of f
// ends the instance of the component, and the instance ends only after f has
// returned. If ctx belongs to no component, Go is a plain go statement.
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
			RecordPanic(ctx, err)
		}
	}()
}

// Fail ends the instance of the component that ctx belongs to with an error. If
// ctx belongs to none, Fail logs the error.
func Fail(ctx context.Context, err error) {
	if s := scopeOf(ctx); s != nil {
		s.fail(err)
		return
	}
	klog.FromContext(ctx).Error(err, "Failed outside of any component")
}

// FailOnPanic calls f, which works for the component that ctx belongs to in a
// goroutine that Go did not start. A panic of f ends the instance of the
// component. If ctx belongs to none, FailOnPanic only calls f.
func FailOnPanic(ctx context.Context, f func()) {
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

// scope is one instance of a component: a set of goroutines that fail together.
type scope struct {
	member  *member // nil if it is in no group
	cancel  context.CancelCauseFunc
	failure chan struct{} // closed at the first failure
	empty   chan struct{} // closed when the last goroutine has ended

	mu      sync.Mutex // guards the following
	running int
	ended   bool
	err     error // the first failure; fixed once failure or empty is closed
}

// enter counts one more goroutine, unless the last one has ended already.
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

// fail ends the instance with its first error. It reports whether err is that
// first error.
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
