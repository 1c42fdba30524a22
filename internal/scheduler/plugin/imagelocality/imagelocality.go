// Package imagelocality prefers nodes that hold the pod's images already.
package imagelocality

import (
	"context"
	"iter"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// Name is the plugin's name in configurations.
const Name = "ImageLocality"

// Sizes between which the score rises, in bytes: below the first an image is
// pulled so fast that it does not matter. The second is for each image.
const (
	minimum  = 23 << 20
	perImage = 1000 << 20
)

// Factory describes the plugin.
func Factory() framework.Factory {
	return framework.Factory{Name: Name, New: func(_ context.Context, _ any, h *framework.Handle) (framework.Plugin, error) {
		return &plugin{framework.NewStateKey[*preScoreState](h)}, nil
	}}
}

type plugin struct {
	key framework.StateKey[*preScoreState]
}

// preScoreState holds the images of a pod with their scaled sizes.
type preScoreState struct {
	names   []string
	scaled  []int64 // size of each, times the share of nodes that hold it
	ceiling int64
}

// Name implements framework.Plugin.
func (*plugin) Name() string { return Name }

// PreScore implements framework.PreScorePlugin. Each image is scaled by the
// share of nodes that hold it, so that pods do not gather where an image
// happened to come first.
func (p *plugin) PreScore(_ context.Context, state *framework.CycleState, pod *framework.PodInfo, snapshot *framework.Snapshot, _ []*framework.NodeInfo) *framework.Status {
	if snapshot.NumImages() == 0 || snapshot.NumNodes() == 0 {
		return framework.NewStatus(framework.Skip, Name)
	}
	s := &preScoreState{}
	for reference := range images(&pod.Pod.Spec) {
		name := normalized(reference)
		image := snapshot.Image(name)
		s.names = append(s.names, name)
		s.scaled = append(s.scaled, image.Size*int64(image.NumNodes)/int64(snapshot.NumNodes()))
	}
	s.ceiling = int64(perImage) * int64(len(s.names))
	p.key.Put(state, s)
	return nil
}

// images yields the images of the containers and of image volumes (KEP-4639).
func images(s *v1.PodSpec) iter.Seq[string] {
	return func(yield func(string) bool) {
		for c := range podquery.Containers(s) {
			if !yield(c.Image) {
				return
			}
		}
		for i := range s.Volumes {
			if image := s.Volumes[i].Image; image != nil && !yield(image.Reference) {
				return
			}
		}
	}
}

// Score implements framework.ScorePlugin: the bytes that need not be pulled.
func (p *plugin) Score(_ context.Context, state *framework.CycleState, _ *framework.PodInfo, n *framework.NodeInfo) (int64, *framework.Status) {
	s, _ := p.key.Get(state)
	var sum int64
	for i, name := range s.names {
		if s.scaled[i] > 0 && n.HasImage(name) {
			sum += s.scaled[i]
		}
	}
	sum = min(max(sum, minimum), s.ceiling)
	return framework.MaxNodeScore * (sum - minimum) / (s.ceiling - minimum), nil
}

// EventsToRegister implements framework.EnqueueExtensions: it rejects no pod.
func (*plugin) EventsToRegister(context.Context) ([]framework.ClusterEventWithHint, error) {
	return nil, nil
}

// normalized adds the tag that a name without one means.
func normalized(name string) string {
	if strings.LastIndex(name, ":") <= strings.LastIndex(name, "/") {
		return name + ":latest"
	}
	return name
}
