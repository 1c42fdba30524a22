package daemonset

import (
	"cmp"
	"slices"
	"time"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/controller/pods"
)

// fits says whether a node should run a DaemonSet's pod, and whether a pod
// that runs there already may stay.
func fits(set *apps.DaemonSet, node *v1.Node) (run, stay bool) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: set.Namespace}, Spec: set.Spec.Template.Spec}
	if name := pod.Spec.NodeName; name != "" && name != node.Name {
		return false, false
	}
	if match, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); err != nil || !match {
		return false, false
	}
	tolerations := tolerations(&set.Spec.Template.Spec)
	if _, untolerated := corev1helpers.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, tolerations, func(t *v1.Taint) bool {
		return t.Effect == v1.TaintEffectNoExecute || t.Effect == v1.TaintEffectNoSchedule
	}, true); untolerated {
		_, evicts := corev1helpers.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, tolerations, func(t *v1.Taint) bool {
			return t.Effect == v1.TaintEffectNoExecute
		}, true)
		return false, !evicts
	}
	return true, true
}

// tolerations are those of the template and those that every DaemonSet's pod
// gets: it stays on nodes that are not ready, short of something or cordoned.
func tolerations(spec *v1.PodSpec) []v1.Toleration {
	out := slices.Clone(spec.Tolerations)
	add := func(key string, effect v1.TaintEffect) {
		t := v1.Toleration{Key: key, Operator: v1.TolerationOpExists, Effect: effect}
		if !slices.ContainsFunc(out, func(have v1.Toleration) bool { return have.MatchToleration(&t) }) {
			out = append(out, t)
		}
	}
	add(v1.TaintNodeNotReady, v1.TaintEffectNoExecute)
	add(v1.TaintNodeUnreachable, v1.TaintEffectNoExecute)
	add(v1.TaintNodeDiskPressure, v1.TaintEffectNoSchedule)
	add(v1.TaintNodeMemoryPressure, v1.TaintEffectNoSchedule)
	add(v1.TaintNodePIDPressure, v1.TaintEffectNoSchedule)
	add(v1.TaintNodeUnschedulable, v1.TaintEffectNoSchedule)
	if spec.HostNetwork {
		add(v1.TaintNodeNetworkUnavailable, v1.TaintEffectNoSchedule)
	}
	return out
}

// nodeOf is the node that a pod runs on or is meant for.
func nodeOf(pod *v1.Pod) string {
	if pod.Spec.NodeName != "" {
		return pod.Spec.NodeName
	}
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil || pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	for _, term := range pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, f := range term.MatchFields {
			if f.Key == metav1.ObjectNameField && f.Operator == v1.NodeSelectorOpIn && len(f.Values) == 1 {
				return f.Values[0]
			}
		}
	}
	return ""
}

// bindTo makes a pod run on one node only.
func bindTo(pod *v1.Pod, node string) {
	requirement := v1.NodeSelectorRequirement{Key: metav1.ObjectNameField, Operator: v1.NodeSelectorOpIn, Values: []string{node}}
	if pod.Spec.Affinity == nil {
		pod.Spec.Affinity = &v1.Affinity{}
	}
	if pod.Spec.Affinity.NodeAffinity == nil {
		pod.Spec.Affinity.NodeAffinity = &v1.NodeAffinity{}
	}
	affinity := pod.Spec.Affinity.NodeAffinity
	if affinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		affinity.RequiredDuringSchedulingIgnoredDuringExecution = &v1.NodeSelector{}
	}
	// The node's name takes the place of what the template asked of nodes:
	// that was looked at when the node was chosen.
	affinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms = []v1.NodeSelectorTerm{{
		MatchFields: []v1.NodeSelectorRequirement{requirement},
	}}
}

// snapshot is all that a DaemonSet's next step depends on.
type snapshot struct {
	set   *apps.DaemonSet
	nodes []*v1.Node
	pods  []*v1.Pod // owned by the set
	hash  string    // of the current revision
	now   time.Time
}

// step is what to do next.
type step struct {
	create []string // names of nodes
	delete []*v1.Pod
	// failed are those of the deleted that had failed; they are replaced
	// with a back-off.
	failed []*v1.Pod
}

func (s snapshot) byNode() map[string][]*v1.Pod {
	out := map[string][]*v1.Pod{}
	for _, p := range s.pods {
		if node := nodeOf(p); node != "" {
			out[node] = append(out[node], p)
		}
	}
	return out
}

// manage decides which nodes lack a pod and which pods are too many.
func manage(s snapshot) (out step) {
	byNode := s.byNode()
	known := map[string]bool{}
	surge, _ := limits(s)
	for _, node := range s.nodes {
		known[node.Name] = true
		run, stay := fits(s.set, node)
		var alive []*v1.Pod
		terminating := false
		for _, p := range byNode[node.Name] {
			switch {
			case p.DeletionTimestamp != nil:
				terminating = true
			case p.Status.Phase == v1.PodFailed:
				out.delete = append(out.delete, p)
				out.failed = append(out.failed, p)
			case run && p.Status.Phase == v1.PodSucceeded:
				out.delete = append(out.delete, p)
			default:
				alive = append(alive, p)
			}
		}
		switch {
		case !stay:
			out.delete = append(out.delete, alive...)
		case run && len(byNode[node.Name]) == 0, run && len(alive) == 0 && terminating && surge > 0 && len(byNode[node.Name]) == 1:
			out.create = append(out.create, node.Name)
		case run && len(alive) > 1:
			out.delete = append(out.delete, s.surplus(alive, surge > 0)...)
		}
	}
	// Pods of nodes that are gone and that were never bound have no other
	// end; the bound ones are the pod collector's.
	for node, list := range byNode {
		if known[node] {
			continue
		}
		for _, p := range list {
			if p.Spec.NodeName == "" && p.DeletionTimestamp == nil {
				out.delete = append(out.delete, p)
			}
		}
	}
	return out
}

