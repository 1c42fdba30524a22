// Package timespan reads the spans of time that users write into objects.
package timespan

import (
	"math"
	"time"
)

// longest is the most seconds that a Duration holds: 292 years.
const longest = math.MaxInt64 / int64(time.Second)

// Seconds is n seconds. More than a Duration holds is the longest one: without
// this, a deadline that somebody puts as far off as he can has passed already.
func Seconds(n int64) time.Duration {
	switch {
	case n > longest:
		return math.MaxInt64
	case n < -longest:
		return -math.MaxInt64
	}
	return time.Duration(n) * time.Second
}
