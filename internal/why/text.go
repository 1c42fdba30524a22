package why

import (
	"fmt"
	"io"
	"strings"

	"github.com/coracle-io/coracle/internal/printable"
)

// WriteText writes the report for people: the answer, then the reasons, then
// what would help.
func (r *Report) WriteText(out io.Writer) {
	w := printable.Writer{Writer: out}
	verb := "is"
	if r.State == failed || r.State == finished {
		verb = "has"
	}
	_, _ = fmt.Fprintf(w, "Pod %s/%s %s %s: %s.\n", r.Namespace, r.Name, verb, r.State, strings.TrimSuffix(printable.Line(r.Answer), "."))
	for _, f := range r.Findings {
		f.write(w)
	}
	if len(r.WhatIf) > 0 {
		_, _ = fmt.Fprintf(w, "\nWhat if: %s.\n", printable.Line(strings.Join(r.WhatIf, ", ")))
		if r.State != pending && r.Scheduling != nil {
			_, _ = fmt.Fprintf(w, "Scheduled again, %s.\n", r.Scheduling.Answer())
		}
	}
	if d := r.Scheduling; d != nil {
		if len(r.WhatIf) == 0 && r.Node != "" {
			r.writePlacement(w)
		}
		d.WriteText(w)
	}
	if len(r.NotRead) > 0 {
		_, _ = fmt.Fprintf(w, "\nNot looked at, so the answer may be incomplete:\n")
		for _, n := range r.NotRead {
			_, _ = fmt.Fprintf(w, "- %s\n", oneLine(n))
		}
	}
}

// writePlacement introduces the scores of a pod that is on a node.
func (r *Report) writePlacement(w io.Writer) {
	d := r.Scheduling
	answer := d.Answer()
	for _, n := range d.Nodes {
		if n.Feasible && n.Name == r.Node && (d.Node == r.Node || n.Score == d.Nodes[0].Score) {
			answer = "the scheduler would choose it again"
			if len(d.Tied) > 0 {
				answer = "it is one of the best nodes, which have the same score"
			}
		}
	}
	_, _ = fmt.Fprintf(w, "\nWhy node %s, as the cluster is now: %s.\n", r.Node, answer)
}

func (f *Finding) write(w io.Writer) {
	_, _ = fmt.Fprintf(w, "\n%s: %s\n", printable.Line(f.Subject), printable.Line(f.Reason))
	_, _ = fmt.Fprintf(w, "  %s\n", printable.Line(f.Message))
	if len(f.Log) > 0 {
		_, _ = fmt.Fprintln(w, "  The end of its log:")
		for _, line := range f.Log {
			_, _ = fmt.Fprintf(w, "  | %s\n", line)
		}
	}
	if len(f.Remedies) > 0 {
		_, _ = fmt.Fprintf(w, "  What would help: %s\n", printable.Line(strings.Join(f.Remedies, ", or ")))
	}
}
