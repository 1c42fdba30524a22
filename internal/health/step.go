package health

import (
	"context"
	"errors"
	"sync"
)

// Step is a step of a server's start, which is finished once.
type Step struct {
	finished chan struct{}
	finish   func()
}

// NewStep returns a step that is not finished.
func NewStep() *Step {
	s := &Step{finished: make(chan struct{})}
	s.finish = sync.OnceFunc(func() { close(s.finished) })
	return s
}

// Finish finishes the step. Further calls do nothing.
func (s *Step) Finish() { s.finish() }

// Finished returns a channel that is closed when the step is finished.
func (s *Step) Finished() <-chan struct{} { return s.finished }

var errUnfinished = errors.New("not finished")

// After returns a check that fails until finished is closed.
func After(finished <-chan struct{}, name string) Check {
	return Check{Name: name, Run: func(context.Context) error {
		select {
		case <-finished:
			return nil
		default:
			return errUnfinished
		}
	}}
}
