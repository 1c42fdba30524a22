// Package imagelocality prefers nodes that hold the pod's images already.
package imagelocality

import (
	"strings"

	v1 "k8s.io/api/core/v1"

	podutil "github.com/coracle-io/coracle/internal/pod"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// Name is the plugin's name in configurations.
const Name = "ImageLocality"

// Sizes between which the score rises, in bytes: below the first an image is
// pulled so fast that it does not matter. The second is per container.
const (
	minimum      = 23 << 20
	perContainer = 1000 << 20
)

// Plugin is the score ImageLocality.
type Plugin struct{}

// Name implements framework.Score.
func (Plugin) Name() string { return Name }

// Score implements framework.Score: the bytes that need not be pulled, each
// image scaled by the share of nodes that hold it so that pods do not heap up
// where an image happened to come first.
func (Plugin) Score(pod *framework.Pod, cluster *framework.Cluster, _ []*framework.Node) (framework.NodeScore, func([]int64)) {
	if len(cluster.Images) == 0 || len(cluster.Nodes) == 0 {
		return nil, nil
	}
	var names []string
	for c := range podutil.Containers(&pod.Pod.Spec) {
		names = append(names, normalized(c.Image))
	}
	ceiling := int64(perContainer) * int64(len(names))
	return func(n *framework.Node) int64 {
		var sum int64
		for _, name := range names {
			if image, ok := cluster.Images[name]; ok && holds(n.Node, name) {
				sum += image.Size * int64(image.Nodes) / int64(len(cluster.Nodes))
			}
		}
		sum = min(max(sum, minimum), ceiling)
		return framework.MaxScore * (sum - minimum) / (ceiling - minimum)
	}, nil
}

func holds(node *v1.Node, name string) bool {
	for i := range node.Status.Images {
		for _, n := range node.Status.Images[i].Names {
			if n == name {
				return true
			}
		}
	}
	return false
}

// normalized adds the tag that a name without one means.
func normalized(name string) string {
	if strings.LastIndex(name, ":") <= strings.LastIndex(name, "/") {
		return name + ":latest"
	}
	return name
}
