// Package order compares what package cmp does not.
package order

// FalseFirst compares two bools: -1 if only b is true, 1 if only a is, else 0.
func FalseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}
