// Package framework defines what the scheduler and its plugins share: the
// extension points of kube-scheduler 1.37 as small interfaces, and the snapshot
// of the cluster for a decision.
//
//	          scheduling cycle: one pod at a time, on one goroutine          binding cycle: many at a time
//	┌───────────────────────────────────────────────────────────────────┐   ┌────────────────────────────┐
//	PreEnqueue ─► QueueSort ─► PreFilter ─► Filter ─► PreScore ─► Score ─► Reserve ─► Permit ─┬─► PreBind ─► Bind ─► PostBind
//	    │ gated                   │            │                (Normalize)    │         │     │ wait   │
//	    ▼                         └── nowhere ─┴─► PostFilter                  └─────────┴─────┴────────┴─► Unreserve
//	 the queue ◄──────────── rejected by plugins ◄─────────────────────────────────────────────────────────────┘
//	    ▲
//	    └── ClusterEvent of a kind that a rejecting plugin registered, and its QueueingHintFn says Queue
//
// # What the author of a plugin must know
//
// A plugin is one package below internal/scheduler/plugin, named as upstream's.
// It exports its Name and a Factory, which says how its arguments get their
// defaults and are validated (in a file arguments.go). The arguments are of the
// type of KubeSchedulerConfiguration v1, or, if upstream has no such plugin, of
// a type of the plugin's own. plugin/all lists the factories and the default
// plugins. Nothing else in the scheduler names a plugin.
//
// A plugin implements the interfaces of the points that it takes part in. All
// methods but Name are called as follows:
//
//   - PreEnqueue, Less and queueing hints are called under the queue's lock.
//     They are fast, look only at their arguments and at caches, and never block.
//   - PreFilter to Permit of one pod run on the one goroutine of the scheduling
//     cycle, which owns the Snapshot. No lock is needed to read the snapshot or
//     to write to the CycleState. Filter and Score must be pure: the same
//     snapshot, pod and state give the same answer. Nothing of the snapshot may
//     be kept beyond the cycle.
//   - PreBindPreFlight runs in the scheduling cycle, after Reserve. WaitOnPermit,
//     PreBind, Bind, PostBind and Unreserve run on a goroutine of the pod's
//     binding cycle. They may block until ctx ends, must not touch the Snapshot,
//     and own the CycleState by then. PreBind of several plugins run side by side:
//     they change only what their own plugin has put there. Unreserve also runs in
//     the scheduling cycle when Reserve, PreBindPreFlight or Permit fails, and must
//     be idempotent.
//   - Goroutines that a plugin starts use supervise.Go with the ctx it was given.
//
// If PreFilter returns Skip, the plugin's Filter is not called for this pod.
// PreScore returning Skip does the same for Score. Implement them even if only
// to skip: a skipped plugin costs nothing per node.
//
// State that one point computes for a later one lies in the CycleState under a
// StateKey[T], which the plugin makes in its constructor. A plugin that keeps state
// in PreFilter that depends on the pods of nodes implements
// PreFilterExtensions: what-if trials (nominated pods, preemption) change the
// snapshot in place, call AddPod or RemovePod, ask Filter, and call the
// opposite to undo. AddPod after RemovePod of the same pod must restore the
// state exactly. The snapshot is changed already when they are called.
//
// A plugin whose answers depend only on the pod and one node implements
// SignPlugin, so that it is asked once for all pods of a template until the
// node changes.
//
// Statuses with fixed reasons are made once and returned many times; a Status
// is immutable. Reasons are upstream's words: they are counted per reason into
// the message "0/N nodes are available". UnschedulableAndUnresolvable says that
// removing pods from the node would not help. Error ends the attempt, and the
// pod is tried again after its back-off.
//
// EventsToRegister lists the events that may help a pod that the plugin
// rejected, each with a hint that looks at the objects before and after (On
// makes one for a type). Hints that read little of a pod get a PodIndex: thousands
// of pods may wait, and an event asks once for all that are alike. A plugin
// without EnqueueExtensions is asked about every event, which is slow. The
// scheduler subscribes to every resource that a plugin names there; other listers
// come from Handle.Informers, taken in the constructor.
//
// A plugin says what exactly is in the way of a pod, and what would help, in
// Explain or ExplainPod (in a file explain.go). `coracle why` shows it.
//
// Randomness, time and environment do not enter a decision; ties between nodes
// are broken by the scheduler's seeded generator.
package framework

import (
	"context"
	"fmt"
	"time"
)

const (
	// MaxNodeScore is the best score of a node after NormalizeScore, MinNodeScore the worst.
	MaxNodeScore int64 = 100
	MinNodeScore int64 = 0
)

