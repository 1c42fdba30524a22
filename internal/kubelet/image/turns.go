package image

import (
	"context"
	"slices"
	"sync"
	"time"
)

// longestTurn is how long a pull keeps others waiting. A registry that sends its
// layers slowly, which any pod may name, must not keep them waiting for ever.
const longestTurn = time.Minute

// turns lets a number of pulls run at a time. Namespaces with pulls that wait take
// turns, so that many pulls of one do not delay those of another.
type turns struct {
	mu      sync.Mutex // guards what follows
	free    int
	waiting map[string][]chan struct{} // by namespace, each closed when it is its turn
	order   []string                   // of the namespaces that wait; the first is next
}

func newTurns(parallel int) *turns {
	return &turns{free: parallel, waiting: map[string][]chan struct{}{}}
}

// take waits for a turn. The caller must call end, once. The turn ends before that if
// it takes too long.
func (t *turns) take(ctx context.Context, namespace string) (end func(), err error) {
	t.mu.Lock()
	if t.free > 0 {
		t.free--
		t.mu.Unlock()
		return t.begin(), nil
	}
	turn := make(chan struct{})
	if len(t.waiting[namespace]) == 0 {
		t.order = append(t.order, namespace)
	}
	t.waiting[namespace] = append(t.waiting[namespace], turn)
	t.mu.Unlock()
	select {
	case <-turn:
		return t.begin(), nil
	case <-ctx.Done():
		t.leave(namespace, turn)
		return nil, ctx.Err()
	}
}

// begin begins a turn, and returns how to end it.
func (t *turns) begin() (end func()) {
	once := sync.OnceFunc(t.next)
	late := time.AfterFunc(longestTurn, once)
	return func() {
		late.Stop()
		once()
	}
}

// next gives a turn that has ended to the next namespace.
func (t *turns) next() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.order) == 0 {
		t.free++
		return
	}
	namespace := t.order[0]
	list := t.waiting[namespace]
	close(list[0])
	t.order = t.order[1:]
	if t.waiting[namespace] = list[1:]; len(list) > 1 {
		t.order = append(t.order, namespace)
	} else {
		delete(t.waiting, namespace)
	}
}

// leave gives up waiting for a turn, which may have come meanwhile.
func (t *turns) leave(namespace string, turn chan struct{}) {
	t.mu.Lock()
	list := t.waiting[namespace]
	i := slices.Index(list, turn)
	if i >= 0 {
		if t.waiting[namespace] = slices.Delete(list, i, i+1); len(t.waiting[namespace]) == 0 {
			delete(t.waiting, namespace)
			t.order = slices.DeleteFunc(t.order, func(n string) bool { return n == namespace })
		}
	}
	t.mu.Unlock()
	if i < 0 {
		t.next()
	}
}
