package explain

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/coracle-io/coracle/internal/printable"
)

const (
	// rowNodes is how many nodes the text lists, and scoreNodes how many it
	// gives the scores of. The JSON form has all.
	rowNodes   = 20
	scoreNodes = 5
	// shownRemedies is for how many nodes the text says what would help.
	shownRemedies = 3
	// shownVictims is how many pods that would be evicted are named.
	shownVictims = 5
)

// Answer is the decision in one sentence.
func (d *Decision) Answer() string {
	switch {
	case d.Node != "" && d.Nominated:
		return fmt.Sprintf("it would go to node %s, where room was made for it", d.Node)
	case d.Node != "" && len(d.Tied) > 0:
		return fmt.Sprintf("it would go to one of the nodes %s, which have the same score", some(d.Tied, scoreNodes))
	case d.Node != "":
		return "it would go to node " + d.Node
	case len(d.Rejections) > 0:
		answer := printable.Line(d.Rejections[0].Obstacles[0].Text)
		if n := d.numFeasible(); n > 0 {
			answer += fmt.Sprintf("; otherwise %s could take it", count(n, "node"))
		}
		return answer
	case len(d.Nodes) == 0:
		return "the cluster has no nodes"
	case len(d.Nodes) == 1:
		return fmt.Sprintf("the only node, %s, cannot take it", d.Nodes[0].Name)
	}
	return fmt.Sprintf("none of the %d nodes can take it", len(d.Nodes))
}

func (d *Decision) numFeasible() (n int) {
	for i := range d.Nodes {
		if d.Nodes[i].Feasible {
			n++
		}
	}
	return n
}

// WriteText writes the reasons for people.
func (d *Decision) WriteText(out io.Writer) {
	w := printable.Writer{Writer: out}
	if len(d.Rejections) > 1 || len(d.Rejections) == 1 && len(d.Rejections[0].Obstacles) > 1 { // a single one is the answer
		table(w, "PLUGIN\tWHY NOT", func(t io.Writer) {
			for _, r := range d.Rejections {
				writeRejection(t, "", r)
			}
		})
	}
	d.writeScores(w)
	d.writeRejected(w)
	d.writePreemption(w)
	d.writeRemedies(w)
}

// table writes aligned columns after an empty line.
func table(w io.Writer, header string, rows func(io.Writer)) {
	_, _ = fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, header)
	rows(t)
	_ = t.Flush()
}

func writeRejection(t io.Writer, prefix string, r Rejection) {
	for i, o := range r.Obstacles {
		name, text := r.Plugin, printable.Line(o.Text)
		if i > 0 {
			name = ""
		}
		if r.Nominated {
			text += " (room that is being made for another pod counts as taken)"
		}
		_, _ = fmt.Fprintf(t, "%s%s\t%s\n", prefix, name, text)
		if prefix != "" {
			prefix = "\t"
		}
	}
}

// writeScores writes a column for each of the best nodes, beginning with the
// one that was chosen.
func (d *Decision) writeScores(w io.Writer) {
	var best []*NodeDecision
	for i := range d.Nodes {
		if n := &d.Nodes[i]; n.Feasible && (len(best) < scoreNodes || n.Name == d.Node) {
			best = append(best, n)
		}
	}
	if len(best) == 0 {
		return
	}
	slices.SortStableFunc(best, func(x, y *NodeDecision) int {
		switch {
		case x.Name == d.Node:
			return -1
		case y.Name == d.Node:
			return 1
		}
		return 0
	})
	header := []string{"SCORE BY PLUGIN", "WEIGHT"}
	for _, n := range best {
		header = append(header, n.Name)
	}
	table(w, strings.Join(header, "\t"), func(t io.Writer) {
		for i, s := range best[0].Scores {
			row := []string{s.Plugin, "x" + strconv.FormatInt(s.Weight, 10)}
			for _, n := range best {
				row = append(row, strconv.FormatInt(n.Scores[i].Weighted, 10))
			}
			_, _ = fmt.Fprintln(t, strings.Join(row, "\t"))
		}
		row := []string{"sum", ""}
		for _, n := range best {
			row = append(row, strconv.FormatInt(n.Score, 10))
		}
		_, _ = fmt.Fprintln(t, strings.Join(row, "\t"))
	})
	if more := d.numFeasible() - len(best); more > 0 {
		_, _ = fmt.Fprintf(w, "... and %s with lower scores\n", count(more, "node"))
	}
}

