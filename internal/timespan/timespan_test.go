package timespan

import (
	"math"
	"testing"
	"time"
)

func TestSeconds(t *testing.T) {
	for n, want := range map[int64]time.Duration{
		0: 0, 30: 30 * time.Second, -30: -30 * time.Second,
		math.MaxInt32: math.MaxInt32 * time.Second,
		longest:       time.Duration(longest) * time.Second, longest + 1: math.MaxInt64, math.MaxInt64: math.MaxInt64,
		-longest: -time.Duration(longest) * time.Second, -longest - 1: -math.MaxInt64, math.MinInt64: -math.MaxInt64,
	} {
		if got := Seconds(n); got != want {
			t.Errorf("%d seconds are %v, want %v", n, got, want)
		}
	}
}
