package framework

import (
	"context"
	"iter"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/coracle-io/coracle/internal/feature"
)

// Handle holds the clients and functions that a profile offers its plugins.
// Fields that a plugin does not use may be nil in its tests.
type Handle struct {
	// ProfileName is the schedulerName of the profile.
	ProfileName string
	Client      kubernetes.Interface
	// Informers gives listers. A plugin asks for them in its constructor.
	Informers   informers.SharedInformerFactory
	Recorder    EventRecorder
	Nominator   Nominator
	Filters     FilterRunner
	WaitingPods WaitingPods
	PodGroups   PodGroups
	Queue       PodActivator
	// Bound, if set, tells hints what is on a node.
	Bound BoundPods
	// Features are the feature gates; nil is their defaults.
	Features *feature.Set
	// IsWanted, if set, reports whether a pod in its binding cycle still wants
	// its node: it has not been deleted.
	IsWanted func(pod types.UID) bool
	// CancelPreBind, if set, interrupts the PreBind plugins of a pod: it goes back to
	// the queue as after WaitingPod.Preempt. It returns false if they do not run.
	CancelPreBind func(pod types.UID, plugin, message string) bool
	// Extenders, if set, may change the victims of a preemption.
	Extenders PreemptionExtenders
	// WriteNomination, if set, begins to bring status.nominatedNodeName of a
	// waiting pod in line with the Nominator.
	WriteNomination func(ctx context.Context, pod *PodInfo)
	// Preemptions, if set, measures preemptions.
	Preemptions PreemptionObserver
	// ObserveVolumeError, if set, tells the metrics that an operation on the volumes
	// of a pod has failed: predicate, assume or bind.
	ObserveVolumeError func(operation string)
	// ObserveBindingConditions, if set, tells the metrics how a pod waited for devices
	// of a driver: success, failure, timeout or error.
	ObserveBindingConditions func(driver, result string, took time.Duration)
	// ObserveClaim, if set, tells the metrics that a claim for extended resources
	// was created, or was not.
	ObserveClaim func(ok bool)

	// Shared holds what Share returned. All profiles of a scheduler have the
	// same map; nil shares nothing.
	Shared map[string]any

	keys int // how many StateKeys were made
}

// Share returns a value that all profiles of a scheduler share, such as a cache
// of what they have assumed. The first profile makes it. A plugin's name is
// its key.
func Share[T any](h *Handle, key string, make func() T) T {
	if value, ok := h.Shared[key].(T); ok {
		return value
	}
	value := make()
	if h.Shared != nil {
		h.Shared[key] = value
	}
	return value
}

// EventRecorder records events about pods without waiting.
type EventRecorder interface {
	// Eventf records what happened to a pod; related may be nil.
	Eventf(pod, related *v1.Pod, kind, reason, action, note string, args ...any)
}

// Nominator knows the pods that a node is reserved for although they are not
// there yet: others are being preempted for them. It is safe for concurrent use.
type Nominator interface {
	// AddNominatedPod nominates the pod for a node. "" takes the pod's status.
	AddNominatedPod(pod *PodInfo, node string)
	// DeleteNominatedPod ends the pod's nomination.
	DeleteNominatedPod(uid types.UID)
	// NominatedPodsForNode returns the pods in no particular order. The caller
	// must not change the slice. Each change of the pods makes another slice.
	NominatedPodsForNode(node string) []*PodInfo
	// NominatedNode returns the node that the pod is nominated for, or "".
	NominatedNode(uid types.UID) string
	// Version returns a value that is another after each change.
	Version() any
}