// Plugin is a named part of a profile.
type Plugin interface {
	Name() string
}

// DeferredResizePlugin takes part in the attempts for pods whose resize the kubelet has
// deferred (KEP-5836): room is made for them on the node where they run. Plugins that
// judge where a new pod may go are not asked about them.
type DeferredResizePlugin interface {
	Plugin
	// HandlesDeferredResizes marks the plugin.
	HandlesDeferredResizes()
}

// HandlesDeferredResizes reports whether a plugin is a DeferredResizePlugin.
func HandlesDeferredResizes(plugin Plugin) bool {
	_, handles := plugin.(DeferredResizePlugin)
	return handles
}

// PreEnqueuePlugin may keep a pod out of the active queue. A pod that it
// rejects is gated until an event that the plugin registered comes.
type PreEnqueuePlugin interface {
	Plugin
	PreEnqueue(ctx context.Context, pod *PodInfo) *Status
}

// EventFilterPlugin knows events that cannot help some pods, whatever hints say.
type EventFilterPlugin interface {
	Plugin
	// FilterEvent is called once for each event of a resource, in order and
	// before all hints. It returns nil if the event may help every pod, and
	// otherwise a function that reports whether it may help a pod of the
	// profile. The function is also asked later, for pods that were in flight.
	FilterEvent(event ClusterEvent, old, new any) (helps func(pod *PodInfo) bool)
}

// QueueSortPlugin orders the active queue. All profiles share one.
type QueueSortPlugin interface {
	Plugin
	// Less reports whether a is to be scheduled before b.
	Less(a, b QueuedPod) bool
}

// QueuedPod is a pod in the queue, as QueueSort compares it.
type QueuedPod struct {
	*PodInfo
	// Timestamp is when the pod came into the queue last.
	Timestamp time.Time
}

// PreFilterPlugin prepares its Filter for one pod, or narrows the nodes down.
type PreFilterPlugin interface {
	Plugin
	// PreFilter returns the nodes that alone need be looked at, or nil for all.
	// Skip means that the plugin's Filter is not called.
	PreFilter(ctx context.Context, state *CycleState, pod *PodInfo, snapshot *Snapshot) (*PreFilterResult, *Status)
}

// PreFilterExtensions keeps a PreFilterPlugin's state current in what-if trials.
type PreFilterExtensions interface {
	AddPod(ctx context.Context, state *CycleState, pod, added *PodInfo, node *NodeInfo) *Status
	RemovePod(ctx context.Context, state *CycleState, pod, removed *PodInfo, node *NodeInfo) *Status
}

// PreFilterResult narrows down the nodes that Filter is called for.
type PreFilterResult struct {
	// NodeNames are the nodes; nil means all.
	NodeNames map[string]bool
	// Plugins narrowed them down; the profile fills it in.
	Plugins []string
}

// Absent is the status of the nodes that a PreFilter left out.
func (r *PreFilterResult) Absent() *Status {
	return NewStatus(UnschedulableAndUnresolvable, "", fmt.Sprintf("node(s) didn't satisfy plugin(s) %v", r.Plugins))
}

// FilterPlugin says whether a pod can run on a node.
type FilterPlugin interface {
	Plugin
	Filter(ctx context.Context, state *CycleState, pod *PodInfo, node *NodeInfo) *Status
}

// PostFilterPlugin tries to make a pod schedulable that no node can take.
type PostFilterPlugin interface {
	Plugin
	// PostFilter returns Success with a result if the pod may be schedulable
	// later, Unschedulable if it could do nothing.
	PostFilter(ctx context.Context, state *CycleState, pod *PodInfo, snapshot *Snapshot, nodes *NodeToStatus) (*PostFilterResult, *Status)
}

// PostFilterResult says how to change the pod's nomination.
type PostFilterResult struct {
	// NominatedNodeName replaces the pod's; "" clears it.
	NominatedNodeName string
	// KeepsNomination says that the pod's nomination stays as it is.
	KeepsNomination bool
	// Plugin is the one that makes the room of a nomination that is set or kept. The
	// profile sets it. The pod waits for the events of that plugin, too.
	Plugin string
}

// PodGroupPostFilterPlugin makes room for pods of a group that is decided
// together. It is asked instead of a PostFilterPlugin, for each of them that no
// node can take.
type PodGroupPostFilterPlugin interface {
	Plugin
	// PodGroupPostFilter is like PostFilter, but only reserves the preemption. Later
	// pods of the group rely on it. Once the group is decided, it is executed or
	// canceled.
	PodGroupPostFilter(ctx context.Context, state *CycleState, pod *PodInfo, snapshot *Snapshot, nodes *NodeToStatus) (PendingPreemption, *PostFilterResult, *Status)
}

