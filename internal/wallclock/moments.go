// Package wallclock is for times that objects hold. They are of the wall clock, which may be set
// by hours while a process runs: by NTP after the boot of a machine without a battery clock, or
// when a laptop resumes.
package wallclock

import (
	"maps"
	"sync"
	"time"
)

// Moments remembers when the times that objects hold were on the monotonic clock of this
// process. What is to happen some time after a stored time then neither waits for as long as
// the wall clock was set back, nor happens at once because it was set forward:
//
//	stored time ──first seen: now minus its age by the wall clock──▶ moment ──▶ moment + period
//
// Its methods may be called from any goroutine. The zero value is empty.
type Moments[K comparable] struct {
	mu sync.Mutex // guards of
	of map[K]moment
}

type moment struct{ stored, at time.Time }

// At returns when a stored time was. now is the time of this process, from time.Now. The
// answer for a key stays the same until another time is stored.
func (m *Moments[K]) At(key K, stored, now time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if known, ok := m.of[key]; ok && known.stored.Equal(stored) {
		return known.at
	}
	if m.of == nil {
		m.of = map[K]moment{}
	}
	at := Past(stored, now)
	m.of[key] = moment{stored, at}
	return at
}

// Forget drops what is remembered of a key.
func (m *Moments[K]) Forget(key K) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.of, key)
}

// Keep drops what is remembered of all keys but those that keep returns true for.
func (m *Moments[K]) Keep(keep func(K) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.of, func(key K, _ moment) bool { return !keep(key) })
}

// Past returns when a stored time was, on the monotonic clock that now has a reading of. A
// time in the future is taken for now: the clock was set back since, or the clock of the
// machine that wrote it is ahead.
func Past(stored, now time.Time) time.Time { return now.Add(-max(now.Sub(stored), 0)) }
