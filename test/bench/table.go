package main

import (
	"fmt"
	"io"
	"slices"
	"time"
)

// table prints rows in columns as they are measured.
type table struct{ w io.Writer }

func newTable(w io.Writer) *table {
	t := &table{w}
	t.row("what", "budget", "measured")
	return t
}

// add prints a row. The budget may be empty.
func (t *table) add(what, budget, format string, measured ...any) {
	t.row(what, budget, fmt.Sprintf(format, measured...))
}

func (t *table) row(what, budget, measured string) {
	_, _ = fmt.Fprintf(t.w, "%-58s  %-18s  %s\n", what, budget, measured)
}

// latencies are sorted durations.
type latencies []time.Duration

func sorted(d []time.Duration) latencies {
	slices.Sort(d)
	return d
}

// quantile returns the q-quantile of the durations, or 0 if there are none.
func (l latencies) quantile(q float64) time.Duration {
	if len(l) == 0 {
		return 0
	}
	return l[min(int(q*float64(len(l))), len(l)-1)]
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