// FilterRunner asks the filters of the profile about a node. It belongs to the
// scheduling cycle.
type FilterRunner interface {
	// RunFilterPluginsWithNominatedPods runs all filters twice where pods of
	// the same or a higher priority are nominated for the node: with those
	// pods there, since they will be, and without, since they may never come.
	RunFilterPluginsWithNominatedPods(ctx context.Context, state *CycleState, pod *PodInfo, node *NodeInfo) *Status
	// PodSignature returns the signature of the pod: it is equal for pods that the
	// filters treat alike as long as a node and its pods stay the same, in trials on
	// the node too. It is nil if a filter looks at more than the node.
	PodSignature(state *CycleState) any
	// Trial begins a what-if on the snapshot. The caller must Revert it.
	Trial(ctx context.Context, state *CycleState, pod *PodInfo) Trial
}

// Trial changes the snapshot and the state of the plugins in place, until Revert.
// Trials may be nested: the inner one must be reverted first.
type Trial interface {
	AddPod(added *PodInfo, node *NodeInfo) *Status
	RemovePod(removed *PodInfo, node *NodeInfo) *Status
	// Revert undoes all changes since the trial began, newest first.
	Revert()
}

// PreemptionExtenders are the extenders of the scheduler that take part in
// preemptions. They belong to the scheduling cycle.
type PreemptionExtenders interface {
	// ProcessPreemption returns the candidates that all extenders agree with,
	// with at least one victim each.
	ProcessPreemption(ctx context.Context, pod *PodInfo, snapshot *Snapshot, candidates map[string]Victims) (map[string]Victims, error)
}

// Victims are the pods of one node that are to make room for a pod.
type Victims struct {
	Pods []*PodInfo
	// NumPDBViolations is how many of them a disruption budget protects.
	NumPDBViolations int
}

// PreemptionObserver measures preemptions. group says that the preemptor is decided
// together with others of its group.
type PreemptionObserver interface {
	// Evaluated is called when the search for victims has ended, with its outcome.
	Evaluated(group bool, code Code, took time.Duration)
	// Chosen is called when a preemption begins, with the number of victims and of those
	// that a disruption budget protects.
	Chosen(group bool, victims, violations int)
	// Executed is called when the victims were evicted, or were not.
	Executed(group, ok bool, took time.Duration)
}

// ExtenderName stands for all extenders where plugins are named: among those
// that rejected a pod.
const ExtenderName = "Extender"

// PodActivator brings waiting pods into the active queue at once.
type PodActivator interface {
	Activate(pods ...*v1.Pod)
}

// PodGroups counts the pods that belong to a PodGroup. It is fast, and safe for
// concurrent use.
type PodGroups interface {
	// Count returns how many pods of a group wait, are assumed or are bound, and have
	// not ended.
	Count(group types.NamespacedName) int
	// NumPlaced returns how many of them are assumed on a node or bound.
	NumPlaced(group types.NamespacedName) int
}

// BoundPods knows the pods on nodes, for hints. It is safe for concurrent use.
type BoundPods interface {
	// RequestedOn returns the sum of what the pods request that are bound to a
	// node. Pods that are only assumed do not count: they may be forgotten without
	// an event.
	RequestedOn(node string) Resources
	// HasBelow reports whether a pod on any node, bound or assumed, has a lower
	// priority.
	HasBelow(priority int32) bool
}

// WaitingPods are the pods that Permit delays, of all profiles of a scheduler.
type WaitingPods interface {
	// Get returns a waiting pod, or nil.
	Get(uid types.UID) WaitingPod
	All() iter.Seq[WaitingPod]
}

// WaitingPod is a pod whose binding Permit plugins delay.
type WaitingPod interface {
	PodInfo() *PodInfo
	Node() string
	// PendingPlugins are those that have not allowed the pod yet.
	PendingPlugins() []string
	// Allow ends the wait for one plugin; the binding goes on when none is left.
	Allow(plugin string)
	// Reject ends the wait: the pod goes back to the queue. It returns false
	// if the pod was allowed before: its binding goes on.
	Reject(plugin, message string) bool
	// Preempt is Reject for a victim of a preemption: nothing that happens in the
	// cluster is a reason to try it again, so it is tried again after a back-off.
	Preempt(plugin, message string) bool
}

// MaxPermitWait is the longest that Permit can delay a pod.
const MaxPermitWait = 15 * time.Minute
