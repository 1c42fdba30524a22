// Package contain keeps a panic over one pod from ending the work for all
// others: it becomes an error of the piece of work that it happened in.
package contain

import (
	"context"
	"fmt"
	"runtime/debug"

	"golang.org/x/sync/errgroup"
)

// Panic is a panic as an error.
type Panic struct {
	Value any
	Stack []byte // of the goroutine that panicked
}

// Error implements error. It leaves the stack out.
func (p *Panic) Error() string { return fmt.Sprintf("panic: %v", p.Value) }

// Call calls f and returns its panic as a *Panic.
func Call(f func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &Panic{Value: value, Stack: debug.Stack()}
		}
	}()
	return f()
}

// Group is an errgroup.Group of which a panic is an error.
type Group struct{ group *errgroup.Group }

// Together returns a group and a context that ends with its first error, or
// when Wait returns.
func Together(ctx context.Context) (*Group, context.Context) {
	group, ctx := errgroup.WithContext(ctx)
	return &Group{group}, ctx
}

// Apart returns a group whose goroutines go on when one of them fails.
func Apart() *Group { return &Group{&errgroup.Group{}} }

// SetLimit bounds how many goroutines run at a time. It comes before Go.
func (g *Group) SetLimit(n int) { g.group.SetLimit(n) }

// Go calls f in a goroutine.
func (g *Group) Go(f func() error) { g.group.Go(func() error { return Call(f) }) }

// Wait returns the first error once all goroutines have ended.
func (g *Group) Wait() error { return g.group.Wait() }
