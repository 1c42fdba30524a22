package supervise

import (
	"context"
	"errors"
	"sync"

	"golang.org/x/sync/errgroup"
)

// Tasks is an errgroup.Group that handles a panic of a task as its error.
type Tasks struct {
	group *errgroup.Group
	scope *scope // also waits for the tasks; nil if there is none
}

// WithContext returns Tasks and a context that ends with the first error of a
// task, or when Wait returns. The instance of the component that ctx belongs to
// ends only after its tasks have.
func WithContext(ctx context.Context) (*Tasks, context.Context) {
	group, inner := errgroup.WithContext(ctx)
	return &Tasks{group: group, scope: scopeOf(ctx)}, inner
}

// NewTasks returns Tasks that continue when one of them fails.
func NewTasks(ctx context.Context) *Tasks {
	return &Tasks{group: &errgroup.Group{}, scope: scopeOf(ctx)}
}

// SetLimit bounds how many tasks run at a time. It must be called before Go.
func (t *Tasks) SetLimit(n int) { t.group.SetLimit(n) }

// Go runs f in a goroutine.
func (t *Tasks) Go(f func() error) {
	entered := t.scope != nil && t.scope.enter()
	t.group.Go(func() error {
		if entered {
			defer t.scope.leave()
		}
		return Call(f)
	})
}

// Wait returns the first error once all tasks have ended.
func (t *Tasks) Wait() error { return t.group.Wait() }

// ForEach calls f for 0 to n-1 concurrently, and returns the error of each call.
// A panic is an error.
func ForEach(n int, f func(i int) error) []error {
	errs := make([]error, n)
	var calls sync.WaitGroup
	for i := range n {
		calls.Go(func() { errs[i] = Call(func() error { return f(i) }) })
	}
	calls.Wait()
	return errs
}

// Each calls f concurrently for every item, waits for all calls and returns the
// joined errors. A panic is an error.
func Each[T any](items []T, f func(item T) error) error {
	return errors.Join(ForEach(len(items), func(i int) error { return f(items[i]) })...)
}

// WaitGroup waits for goroutines that it starts with the function Go.
type WaitGroup struct{ goroutines sync.WaitGroup }

// Go runs f in a goroutine of the component that ctx belongs to.
func (w *WaitGroup) Go(ctx context.Context, f func()) {
	w.goroutines.Add(1)
	Go(ctx, func() {
		defer w.goroutines.Done()
		f()
	})
}

// Wait returns once all goroutines have ended.
func (w *WaitGroup) Wait() { w.goroutines.Wait() }
