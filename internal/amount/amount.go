// Package amount reads the quantities that users write into objects. What is
// more than an int64 holds is the largest one: Quantity's own methods make any
// number of it, 0 for example, so that whoever asks for too much would count
// as asking for nothing.
package amount

import (
	"math"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Value is a quantity in units, rounded up.
func Value(q resource.Quantity) int64 {
	switch {
	case q.CmpInt64(math.MaxInt64) >= 0:
		return math.MaxInt64
	case q.CmpInt64(math.MinInt64) <= 0:
		return math.MinInt64
	}
	return q.Value()
}

// Milli is a quantity in thousandths, rounded up.
func Milli(q resource.Quantity) int64 {
	switch {
	case q.CmpInt64(math.MaxInt64/1000) > 0:
		return math.MaxInt64
	case q.CmpInt64(math.MinInt64/1000) < 0:
		return math.MinInt64
	}
	return q.MilliValue()
}

// Sum adds amounts, of which neither is below 0.
func Sum(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// Times multiplies amounts, of which neither is below 0.
func Times(a, b int64) int64 {
	if b > 0 && a > math.MaxInt64/b {
		return math.MaxInt64
	}
	return a * b
}
