// Package amount converts quantities to integers and saturates at the limits of
// int64. Quantity's own methods overflow, so that a request that is too large
// could count as a request for nothing. It also refuses quantities that take
// hours to compare, before they are parsed.
package amount

import (
	"math"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Value returns q in units, rounded up and saturated.
func Value(q resource.Quantity) int64 {
	switch {
	case q.CmpInt64(math.MaxInt64) >= 0:
		return math.MaxInt64
	case q.CmpInt64(math.MinInt64) <= 0:
		return math.MinInt64
	}
	return q.Value()
}

// Milli returns q in thousandths, rounded up and saturated.
func Milli(q resource.Quantity) int64 {
	switch {
	case q.CmpInt64(math.MaxInt64/1000) > 0:
		return math.MaxInt64
	case q.CmpInt64(math.MinInt64/1000) < 0:
		return math.MinInt64
	}
	return q.MilliValue()
}

// Sum returns a + b, saturated. Neither may be negative.
func Sum(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// Times returns a * b, saturated. Neither may be negative.
func Times(a, b int64) int64 {
	if b > 0 && a > math.MaxInt64/b {
		return math.MaxInt64
	}
	return a * b
}
