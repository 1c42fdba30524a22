package fairness

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DumpPath is the path prefix of the dumps.
const DumpPath = "/debug/api_priority_and_fairness/"

// Dumps returns a handler of text dumps in upstream's columns:
// dump_priority_levels, dump_queues and dump_requests below DumpPath.
func (c *Controller) Dumps() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc(DumpPath+"dump_priority_levels", func(w http.ResponseWriter, _ *http.Request) { c.table(w, c.dumpLevels) })
	mux.HandleFunc(DumpPath+"dump_queues", func(w http.ResponseWriter, _ *http.Request) { c.table(w, c.dumpQueues) })
	mux.HandleFunc(DumpPath+"dump_requests", func(w http.ResponseWriter, r *http.Request) {
		details := r.URL.Query().Get("includeRequestDetails") != ""
		c.table(w, func(row func(...any)) { c.dumpRequests(row, details) })
	})
	return mux
}

// table writes rows of cells.
func (c *Controller) table(w io.Writer, rows func(row func(cells ...any))) {
	t := tabwriter.NewWriter(w, 8, 0, 1, ' ', 0)
	rows(func(cells ...any) {
		for i, cell := range cells {
			if i > 0 {
				_, _ = io.WriteString(t, ",\t")
			}
			_, _ = fmt.Fprint(t, cell)
		}
		_, _ = io.WriteString(t, "\n")
	})
	_ = t.Flush() // the client may be gone
}

func headings(row func(...any), names string) {
	var cells []any
	for _, name := range strings.Fields(names) {
		cells = append(cells, name)
	}
	row(cells...)
}

func (c *Controller) dumpLevels(row func(...any)) {
	headings(row, "PriorityLevelName ActiveQueues IsIdle IsQuiescing WaitingRequests ExecutingRequests DispatchedRequests RejectedRequests TimedoutRequests CancelledRequests")
	for _, l := range c.sortedLevels() {
		removed := c.isRemoved(l)
		l.mu.Lock()
		idle := l.waiting == 0 && l.executing.length == 0
		row(l.name, len(l.active), idle, removed, l.waiting, l.executing.length,
			l.counts.dispatched, l.counts.rejected, l.counts.timedOut, l.counts.cancelled)
		l.mu.Unlock()
	}
}

func (c *Controller) isRemoved(l *level) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return l.removed
}

func (c *Controller) dumpQueues(row func(...any)) {
	headings(row, "PriorityLevelName Index PendingRequests ExecutingRequests SeatsInUse NextDispatchR InitialSeatsSum MaxSeatsSum TotalWorkSum")
	for _, l := range c.sortedLevels() {
		l.mu.Lock()
		for i, q := range l.dealt {
			if q == nil {
				q = &queue{} // not used yet
			}
			row(l.name, i, q.waiting.length, q.executing, q.seats, inSeatSeconds(q.start),
				q.waitingSeats, q.waitingSeats, inSeatSeconds(seatSeconds(q.waitingSeats, expectedDuration)))
		}
		l.mu.Unlock()
	}
}

func inSeatSeconds(s float64) string { return strconv.FormatFloat(s, 'f', 8, 64) + "ss" }

func (c *Controller) dumpRequests(row func(...any), details bool) {
	names := "PriorityLevelName FlowSchemaName QueueIndex RequestIndexInQueue FlowDistingsher ArriveTime InitialSeats FinalSeats AdditionalLatency StartTime"
	if details {
		names += " UserName Verb APIPath Namespace Name APIVersion Resource SubResource"
	}
	headings(row, names)
	for _, l := range c.sortedLevels() {
		l.each(func(r *Request, place int) {
			index := -1
			if r.queue != nil {
				index = r.queue.index
			}
			cells := []any{l.name, r.schema.name, index, place, r.distinguisher,
				r.arrived.UTC().Format(time.RFC3339Nano), r.width, 0, time.Duration(0), r.started.UTC().Format(time.RFC3339Nano)}
			if details {
				i := r.info
				version := metav1.GroupVersion{Group: i.APIGroup, Version: i.APIVersion}
				cells = append(cells, r.user.GetName(), i.Verb, i.Path, i.Namespace, r.name, version.String(), i.Resource, i.Subresource)
			}
			row(cells...)
		})
	}
}
