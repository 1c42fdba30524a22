package pod

import "sync"

// watchers want to know that something has changed.
type watchers struct {
	mu       sync.Mutex // guards channels
	channels map[chan struct{}]bool
}

// notify tells all of them.
func (ws *watchers) notify() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for c := range ws.channels {
		select {
		case c <- struct{}{}:
		default: // the change before was not read yet
		}
	}
}

// watch returns a channel that receives after changes, until stop is called. Changes
// that it was not read for count as one.
func (ws *watchers) watch() (changed <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.channels == nil {
		ws.channels = make(map[chan struct{}]bool)
	}
	ws.channels[c] = true
	return c, func() {
		ws.mu.Lock()
		defer ws.mu.Unlock()
		delete(ws.channels, c)
	}
}
