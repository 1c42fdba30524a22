package framework

import "strings"

// EventResource is the kind of object that an event is about.
type EventResource string

// The resources whose changes can make pods schedulable.
const (
	// AssignedPod is a pod on a node, assumed or bound.
	AssignedPod EventResource = "AssignedPod"
	// TargetPod is the waiting pod itself. Its hint is given the pod before and after.
	TargetPod EventResource = "TargetPod"
	// UnscheduledPod is another pod that waits.
	UnscheduledPod        EventResource = "UnscheduledPod"
	Node                  EventResource = "Node"
	Namespace             EventResource = "Namespace"
	PersistentVolume      EventResource = "PersistentVolume"
	PersistentVolumeClaim EventResource = "PersistentVolumeClaim"
	StorageClass          EventResource = "storage.k8s.io/StorageClass"
	CSINode               EventResource = "storage.k8s.io/CSINode"
	CSIDriver             EventResource = "storage.k8s.io/CSIDriver"
	CSIStorageCapacity    EventResource = "storage.k8s.io/CSIStorageCapacity"
	VolumeAttachment      EventResource = "storage.k8s.io/VolumeAttachment"
	ResourceClaim         EventResource = "resource.k8s.io/ResourceClaim"
	ResourceSlice         EventResource = "resource.k8s.io/ResourceSlice"
	DeviceClass           EventResource = "resource.k8s.io/DeviceClass"
	DeviceTaintRule       EventResource = "resource.k8s.io/DeviceTaintRule"
	PodGroup              EventResource = "scheduling.k8s.io/PodGroup"
	Service               EventResource = "Service"
	ReplicaSet            EventResource = "apps/ReplicaSet"
	StatefulSet           EventResource = "apps/StatefulSet"
	// WildCard is everything; only the scheduler itself uses it.
	WildCard EventResource = "*"
)

// ActionType is a set of what can happen to an object.
type ActionType uint32

// The actions. Updates are divided by what changed.
const (
	Add ActionType = 1 << iota
	Delete
	UpdateNodeAllocatable
	UpdateNodeLabel
	UpdateNodeTaint
	UpdateNodeCondition
	UpdateNodeAnnotation
	UpdateNodeDeclaredFeature
	UpdateNodePreemptionPolicy
	UpdatePodLabel
	// UpdatePodScaleDown is a pod one of whose requests became smaller,
	// UpdatePodScaleUp one of whose requests became larger.
	UpdatePodScaleDown
	UpdatePodScaleUp
	UpdatePodToleration
	UpdatePodSchedulingGatesEliminated
	UpdatePodGeneratedResourceClaim
	// updateOther is any update that has no bit of its own.
	updateOther

	// Update is any update.
	Update = UpdateNodeAllocatable | UpdateNodeLabel | UpdateNodeTaint | UpdateNodeCondition | UpdateNodeAnnotation |
		UpdateNodeDeclaredFeature | UpdateNodePreemptionPolicy | UpdatePodLabel | UpdatePodScaleDown | UpdatePodScaleUp |
		UpdatePodToleration | UpdatePodSchedulingGatesEliminated | UpdatePodGeneratedResourceClaim | updateOther
	// All is everything that can happen.
	All = Add | Delete | Update
)

// UpdateOther is an update of an object in nothing that has an action of its own.
const UpdateOther = updateOther

// String names the actions as metrics and logs do.
func (a ActionType) String() string {
	switch a {
	case All:
		return "All"
	case Update, updateOther:
		return "Update"
	}
	var names []string
	for i, name := range [...]string{"Add", "Delete", "UpdateNodeAllocatable", "UpdateNodeLabel", "UpdateNodeTaint",
		"UpdateNodeCondition", "UpdateNodeAnnotation", "UpdateNodeDeclaredFeature", "UpdateNodePreemptionPolicy", "UpdatePodLabel",
		"UpdatePodScaleDown", "UpdatePodScaleUp", "UpdatePodToleration", "UpdatePodSchedulingGatesEliminated", "UpdatePodGeneratedResourceClaim"} {
		if a&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, "|")
}