// surplus are the pods of one node to delete so that one stays: the oldest of
// those that are bound. In the middle of a surge an old pod stays beside the
// new one until that is available.
func (s snapshot) surplus(alive []*v1.Pod, surging bool) []*v1.Pod {
	sorted := slices.SortedFunc(slices.Values(alive), func(a, b *v1.Pod) int {
		bound := func(p *v1.Pod) int {
			if p.Spec.NodeName != "" {
				return 0
			}
			return 1
		}
		return cmp.Or(cmp.Compare(bound(a), bound(b)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	if !surging {
		return sorted[1:]
	}
	var old, current []*v1.Pod
	for _, p := range sorted {
		if s.isCurrent(p) {
			current = append(current, p)
		} else {
			old = append(old, p)
		}
	}
	if len(current) == 0 {
		return old[1:]
	}
	out := current[1:]
	if pods.IsAvailable(current[0], s.set.Spec.MinReadySeconds, s.now) || len(old) == 0 {
		return append(out, old...)
	}
	return append(out, old[1:]...)
}

func (s snapshot) isCurrent(p *v1.Pod) bool {
	return p.Labels[apps.ControllerRevisionHashLabelKey] == s.hash
}

// limits resolve how many nodes may run two pods during an update, and how
// many none. One of the two is zero.
func limits(s snapshot) (surge, unavailable int) {
	r := s.set.Spec.UpdateStrategy.RollingUpdate
	if s.set.Spec.UpdateStrategy.Type != apps.RollingUpdateDaemonSetStrategyType || r == nil {
		return 0, 0
	}
	desired := 0
	for _, node := range s.nodes {
		if run, _ := fits(s.set, node); run {
			desired++
		}
	}
	resolve := func(v *intstr.IntOrString) int {
		if v == nil {
			return 0
		}
		n, _ := intstr.GetScaledValueFromIntOrPercent(v, desired, true)
		return n
	}
	surge, unavailable = resolve(r.MaxSurge), resolve(r.MaxUnavailable)
	if desired > 0 && surge == 0 && unavailable == 0 {
		unavailable = 1
	}
	return surge, unavailable
}

// update decides which pods of older templates make room now (or, with
// surge, which nodes get a second pod).
func update(s snapshot) (out step) {
	if s.set.Spec.UpdateStrategy.Type != apps.RollingUpdateDaemonSetStrategyType {
		return out
	}
	surge, unavailable := limits(s)
	byNode := s.byNode()
	var available, broken []*v1.Pod
	lacking, surging := 0, 0
	for _, node := range s.nodes {
		if run, _ := fits(s.set, node); !run {
			continue
		}
		var old, current *v1.Pod
		for _, p := range byNode[node.Name] {
			switch {
			case p.DeletionTimestamp != nil:
			case s.isCurrent(p):
				current = p
			default:
				old = p
			}
		}
		switch {
		case surge > 0 && old != nil && current != nil:
			surging++
		case current != nil:
			if !pods.IsAvailable(current, s.set.Spec.MinReadySeconds, s.now) {
				lacking++
			}
		case old == nil:
			lacking++
		case pods.IsAvailable(old, s.set.Spec.MinReadySeconds, s.now):
			available = append(available, old)
		default:
			broken = append(broken, old)
			lacking++
		}
	}
	if surge > 0 {
		for _, p := range append(broken, available...) {
			if surging >= surge {
				break
			}
			surging++
			out.create = append(out.create, nodeOf(p))
		}
		return out
	}
	out.delete = append(out.delete, broken...)
	if room := unavailable - lacking; room > 0 {
		out.delete = append(out.delete, available[:min(room, len(available))]...)
	}
	return out
}

// status works out a set's status. next is how long until a ready pod becomes
// available; 0 if none does.
func status(s snapshot) (st apps.DaemonSetStatus, next time.Duration) {
	st = apps.DaemonSetStatus{
		ObservedGeneration: s.set.Generation, CollisionCount: s.set.Status.CollisionCount, Conditions: s.set.Status.Conditions,
	}
	byNode := s.byNode()
	for _, node := range s.nodes {
		run, _ := fits(s.set, node)
		list := byNode[node.Name]
		if !run {
			if len(list) > 0 {
				st.NumberMisscheduled++
			}
			continue
		}
		st.DesiredNumberScheduled++
		if len(list) == 0 {
			continue
		}
		st.CurrentNumberScheduled++
		slices.SortFunc(list, func(a, b *v1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
		pod := list[0]
		if wait, ready := pods.AvailableIn(pod, s.set.Spec.MinReadySeconds, s.now); ready && pod.DeletionTimestamp == nil {
			st.NumberReady++
			if wait == 0 {
				st.NumberAvailable++
			} else if next == 0 || wait < next {
				next = wait
			}
		}
		if slices.ContainsFunc(list, s.isCurrent) {
			st.UpdatedNumberScheduled++
		}
	}
	st.NumberUnavailable = st.DesiredNumberScheduled - st.NumberAvailable
	return st, next
}
