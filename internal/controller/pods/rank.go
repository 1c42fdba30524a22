package pods

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/order"
	"github.com/coracle-io/coracle/internal/podquery"
)

// DeletionOrder says what decides which pods are deleted first, beside their states.
type DeletionOrder struct {
	// Colocated is the number of active pods of the same owner, or of owners of the
	// same Deployment, for each node name. If it is nil, nodes do not matter.
	Colocated map[string]int
	// ByCost respects the deletion cost in the annotations of pods.
	ByCost bool
	// Now is the current time, for the ages of pods.
	Now time.Time
}

// SelectForDeletion returns the n pods that a controller should delete when it
// has too many, in upstream's order (ActivePods, ActivePodsWithRanks).
func SelectForDeletion(candidates []*v1.Pod, n int, o DeletionOrder) []*v1.Pod {
	if n >= len(candidates) {
		return candidates
	}
	return SortForDeletion(candidates, o)[:max(n, 0)]
}

// SortForDeletion returns pods in the order in which SelectForDeletion selects
// them.
func SortForDeletion(candidates []*v1.Pod, o DeletionOrder) []*v1.Pod {
	sorted := slices.Clone(candidates)
	slices.SortStableFunc(sorted, o.compare)
	return sorted
}

// compare returns a negative number if a should be deleted before b.
func (o DeletionOrder) compare(a, b *v1.Pod) int {
	costA, costB := int32(0), int32(0)
	if o.ByCost {
		costA, costB = deletionCost(a), deletionCost(b)
	}
	return cmp.Or(
		order.FalseFirst(a.Spec.NodeName != "", b.Spec.NodeName != ""),
		cmp.Compare(phaseRank(a), phaseRank(b)),
		order.FalseFirst(podquery.IsReady(a), podquery.IsReady(b)),
		cmp.Compare(costA, costB),
		cmp.Compare(o.Colocated[b.Spec.NodeName], o.Colocated[a.Spec.NodeName]),
		youngerFirst(ReadySince(a).Time, ReadySince(b).Time, o.Now),
		compareRestarts(a, b),
		youngerFirst(a.CreationTimestamp.Time, b.CreationTimestamp.Time, o.Now),
		cmp.Compare(a.UID, b.UID),
	)
}

func phaseRank(p *v1.Pod) int {
	switch p.Status.Phase {
	case v1.PodRunning:
		return 2
	case v1.PodUnknown:
		return 1
	}
	return 0
}

// deletionCost returns the value of the annotation
// controller.kubernetes.io/pod-deletion-cost (KEP-2255), or 0 if it is absent or
// malformed.
func deletionCost(p *v1.Pod) int32 {
	cost, err := strconv.ParseInt(p.Annotations[v1.PodDeletionCost], 10, 32)
	if err != nil {
		return 0
	}
	return int32(cost)
}

// compareRestarts orders the pod with more restarts first. Restarts of sidecar
// containers only decide between equal restarts of regular containers.
func compareRestarts(a, b *v1.Pod) int {
	regularA, initA := maxRestarts(a)
	regularB, initB := maxRestarts(b)
	return cmp.Or(cmp.Compare(regularB, regularA), cmp.Compare(initB, initA))
}

func maxRestarts(p *v1.Pod) (regular, sidecar int32) {
	for _, s := range p.Status.ContainerStatuses {
		regular = max(regular, s.RestartCount)
	}
	restartable := map[string]bool{}
	for _, c := range p.Spec.InitContainers {
		restartable[c.Name] = podquery.IsSidecar(&c)
	}
	for _, s := range p.Status.InitContainerStatuses {
		if restartable[s.Name] {
			sidecar = max(sidecar, s.RestartCount)
		}
	}
	return regular, sidecar
}

// youngerFirst compares ages on a logarithmic scale, so that the choice among
// pods of similar age is random (KEP-2185). A zero time is the youngest.
func youngerFirst(a, b, now time.Time) int {
	return cmp.Compare(ageBucket(a, now), ageBucket(b, now))
}

func ageBucket(t, now time.Time) int {
	if t.IsZero() {
		return -2
	}
	age := now.Sub(t)
	if age <= 0 {
		return -1
	}
	return int(math.Log2(float64(age.Nanoseconds())))
}
