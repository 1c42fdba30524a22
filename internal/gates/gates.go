// Package gates lets goroutines that work for the same client, pod or volume wait for
// each other.
package gates

import (
	"context"
	"sync"
)

// Gates are gates by names, each of which some goroutines pass at a time. One exists while
// anybody uses it. The zero value is ready to use.
type Gates[K comparable] struct {
	mu    sync.Mutex // guards gates
	gates map[K]*gate
}

type gate struct {
	users  int           // who have passed or wait
	passed chan struct{} // has an element for each who has passed
}

// Enter waits until fewer than size others have passed the gate of a name, or ctx ends.
// size is the same for each use of a name. The caller must call leave, once.
func (g *Gates[K]) Enter(ctx context.Context, name K, size int) (leave func(), err error) {
	its := g.use(name, size)
	select {
	case its.passed <- struct{}{}:
	default:
		select {
		case its.passed <- struct{}{}:
		case <-ctx.Done():
			g.end(name, its)
			return nil, ctx.Err()
		}
	}
	return func() {
		<-its.passed
		g.end(name, its)
	}, nil
}

// Len returns how many gates there are.
func (g *Gates[K]) Len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.gates)
}

func (g *Gates[K]) use(name K, size int) *gate {
	g.mu.Lock()
	defer g.mu.Unlock()
	its := g.gates[name]
	if its == nil {
		if g.gates == nil {
			g.gates = map[K]*gate{}
		}
		its = &gate{passed: make(chan struct{}, size)}
		g.gates[name] = its
	}
	its.users++
	return its
}

func (g *Gates[K]) end(name K, its *gate) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if its.users--; its.users == 0 {
		delete(g.gates, name)
	}
}
