package pods

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"

	podutil "github.com/coracle-io/coracle/internal/pod"
)

// Victims returns the n pods that a controller should delete first when it
// has too many, by upstream's order: those that lose least work first.
// Per node, colocated says how many active pods of the same owner (or of
// owners of the same Deployment) run there.
func Victims(candidates []*v1.Pod, n int, colocated map[string]int, now time.Time) []*v1.Pod {
	if n >= len(candidates) {
		return candidates
	}
	sorted := slices.Clone(candidates)
	slices.SortStableFunc(sorted, func(a, b *v1.Pod) int { return compareForDeletion(a, b, colocated, now) })
	return sorted[:max(n, 0)]
}

// compareForDeletion is negative if a should be deleted before b.
func compareForDeletion(a, b *v1.Pod, colocated map[string]int, now time.Time) int {
	return cmp.Or(
		falseFirst(a.Spec.NodeName != "", b.Spec.NodeName != ""),
		cmp.Compare(phaseRank(a), phaseRank(b)),
		falseFirst(podutil.IsReady(a), podutil.IsReady(b)),
		cmp.Compare(deletionCost(a), deletionCost(b)),
		cmp.Compare(colocated[b.Spec.NodeName], colocated[a.Spec.NodeName]),
		youngerFirst(ReadySince(a).Time, ReadySince(b).Time, now),
		compareRestarts(a, b),
		youngerFirst(a.CreationTimestamp.Time, b.CreationTimestamp.Time, now),
		cmp.Compare(a.UID, b.UID),
	)
}

func falseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case !a:
		return -1
	}
	return 1
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

// deletionCost is the annotation controller.kubernetes.io/pod-deletion-cost,
// 0 if absent or malformed (KEP-2255).
func deletionCost(p *v1.Pod) int32 {
	cost, err := strconv.ParseInt(p.Annotations[v1.PodDeletionCost], 10, 32)
	if err != nil {
		return 0
	}
	return int32(cost)
}

// compareRestarts puts the pod with more restarts first, those of regular
// containers before those of init containers.
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
		restartable[c.Name] = podutil.IsSidecar(&c)
	}
	for _, s := range p.Status.InitContainerStatuses {
		if restartable[s.Name] {
			sidecar = max(sidecar, s.RestartCount)
		}
	}
	return regular, sidecar
}

// youngerFirst compares ages on a logarithmic scale, so that among pods of
// about the same age the choice is spread (KEP-2185). A zero time is the
// youngest.
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
