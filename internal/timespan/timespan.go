// Package timespan converts the durations of API objects.
package timespan

import (
	"math"
	"time"
)

// longest is the largest number of seconds in a Duration: 292 years.
const longest = math.MaxInt64 / int64(time.Second)

// Seconds returns n seconds, saturated at the limits of Duration. Without
// saturation the largest deadline would overflow and lie in the past.
func Seconds(n int64) time.Duration {
	switch {
	case n > longest:
		return math.MaxInt64
	case n < -longest:
		return -math.MaxInt64
	}
	return time.Duration(n) * time.Second
}
