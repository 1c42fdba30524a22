package supervise

import (
	"context"
	"sync"

	"golang.org/x/sync/errgroup"
)

// Tasks are goroutines that somebody waits for, as an errgroup.Group, but a
// panic is an error: it ends the context of the others, and Wait returns it.
type Tasks struct {
	group *errgroup.Group
	scope *scope // waits for them too; nil if there is none
}

// Together returns Tasks and the context that ends with the first error of
// one of them, or when Wait returns. An instance of a component does not end
// before its tasks have.
func Together(ctx context.Context) (*Tasks, context.Context) {
	group, inner := errgroup.WithContext(ctx)
	return &Tasks{group: group, scope: scopeOf(ctx)}, inner
}

// Apart returns Tasks that go on when one of them fails.
func Apart(ctx context.Context) *Tasks {
	return &Tasks{group: &errgroup.Group{}, scope: scopeOf(ctx)}
}

// SetLimit bounds how many tasks run at a time. It comes before the first Go.
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

// Wait returns the first error once all have ended.
func (t *Tasks) Wait() error { return t.group.Wait() }

// Each calls f for 0 to n-1, all at once, and returns what each call returned.
// A panic is an error.
func Each(n int, f func(i int) error) []error {
	errs := make([]error, n)
	var calls sync.WaitGroup
	for i := range n {
		calls.Go(func() { errs[i] = Call(func() error { return f(i) }) })
	}
	calls.Wait()
	return errs
}

// WaitGroup waits for goroutines that are begun as by the function Go.
type WaitGroup struct{ goroutines sync.WaitGroup }

// Go runs f in a goroutine of the component that ctx belongs to.
func (w *WaitGroup) Go(ctx context.Context, f func()) {
	w.goroutines.Add(1)
	Go(ctx, func() {
		defer w.goroutines.Done()
		f()
	})
}

// Wait returns once all have ended.
func (w *WaitGroup) Wait() { w.goroutines.Wait() }