// PendingPreemption is a preemption that is reserved, but not begun. It belongs to
// the scheduling cycle.
type PendingPreemption interface {
	// Execute begins to evict the victims.
	Execute(ctx context.Context)
	// Cancel ends the reservation.
	Cancel()
	// NumVictims is how many pods Execute evicts.
	NumVictims() int
}

// PreScorePlugin prepares its Score for the nodes that passed all filters.
// Skip means that the plugin's Score is not called.
type PreScorePlugin interface {
	Plugin
	PreScore(ctx context.Context, state *CycleState, pod *PodInfo, snapshot *Snapshot, nodes []*NodeInfo) *Status
}

// ScorePlugin ranks a node.
type ScorePlugin interface {
	Plugin
	Score(ctx context.Context, state *CycleState, pod *PodInfo, node *NodeInfo) (int64, *Status)
}

// ScoreNormalizer brings the scores of its ScorePlugin into MinNodeScore to
// MaxNodeScore, in place. scores are in the order of the nodes of PreScore.
type ScoreNormalizer interface {
	NormalizeScore(ctx context.Context, state *CycleState, pod *PodInfo, scores []int64) *Status
}

// ReservePlugin keeps state outside the snapshot for assumed pods.
type ReservePlugin interface {
	Plugin
	Reserve(ctx context.Context, state *CycleState, pod *PodInfo, node string) *Status
	// Unreserve undoes Reserve, in reverse order of the plugins. It is called
	// for every ReservePlugin if anything after Reserve fails.
	Unreserve(ctx context.Context, state *CycleState, pod *PodInfo, node string)
}

// PermitPlugin may delay or forbid a binding. With Wait it names how long the
// pod waits at most. Plugins allow or reject it through WaitingPods.
type PermitPlugin interface {
	Plugin
	Permit(ctx context.Context, state *CycleState, pod *PodInfo, node string) (*Status, time.Duration)
}

// PodGroupPlugin has pods of a group decided together.
type PodGroupPlugin interface {
	PermitPlugin
	// Missing returns how many pods of the pod's group still need a node before
	// any of those that wait may be bound. ok is false if the group does not have
	// its pods decided together. It is fast.
	Missing(pod *PodInfo) (n int, ok bool)
}

// PreBindPlugin does what must be done before a binding, such as provisioning.
type PreBindPlugin interface {
	Plugin
	// PreBindPreFlight returns Skip if PreBind would do nothing. It is fast.
	PreBindPreFlight(ctx context.Context, state *CycleState, pod *PodInfo, node string) *Status
	PreBind(ctx context.Context, state *CycleState, pod *PodInfo, node string) *Status
}

// BindPlugin writes the binding. Skip leaves it to the next one.
type BindPlugin interface {
	Plugin
	Bind(ctx context.Context, state *CycleState, pod *PodInfo, node string) *Status
}

// PostBindPlugin is called after a binding.
type PostBindPlugin interface {
	Plugin
	PostBind(ctx context.Context, state *CycleState, pod *PodInfo, node string)
}

// EnqueueExtensions says what may help the pods that the plugin rejected.
type EnqueueExtensions interface {
	EventsToRegister(ctx context.Context) ([]ClusterEventWithHint, error)
}

// SignPlugin tells which pods its Filter and Score treat alike. Results are
// shared between pods of equal signatures while a node and its pods stay the
// same; those for pods whose resize is deferred are not. So
//   - Filter and Score must depend only on what SignPod returns and the NodeInfo;
//   - whether PreFilter and PreScore skip must depend only on what SignPod returns.
//
// Scores before NormalizeScore are shared.
type SignPlugin interface {
	// SignPod returns all of the pod that the plugin reads. ok is false if the
	// pod cannot be compared with others. It is called for every attempt.
	SignPod(pod *PodInfo) (fragment string, ok bool)
}

// DefaultNormalizeScore scales scores so that the largest becomes
// MaxNodeScore; reverse turns the order around.
func DefaultNormalizeScore(scores []int64, reverse bool) {
	var highest int64
	for _, s := range scores {
		highest = max(highest, s)
	}
	for i, s := range scores {
		if highest > 0 {
			s = s * MaxNodeScore / highest
		}
		if reverse {
			s = MaxNodeScore - s
		}
		scores[i] = s
	}
}
