package controller

import "sync"

// Marks is a set of keys. Its methods may be called from any goroutine. The zero
// value is empty.
type Marks[K comparable] struct {
	mu  sync.Mutex // guards set
	set map[K]struct{}
}

// Set marks a key, or removes its mark, and reports whether it was marked.
func (m *Marks[K]) Set(key K, marked bool) (before bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, before = m.set[key]
	if !marked {
		delete(m.set, key)
		return before
	}
	if m.set == nil {
		m.set = map[K]struct{}{}
	}
	m.set[key] = struct{}{}
	return before
}
