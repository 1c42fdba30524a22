// Package wallclocktest sets the wall clock of times for tests.
package wallclocktest

import (
	"fmt"
	"time"
	"unsafe"
)

// Set returns what time.Now would have returned instead of now, if the wall clock had been
// set by d before, in whole seconds. The monotonic reading of now, which it must have, stays
// the same. The layout of time.Time is not a part of Go's API, so the result is checked.
func Set(now time.Time, d time.Duration) time.Time {
	const secondsShift = 30 // time.Time begins with a flag, 33 bits of seconds and 30 bits of nanoseconds
	set := now
	*(*uint64)(unsafe.Pointer(&set)) += uint64(d/time.Second) << secondsShift
	if set.Sub(now) != 0 || set.Round(0).Sub(now.Round(0)) != d {
		panic(fmt.Sprintf("the clock is set from %v by %v to %v", now, d, set))
	}
	return set
}
