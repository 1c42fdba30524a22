// Package doctor says what on this machine keeps a cluster from working, why,
// and what to do. It changes nothing.
//
//	Examine ── Options ──► Read ── Facts ──► Diagnose ── findings ──► Report
//	(the cluster)      (the machine)          (pure)
package doctor

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// Status says how bad a finding is.
type Status string

// The statuses, from good to bad.
const (
	OK      Status = "ok"
	Warning Status = "warning" // something works worse than it could, or may fail later
	Failed  Status = "failed"  // a cluster does not start or does not work
)

// Finding is the result of a check.
type Finding struct {
	Check  string `json:"check"`
	Status Status `json:"status"`
	Cause  string `json:"cause"`            // what was found
	Advice string `json:"advice,omitempty"` // what to do; empty if it is OK
}

// Report is the findings about a machine.
type Report struct {
	Findings []Finding `json:"findings"`
}

// Failed reports whether a cluster cannot work.
func (r Report) Failed() bool { return len(r.Problems()) > 0 }

// Problems returns the findings that keep a cluster from working.
func (r Report) Problems() []Finding {
	var failed []Finding
	for _, f := range r.Findings {
		if f.Status == Failed {
			failed = append(failed, f)
		}
	}
	return failed
}

// WriteText writes a line for each finding, and one with advice below those
// that are not OK.
func (r Report) WriteText(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	defer func() { _ = w.Flush() }()
	for _, f := range r.Findings {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", f.Status, f.Check, f.Cause)
		if f.Advice != "" {
			_, _ = fmt.Fprintf(w, "\t\t→ %s\n", f.Advice)
		}
	}
}
