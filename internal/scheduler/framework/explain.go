package framework

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	corelisters "k8s.io/client-go/listers/core/v1"
)

// Explainer is a FilterPlugin that says in detail why it rejected a node and
// what would change that. `coracle why` asks it; the scheduler does not.
type Explainer interface {
	Plugin
	// Explain is called after Filter has rejected the node, with the same arguments.
	Explain(state *CycleState, pod *PodInfo, node *NodeInfo) []Obstacle
}

// PodExplainer is a PreEnqueuePlugin or PreFilterPlugin that says in detail why
// it rejected a pod.
type PodExplainer interface {
	Plugin
	// ExplainPod is called after PreEnqueue or PreFilter has rejected the pod.
	ExplainPod(state *CycleState, pod *PodInfo) []Obstacle
}

// Obstacle is one thing that keeps a pod off a node, or out of the queue.
type Obstacle struct {
	// Text says what it is, with names and amounts.
	Text string `json:"text"`
	// Remedies are changes. Each of them alone removes the obstacle.
	Remedies []string `json:"remedies,omitempty"`
}

// MissingClaims are the obstacles of a pod that names PersistentVolumeClaims
// that do not exist.
func MissingClaims(claims corelisters.PersistentVolumeClaimLister, pod *v1.Pod) (out []Obstacle) {
	for i := range pod.Spec.Volumes {
		source := pod.Spec.Volumes[i].PersistentVolumeClaim
		if source == nil {
			continue
		}
		if _, err := claims.PersistentVolumeClaims(pod.Namespace).Get(source.ClaimName); apierrors.IsNotFound(err) {
			out = append(out, MissingClaim(pod.Namespace, source.ClaimName))
		}
	}
	return out
}

// MissingClaim is the obstacle of a pod whose PersistentVolumeClaim does not exist.
func MissingClaim(namespace, name string) Obstacle {
	return Obstacle{
		Text:     fmt.Sprintf("PersistentVolumeClaim %s/%s does not exist", namespace, name),
		Remedies: []string{fmt.Sprintf("create PersistentVolumeClaim %s in namespace %s", name, namespace)},
	}
}

// DryRunPostFilterPlugin is a PostFilterPlugin that can say what PostFilter
// would do, and do nothing.
type DryRunPostFilterPlugin interface {
	Plugin
	// DryRunPostFilter returns the preemption that PostFilter would begin, or
	// why there is none.
	DryRunPostFilter(ctx context.Context, state *CycleState, pod *PodInfo, snapshot *Snapshot, nodes *NodeToStatus) (*Preemption, *Status)
}

// Preemption is the eviction of pods that makes room for another pod.
type Preemption struct {
	NodeName string
	// Victims may be empty if pods that terminate already are enough.
	Victims []*PodInfo
	// NumPDBViolations is how many victims a PodDisruptionBudget protects.
	NumPDBViolations int
}
