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
	"github.com/coracle-io/coracle/internal/order"
	"github.com/coracle-io/coracle/internal/podquery"
)

// nodeShouldRun reports whether a node should run a pod of a DaemonSet, and whether
// an existing pod there should continue to run. The operators Lt and Gt of
// tolerations always count: the API server's gate decides who may have them.
func nodeShouldRun(set *apps.DaemonSet, node *v1.Node) (run, continueRunning bool) {
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

// tolerations returns the tolerations of the template and the tolerations that
// every DaemonSet pod has, so that it runs on nodes that are not ready, under
// pressure or cordoned.
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

// nodeOf returns the node to which a pod is bound, or for which it has a node
// affinity.
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

// setNodeAffinity sets the node affinity of a pod so that it runs only on one node.
func setNodeAffinity(pod *v1.Pod, node string) {
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
	// The node's name replaces the node selector terms of the template, which
	// nodeShouldRun has already evaluated.
	affinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms = []v1.NodeSelectorTerm{{
		MatchFields: []v1.NodeSelectorRequirement{requirement},
	}}
}

// snapshot is the input of manage and rollingUpdate.
type snapshot struct {
	set   *apps.DaemonSet
	nodes []*v1.Node
	pods  []*v1.Pod // owned by the set
	hash  string    // of the current revision
	now   time.Time
	since pods.Since // when the pods became ready
}

// step is the set of changes to make now.
type step struct {
	create []string // names of nodes
	delete []*v1.Pod
}

// byNode returns the pods of each node, without finished pods that are being
// deleted: a finalizer may hold them for any time.
func (s snapshot) byNode() map[string][]*v1.Pod {
	out := map[string][]*v1.Pod{}
	for _, p := range s.pods {
		if node := nodeOf(p); node != "" && (p.DeletionTimestamp == nil || !podquery.IsFinished(p)) {
			out[node] = append(out[node], p)
		}
	}
	return out
}

// manage decides which nodes need a pod and which pods are superfluous.
func manage(s snapshot) (out step) {
	byNode := s.byNode()
	existing := map[string]bool{}
	surge, _ := limits(s)
	for _, node := range s.nodes {
		existing[node.Name] = true
		run, continueRunning := nodeShouldRun(s.set, node)
		var alive []*v1.Pod
		terminating := false
		for _, p := range byNode[node.Name] {
			switch {
			case p.DeletionTimestamp != nil:
				terminating = true
			case podquery.IsFinished(p):
				out.delete = append(out.delete, p)
			default:
				alive = append(alive, p)
			}
		}
		switch {
		case !continueRunning:
			out.delete = append(out.delete, alive...)
		case run && len(byNode[node.Name]) == 0, run && len(alive) == 0 && terminating && surge > 0 && len(byNode[node.Name]) == 1:
			out.create = append(out.create, node.Name)
		case run && len(alive) > 1:
			out.delete = append(out.delete, s.surplus(alive, surge > 0)...)
		}
	}
	// The pod garbage collector deletes bound pods of deleted nodes. Unbound ones
	// must be deleted here.
	for node, list := range byNode {
		if existing[node] {
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

// surplus returns the pods of one node to delete so that one remains, which is the
// oldest bound one. During a rolling update with surge, an outdated pod that is ready
// also remains until the current one is available. An outdated pod that is not ready is
// deleted so that the current one fits.
func (s snapshot) surplus(alive []*v1.Pod, surging bool) []*v1.Pod {
	sorted := slices.SortedFunc(slices.Values(alive), func(a, b *v1.Pod) int {
		bound := func(p *v1.Pod) int {
			if p.Spec.NodeName != "" {
				return 0
			}
			return 1
		}
		return cmp.Or(cmp.Compare(bound(a), bound(b)), order.ByAge(a, b))
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
	if len(old) == 0 || !podquery.IsReady(old[0]) || s.since.IsAvailable(current[0], s.set.Spec.MinReadySeconds, s.now) {
		return append(out, old...)
	}
	return append(out, old[1:]...)
}

func (s snapshot) isCurrent(p *v1.Pod) bool {
	return p.Labels[apps.ControllerRevisionHashLabelKey] == s.hash
}

// limits returns maxSurge and maxUnavailable as numbers of nodes. One of them is
// zero.
func limits(s snapshot) (surge, unavailable int) {
	r := s.set.Spec.UpdateStrategy.RollingUpdate
	if s.set.Spec.UpdateStrategy.Type != apps.RollingUpdateDaemonSetStrategyType || r == nil {
		return 0, 0
	}
	desired := 0
	for _, node := range s.nodes {
		if run, _ := nodeShouldRun(s.set, node); run {
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

// rollingUpdate decides which outdated pods to delete now or, with surge, which
// nodes get a second pod. maxSurge limits the nodes that have an available outdated
// pod and a second one; other outdated pods are replaced at once.
func rollingUpdate(s snapshot) (out step) {
	if s.set.Spec.UpdateStrategy.Type != apps.RollingUpdateDaemonSetStrategyType {
		return out
	}
	surge, unavailable := limits(s)
	byNode := s.byNode()
	var available, unavailableOld []*v1.Pod
	numUnavailable, numSurge := 0, 0
	for _, node := range s.nodes {
		if run, _ := nodeShouldRun(s.set, node); !run {
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
			if s.since.IsAvailable(old, s.set.Spec.MinReadySeconds, s.now) {
				numSurge++
			}
		case current != nil:
			if !s.since.IsAvailable(current, s.set.Spec.MinReadySeconds, s.now) {
				numUnavailable++
			}
		case old == nil:
			numUnavailable++
		case s.since.IsAvailable(old, s.set.Spec.MinReadySeconds, s.now):
			available = append(available, old)
		default:
			unavailableOld = append(unavailableOld, old)
			numUnavailable++
		}
	}
	if surge > 0 {
		for _, p := range append(unavailableOld, available[:min(max(surge-numSurge, 0), len(available))]...) {
			out.create = append(out.create, nodeOf(p))
		}
		return out
	}
	out.delete = append(out.delete, unavailableOld...)
	if remaining := unavailable - numUnavailable; remaining > 0 {
		out.delete = append(out.delete, available[:min(remaining, len(available))]...)
	}
	return out
}

// status computes the status of a set. next is the time until a ready pod becomes
// available, or 0 if there is no such pod.
func status(s snapshot) (st apps.DaemonSetStatus, next time.Duration) {
	st = apps.DaemonSetStatus{
		ObservedGeneration: s.set.Generation, CollisionCount: s.set.Status.CollisionCount, Conditions: s.set.Status.Conditions,
	}
	byNode := s.byNode()
	for _, node := range s.nodes {
		run, _ := nodeShouldRun(s.set, node)
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
		// The oldest pod counts. With surge, it is outdated until the current one replaces it.
		pod := slices.MinFunc(list, func(a, b *v1.Pod) int {
			return cmp.Or(order.FalseFirst(a.DeletionTimestamp != nil, b.DeletionTimestamp != nil), a.CreationTimestamp.Compare(b.CreationTimestamp.Time))
		})
		if wait, ready := s.since.AvailableIn(pod, s.set.Spec.MinReadySeconds, s.now); ready && pod.DeletionTimestamp == nil {
			st.NumberReady++
			if wait == 0 {
				st.NumberAvailable++
			} else if next == 0 || wait < next {
				next = wait
			}
		}
		if s.isCurrent(pod) {
			st.UpdatedNumberScheduled++
		}
	}
	st.NumberUnavailable = st.DesiredNumberScheduled - st.NumberAvailable
	return st, next
}
