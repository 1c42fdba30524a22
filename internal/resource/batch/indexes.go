package batch

import (
	"fmt"
	"strconv"
	"strings"
)

// An interval is a range of a job's indexes, both ends included.
type interval struct{ first, last int32 }

// parseInterval parses "3" or "3-5". The indexes must be below completions.
func parseInterval(text string, completions int32) (interval, error) {
	ends := strings.Split(text, "-")
	if len(ends) > 2 {
		return interval{}, fmt.Errorf("the fragment %q violates the requirement that an index interval can have at most two parts separated by '-'", text)
	}
	var numbers [2]int32
	for i, end := range ends {
		n, err := strconv.Atoi(end)
		if err != nil {
			return interval{}, fmt.Errorf("cannot convert string to integer for index: %q", end)
		}
		if n >= int(completions) {
			return interval{}, fmt.Errorf("too large index: %q", end)
		}
		numbers[i] = int32(n)
	}
	if len(ends) == 1 {
		return interval{numbers[0], numbers[0]}, nil
	}
	if numbers[0] >= numbers[1] {
		return interval{}, fmt.Errorf("non-increasing order, previous: %d, current: %d", numbers[0], numbers[1])
	}
	return interval{numbers[0], numbers[1]}, nil
}

// countIndexes counts the indexes of a list such as "1,3-5,7". They must be
// ascending and below completions.
func countIndexes(list string, completions int32) (int32, error) {
	if list == "" {
		return 0, nil
	}
	var total int32
	last := int32(-1)
	for _, text := range strings.Split(list, ",") {
		i, err := parseInterval(text, completions)
		if err != nil {
			return 0, err
		}
		if last >= i.first {
			return 0, fmt.Errorf("non-increasing order, previous: %d, current: %d", last, i.first)
		}
		total += i.last - i.first + 1
		last = i.last
	}
	return total, nil
}

// commonIndex returns an error if an index is in both of two ascending lists.
// It does not check the form of the lists.
func commonIndex(completed, failed string, completions int32) error {
	if completed == "" || failed == "" {
		return nil
	}
	a, b := goodIntervals(completed, completions), goodIntervals(failed, completions)
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0].last < b[0].first:
			a = a[1:]
		case b[0].last < a[0].first:
			b = b[1:]
		default:
			return fmt.Errorf("failedIndexes and completedIndexes overlap at index: %d", max(a[0].first, b[0].first))
		}
	}
	return nil
}

func goodIntervals(list string, completions int32) []interval {
	var out []interval
	for text := range strings.SplitSeq(list, ",") {
		if i, err := parseInterval(text, completions); err == nil {
			out = append(out, i)
		}
	}
	return out
}
