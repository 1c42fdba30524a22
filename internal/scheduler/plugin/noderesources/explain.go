package noderesources

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// Explain implements framework.Explainer: it says how much of what is missing.
func (f *fit) Explain(_ *framework.CycleState, pod *framework.PodInfo, n *framework.NodeInfo) (out []framework.Obstacle) {
	if n.Requested.Pods+1 > n.Allocatable.Pods {
		out = append(out, framework.Obstacle{
			Text:     fmt.Sprintf("pods: the node has as many as it allows (%d)", n.Allocatable.Pods),
			Remedies: []string{"delete or move a pod of node " + n.Name},
		})
	}
	want := &pod.Requests
	names := append([]v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage}, slices.Sorted(maps.Keys(want.Scalar))...)
	for _, name := range names {
		if o := shortage(n, name, want.Of(name)); o != nil && !f.ignores(name) && !f.classes.OnNode(name, n) {
			out = append(out, *o)
		}
	}
	return out
}

// shortage explains why an amount of a resource does not fit, or returns nil if
// it does.
func shortage(n *framework.NodeInfo, name v1.ResourceName, want int64) *framework.Obstacle {
	all, used := n.Allocatable.Of(name), n.Requested.Of(name)
	if fits(want, all, used) {
		return nil
	}
	free := max(all-used, 0)
	o := &framework.Obstacle{Text: fmt.Sprintf("%s: %s requested, %s of %s free", name, written(name, want, up), written(name, free, down), written(name, all, down))}
	switch {
	case all <= 0:
		o.Text = fmt.Sprintf("%s: %s requested, the node has none", name, written(name, want, up))
	case want > all:
		o.Text += ": too much even for the empty node"
	default:
		o.Remedies = append(o.Remedies, fmt.Sprintf("free %s %s on node %s", written(name, want-free, up), name, n.Name))
	}
	if free > 0 {
		o.Remedies = append(o.Remedies, fmt.Sprintf("request at most %s %s", written(name, free, down), name))
	}
	return o
}

const (
	down = false
	up   = true
)

// written is an amount of a resource as a quantity. Bytes are rounded to
// mebibytes, in the direction that keeps statements true.
func written(name v1.ResourceName, n int64, upwards bool) string {
	const mebibyte = 1 << 20
	switch name {
	case v1.ResourceCPU:
		return resource.NewMilliQuantity(n, resource.DecimalSI).String()
	case v1.ResourceMemory, v1.ResourceEphemeralStorage:
		rest := n % mebibyte
		if n < mebibyte || rest == 0 {
			break
		}
		n -= rest
		if upwards && n < 1<<62 {
			n += mebibyte
		}
	default:
		return resource.NewQuantity(n, resource.DecimalSI).String()
	}
	return resource.NewQuantity(n, resource.BinarySI).String()
}
