package job

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// indexes is a set of completion indexes. It consists of ranges in ascending order that
// are not adjacent. The cost of operations depends on the number of ranges and not on
// their lengths, which users choose.
type indexes []indexRange

// indexRange is the range of indexes from first to last, inclusive.
type indexRange struct{ first, last int }

// parseIndexes parses a set such as "1,3-5,7". It ignores malformed parts.
func parseIndexes(s string) indexes {
	var ranges []indexRange
	for part := range strings.SplitSeq(s, ",") {
		from, to, isRange := strings.Cut(part, "-")
		r := indexRange{}
		var err error
		if r.first, err = number(from); err != nil {
			continue
		}
		r.last = r.first
		if isRange {
			if r.last, err = number(to); err != nil {
				continue
			}
		}
		if r.first <= r.last {
			ranges = append(ranges, r)
		}
	}
	return join(ranges)
}

// number parses an index of at most 31 bits, so that calculations do not overflow.
func number(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 31)
	return int(n), err
}

// join returns the set of ranges in any order. It reuses the slice.
func join(ranges []indexRange) indexes {
	slices.SortFunc(ranges, func(a, b indexRange) int { return cmp.Compare(a.first, b.first) })
	out := ranges[:0]
	for _, r := range ranges {
		if last := len(out) - 1; last >= 0 && r.first <= out[last].last+1 {
			out[last].last = max(out[last].last, r.last)
			continue
		}
		out = append(out, r)
	}
	return indexes(out)
}

// with returns a copy of the set with indexes added.
func (x indexes) with(more ...int) indexes {
	ranges := slices.Grow(slices.Clone([]indexRange(x)), len(more))
	for _, i := range more {
		ranges = append(ranges, indexRange{i, i})
	}
	return join(ranges)
}

// find returns the position of the first range whose last index is at least i.
func (x indexes) find(i int) int {
	at, _ := slices.BinarySearchFunc(x, i, func(r indexRange, i int) int { return cmp.Compare(r.last, i) })
	return at
}

func (x indexes) has(i int) bool {
	at := x.find(i)
	return at < len(x) && x[at].first <= i
}

// below returns the indexes of the set that are less than n.
func (x indexes) below(n int) indexes {
	at := x.find(n)
	out := slices.Clone(x[:at])
	if at < len(x) && x[at].first < n {
		out = append(out, indexRange{x[at].first, n - 1})
	}
	return out
}

// gap returns the first index that is at least i and not in the set.
func (x indexes) gap(i int) int {
	if at := x.find(i); at < len(x) && x[at].first <= i {
		return x[at].last + 1
	}
	return i
}

// count returns the number of indexes in the set, at most math.MaxInt32.
func (x indexes) count() int32 {
	n := 0
	for _, r := range x {
		n += r.last - r.first + 1
	}
	return int32(min(n, math.MaxInt32))
}

// common returns the number of indexes in both sets, at most math.MaxInt32.
func (x indexes) common(other indexes) int32 {
	n := 0
	for i, j := 0, 0; i < len(x) && j < len(other); {
		n += max(0, min(x[i].last, other[j].last)-max(x[i].first, other[j].first)+1)
		if x[i].last < other[j].last {
			i++
		} else {
			j++
		}
	}
	return int32(min(n, math.MaxInt32))
}

// String returns the set in the format of parseIndexes. Only three or more consecutive
// indexes are written as a range.
func (x indexes) String() string {
	parts := make([]string, len(x))
	for i, r := range x {
		switch r.last - r.first {
		case 0:
			parts[i] = strconv.Itoa(r.first)
		case 1:
			parts[i] = fmt.Sprintf("%d,%d", r.first, r.last)
		default:
			parts[i] = fmt.Sprintf("%d-%d", r.first, r.last)
		}
	}
	return strings.Join(parts, ",")
}
