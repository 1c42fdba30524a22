package explain

import (
	"context"
	"fmt"
	"io"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/printable"
)

const (
	// dryRunNodes is how many nodes a DryRun keeps of the decision about a pod
	// that has a place, the best first.
	dryRunNodes = 5
	// dryRunReasons is for how many pods without a place it keeps all nodes.
	dryRunReasons = 10
)

// DryRun is where pods would go, one after the other.
type DryRun struct {
	// Placed is how many of the pods would get a node.
	Placed int `json:"placed"`
	// Pods are the decisions. Their Nodes are only some of the nodes: see dryRunNodes.
	Pods []*Decision `json:"pods"`
	// NotRead names what could not be read: the answer may be wrong.
	NotRead []string `json:"notRead,omitempty"`
}

// Dry decides about the pods of a manifest in turn. Each counts on its node for
// the next ones, with its volumes and devices. Pods that would wait for others of
// their gang, which get no node, get none either.
func Dry(ctx context.Context, o Options, m *Manifest) (*DryRun, error) {
	pods := m.Pods
	o.Cluster.Pods = slices.DeleteFunc(o.Cluster.Pods, func(there *v1.Pod) bool {
		return slices.ContainsFunc(pods, func(p *v1.Pod) bool { return p.Namespace == there.Namespace && p.Name == there.Name })
	})
	e, err := New(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := e.adopt(ctx, o.Kubernetes, m); err != nil {
		return nil, err
	}
	for _, pod := range pods { // a gang waits until all its pods exist
		e.Expect(pod)
	}
	d := &DryRun{NotRead: append(slices.Clone(o.Cluster.Refused), e.Refused...)}
	var waiting []*attempt
	for _, pod := range pods {
		a, err := e.decide(ctx, pod)
		if err != nil {
			return nil, fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
		decision := a.decision
		if decision.Node != "" && e.place(ctx, a) {
			waiting = append(waiting, a)
		}
		keep := dryRunNodes
		switch {
		case decision.Node != "":
			d.Placed++
		case len(d.Pods)-d.Placed < dryRunReasons:
			keep = len(decision.Nodes)
		}
		decision.Nodes = slices.Clone(decision.Nodes[:min(keep, len(decision.Nodes))])
		d.Pods = append(d.Pods, decision)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	d.Placed -= e.takeBackWaiting(ctx, waiting)
	return d, nil
}

// WriteText writes the answer, a line for each pod, and the reasons for the
// first pod without a place.
func (d *DryRun) WriteText(out io.Writer) {
	w := printable.Writer{Writer: out}
	_, _ = fmt.Fprintf(w, "%d of %s would be placed.\n", d.Placed, count(len(d.Pods), "pod"))
	table(w, "POD\tNODE\tSCORE\tWHY NOT", func(t io.Writer) {
		for _, p := range d.Pods {
			pod := p.Namespace + "/" + p.Name
			switch i := slices.IndexFunc(p.Nodes, func(n NodeDecision) bool { return n.Name == p.Node }); {
			case i >= 0:
				_, _ = fmt.Fprintf(t, "%s\t%s\t%d\n", pod, p.Node, p.Nodes[i].Score)
			case len(p.Rejections) > 0:
				_, _ = fmt.Fprintf(t, "%s\t<none>\t\t%s\n", pod, p.Answer())
			default:
				_, _ = fmt.Fprintf(t, "%s\t<none>\t\t%s\n", pod, printable.Line(p.Message))
			}
		}
	})
	if i := slices.IndexFunc(d.Pods, func(p *Decision) bool { return p.Node == "" }); i >= 0 {
		p := d.Pods[i]
		_, _ = fmt.Fprintf(w, "\nWhy %s/%s has no place: %s.\n", p.Namespace, p.Name, p.Answer())
		p.WriteText(w)
	}
	for _, n := range d.NotRead {
		_, _ = fmt.Fprintf(w, "\nNot looked at, so the answer may be wrong: %s\n", printable.Line(n))
	}
}
