package files

import (
	"testing"
	"testing/synctest"

	"github.com/fsnotify/fsnotify"
)

// After an overflow of the inotify queue any change may be lost. The watcher
// reports a change, and does not block.
func TestOverflowIsReportedAsChange(t *testing.T) {
	synctest.Test(t, testOverflow)
}

func testOverflow(*testing.T) {
	changed, events, errs := make(chan struct{}, 1), make(chan fsnotify.Event), make(chan error)
	done := make(chan struct{})
	go func() {
		defer close(done)
		notify(changed, events, errs)
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
