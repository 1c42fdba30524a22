package profile

import (
	"context"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// Extenders take part in decisions from outside the process.
type Extenders interface {
	// Filter returns the nodes that all extenders accept, in the same order, and
	// why others were rejected.
	Filter(ctx context.Context, pod *framework.PodInfo, nodes []*framework.NodeInfo) ([]*framework.NodeInfo, map[string]*framework.Status, error)
	// Prioritize adds the extenders' scores to the scores of the nodes.
	Prioritize(ctx context.Context, pod *framework.PodInfo, nodes []*framework.NodeInfo, scores []int64)
	// Bind binds the pod, unless no extender does that for it.
	Bind(ctx context.Context, pod *framework.PodInfo, node string) (bound bool, err error)
}

// FilterExtenders asks the extenders about the nodes that passed the filters.
func (p *Profile) FilterExtenders(ctx context.Context, pod *framework.PodInfo, nodes []*framework.NodeInfo) ([]*framework.NodeInfo, map[string]*framework.Status, error) {
	if p.extenders == nil || len(nodes) == 0 {
		return nodes, nil, nil
	}
	return p.extenders.Filter(ctx, pod, nodes)
}
