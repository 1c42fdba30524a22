// Package nodepreferavoidpods avoids nodes whose annotation
// scheduler.alpha.kubernetes.io/preferAvoidPods names the pod's controller. It
// serves the priority NodePreferAvoidPodsPriority of Policy v1.
package nodepreferavoidpods

import (
	"context"
	"encoding/json"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// Name is the plugin's name in configurations.
const Name = "NodePreferAvoidPods"

// Factory describes the plugin.
func Factory() framework.Factory { return framework.Simple(plugin{}) }

type plugin struct{}

// Name implements framework.Plugin.
func (plugin) Name() string { return Name }

// Score implements framework.ScorePlugin: 0 for a node that wants to avoid the
// pod's replication controller or replica set, MaxNodeScore for others. An
// annotation that cannot be read avoids nothing.
func (plugin) Score(_ context.Context, _ *framework.CycleState, pod *framework.PodInfo, n *framework.NodeInfo) (int64, *framework.Status) {
	owner := metav1.GetControllerOfNoCopy(pod.Pod)
	annotation := n.Node.Annotations[v1.PreferAvoidPodsAnnotationKey]
	if annotation == "" || owner == nil || owner.Kind != "ReplicationController" && owner.Kind != "ReplicaSet" {
		return framework.MaxNodeScore, nil
	}
	var avoids v1.AvoidPods
	if err := json.Unmarshal([]byte(annotation), &avoids); err != nil {
		return framework.MaxNodeScore, nil
	}
	for i := range avoids.PreferAvoidPods {
		if c := avoids.PreferAvoidPods[i].PodSignature.PodController; c != nil && c.Kind == owner.Kind && c.UID == owner.UID {
			return framework.MinNodeScore, nil
		}
	}
	return framework.MaxNodeScore, nil
}

// EventsToRegister implements framework.EnqueueExtensions: it rejects no pod.
func (plugin) EventsToRegister(context.Context) ([]framework.ClusterEventWithHint, error) {
	return nil, nil
}