func (d *Decision) writeRejected(w io.Writer) {
	var rejected []*NodeDecision
	for i := range d.Nodes {
		if !d.Nodes[i].Feasible && len(d.Nodes[i].Rejections) > 0 {
			rejected = append(rejected, &d.Nodes[i])
		}
	}
	if len(rejected) == 0 {
		return
	}
	table(w, "NODE\tPLUGIN\tWHY NOT", func(t io.Writer) {
		for _, n := range rejected[:min(rowNodes, len(rejected))] {
			prefix := n.Name + "\t"
			for _, r := range n.Rejections {
				writeRejection(t, prefix, r)
				prefix = "\t"
			}
		}
	})
	if more := len(rejected) - rowNodes; more > 0 {
		_, _ = fmt.Fprintf(w, "... and %s (-o json has all)\n", count(more, "node"))
		_, _ = fmt.Fprintf(w, "In all: %s\n", printable.Line(d.Message))
	}
}

func (d *Decision) writePreemption(w io.Writer) {
	p := d.Preemption
	if p == nil {
		return
	}
	var names []string
	for _, v := range p.Victims {
		names = append(names, fmt.Sprintf("%s/%s (priority %d)", v.Namespace, v.Name, v.Priority))
	}
	_, _ = fmt.Fprintln(w)
	switch {
	case len(names) == 0:
		_, _ = fmt.Fprintf(w, "Preemption: node %s has room once the pods that terminate there are gone.\n", p.Node)
	default:
		_, _ = fmt.Fprintf(w, "Preemption: the scheduler would make room on node %s by evicting %s.\n", p.Node, some(names, shownVictims))
	}
	if p.NumPDBViolations > 0 {
		_, _ = fmt.Fprintf(w, "A PodDisruptionBudget protects %d of them; preemption does not always spare those.\n", p.NumPDBViolations)
	}
}

// writeRemedies says what would help: against what is in the way of the pod,
// and then on the nodes that are nearest to taking it.
func (d *Decision) writeRemedies(w io.Writer) {
	if d.Node != "" {
		return
	}
	var lines []string
	for _, r := range d.Rejections {
		for _, o := range r.Obstacles {
			if len(o.Remedies) > 0 {
				lines = append(lines, alternatives("- ", o.Remedies)...)
			}
		}
	}
	writeLines(w, "What would help:", lines)
	if d.numFeasible() > 0 {
		return
	}
	lines, shown := nil, 0
	for i := range d.Nodes {
		n := &d.Nodes[i]
		changes, complete := n.changes()
		if !complete || shown == shownRemedies {
			continue
		}
		shown++
		if len(changes) == 1 {
			lines = append(lines, alternatives("- on node "+n.Name+": ", changes[0])...)
			continue
		}
		lines = append(lines, "- on node "+n.Name+", all of these:")
		for _, c := range changes {
			lines = append(lines, alternatives("  - ", c)...)
		}
	}
	switch {
	case len(d.Nodes) == 0 && len(d.Rejections) == 0:
		lines = []string{"- add a node to the cluster"}
	case shown == 0 && len(d.Rejections) == 0:
		lines = []string{"- add a node that has what the pod asks for"}
	}
	heading := "What would help:"
	if shown > 1 {
		heading = "What would help, one of:"
	}
	writeLines(w, heading, lines)
}

func writeLines(w io.Writer, heading string, lines []string) {
	if len(lines) > 0 {
		_, _ = fmt.Fprintf(w, "\n%s\n%s\n", heading, strings.Join(lines, "\n"))
	}
}

// alternatives writes remedies, one of which is enough, on one line if it is
// not too long.
func alternatives(first string, remedies []string) []string {
	const wide = 100
	remedies = slices.Clone(remedies)
	for i := range remedies {
		remedies[i] = printable.Line(remedies[i])
	}
	if line := first + strings.Join(remedies, ", or "); len(line) <= wide {
		return []string{line}
	}
	indent := strings.Repeat(" ", strings.Index(first, "-")+2)
	lines := []string{first + remedies[0]}
	for _, r := range remedies[1:] {
		lines = append(lines, indent+"or "+r)
	}
	return lines
}

// changes returns what must be done for the node to take the pod. Each change
// is a list of alternatives. complete is false if there is an obstacle without
// a remedy.
func (n *NodeDecision) changes() (changes [][]string, complete bool) {
	if n.Feasible {
		return nil, false
	}
	for _, r := range n.Rejections {
		for _, o := range r.Obstacles {
			if len(o.Remedies) == 0 {
				return nil, false
			}
			if !slices.ContainsFunc(changes, func(c []string) bool { return slices.Equal(c, o.Remedies) }) {
				changes = append(changes, o.Remedies)
			}
		}
	}
	return changes, true
}

// some lists the first names, and how many more there are.
func some(names []string, most int) string {
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	if len(names) > 1 {
		return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
	}
	return strings.Join(names, "")
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