// ClusterEvent is a kind of change: something that happens to a resource.
type ClusterEvent struct {
	Resource EventResource
	Action   ActionType
	// Label names the event in metrics; "" is made of the other two.
	Label string
}

// Name returns the label of the event in metrics.
func (e ClusterEvent) Name() string {
	if e.Label != "" {
		return e.Label
	}
	resource := string(e.Resource)
	if i := strings.LastIndexByte(resource, '/'); i >= 0 {
		resource = resource[i+1:]
	}
	action := e.Action.String()
	if strings.HasPrefix(action, "Update"+resource) {
		return resource + "Update" + strings.TrimPrefix(action, "Update"+resource)
	}
	return resource + action
}

// Matches reports whether an event that happened is of the kind that was registered.
func (e ClusterEvent) Matches(happened ClusterEvent) bool {
	return happened.Resource == WildCard || (e.Resource == happened.Resource || e.Resource == WildCard) && e.Action&happened.Action != 0
}

// QueueingHint says what an event means to a pod.
type QueueingHint int

// The hints.
const (
	// QueueSkip: the event cannot make the pod schedulable.
	QueueSkip QueueingHint = iota
	// Queue: it may.
	Queue
)

// String returns upstream's word for the hint.
func (h QueueingHint) String() string {
	if h == Queue {
		return "Queue"
	}
	return "QueueSkip"
}

// QueueingHintFn judges an event for a pod that the plugin rejected. old is
// nil if the object is new, new is nil if it is gone. Neither may be changed.
type QueueingHintFn func(pod *PodInfo, old, new any) QueueingHint

// ClusterEventWithHint is a kind of event with its hint; without one, every
// event of the kind may help.
type ClusterEventWithHint struct {
	Event ClusterEvent
	Hint  QueueingHintFn
	// Index, if set, spares the hint most pods. All hints of a plugin have the
	// same one.
	Index *PodIndex
}

// PodIndex divides the pods that a plugin rejected by what its hints read of
// them. The hints answer the same for all pods with one key, so they are asked
// once for those.
type PodIndex struct {
	// OfPod returns the key of a pod.
	OfPod func(pod *PodInfo) string
	// OfEvent, if set, returns the key of the pods that an event is about, such as
	// the pods of a group. ok is false if it may be about any pod.
	OfEvent func(old, new any) (key string, ok bool)
}

// IndexBySignature returns the index of a plugin whose hints read no more of a pod
// than SignPod returns.
func IndexBySignature(plugin SignPlugin) *PodIndex {
	return &PodIndex{OfPod: func(pod *PodInfo) string {
		if fragment, ok := plugin.SignPod(pod); ok {
			return fragment
		}
		return "pod " + string(pod.Pod.UID)
	}}
}

// Indexed gives the events of a plugin an index.
func Indexed(index *PodIndex, events []ClusterEventWithHint) []ClusterEventWithHint {
	for i := range events {
		events[i].Index = index
	}
	return events
}

// On returns an event on objects of type *T with its hint. An object of
// another type queues the pod.
func On[T any](resource EventResource, action ActionType, hint func(pod *PodInfo, old, new *T) QueueingHint) ClusterEventWithHint {
	return ClusterEventWithHint{
		Event: ClusterEvent{Resource: resource, Action: action},
		Hint: func(pod *PodInfo, old, new any) QueueingHint {
			before, ok := as[T](old)
			after, both := as[T](new)
			if !ok || !both {
				return Queue
			}
			return hint(pod, before, after)
		},
	}
}

func as[T any](obj any) (typed *T, ok bool) {
	if obj == nil {
		return nil, true
	}
	typed, ok = obj.(*T)
	return typed, ok
}

// QueueIf returns Queue or QueueSkip.
func QueueIf(helps bool) QueueingHint {
	if helps {
		return Queue
	}
	return QueueSkip
}
