package nodeaddress

import (
	"context"
	"slices"
	"sync"
)

// List has the addresses of a node, the primary one first. Several goroutines may
// use it. A nil List has none, and must not be changed.
type List struct {
	mu       sync.Mutex // guards what follows
	current  []string
	watchers map[chan struct{}]bool
}

// NewList returns a list with these addresses.
func NewList(addresses ...string) *List { return &List{current: slices.Clone(addresses)} }

// Now returns the addresses, which the caller must not change.
func (l *List) Now() []string {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.current
}

// Set replaces the addresses. It does nothing if they are the same.
func (l *List) Set(addresses []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if slices.Equal(l.current, addresses) {
		return
	}
	l.current = slices.Clone(addresses)
	for c := range l.watchers {
		select {
		case c <- struct{}{}:
		default: // the change before was not read yet
		}
	}
}

// Watch returns a channel that receives after changes, until stop is called. Changes
// that it was not read for count as one.
func (l *List) Watch() (changed <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.watchers == nil {
		l.watchers = map[chan struct{}]bool{}
	}
	l.watchers[c] = true
	return c, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.watchers, c)
	}
}

// Each calls f after each change, until ctx ends.
func (l *List) Each(ctx context.Context, f func()) {
	changed, stop := l.Watch()
	defer stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
			f()
		}
	}
}
