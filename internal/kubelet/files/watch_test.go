package files

import (
	"testing"

	"github.com/fsnotify/fsnotify"
)

// A queue of inotify that has overflowed may have lost any change, and must
// not keep the watcher from telling of the next.
func TestAnOverflowIsAChange(t *testing.T) {
	changed, events, errs := make(chan struct{}, 1), make(chan fsnotify.Event), make(chan error)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tell(changed, events, errs)
	}()
	for range 2 {
		errs <- fsnotify.ErrEventOverflow
		<-changed
		events <- fsnotify.Event{Name: "f", Op: fsnotify.Write}
		<-changed
	}
	close(errs)
	close(events)
	<-done
}
