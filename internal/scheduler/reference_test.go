package scheduler

import (
	"maps"
	"math"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// reference is the default profile of kube-scheduler, written from its
// documentation in the most obvious way: every question looks at all nodes and
// all pods of the cluster, and nothing is remembered.
type reference struct {
	nodes      []*v1.Node
	pods       []*v1.Pod // with a nodeName
	namespaces map[string]map[string]string
	storage    storage
}

// on returns the pods of a node.
func (r *reference) on(node *v1.Node) (pods []*v1.Pod) {
	for _, p := range r.pods {
		if p.Spec.NodeName == node.Name {
			pods = append(pods, p)
		}
	}
	return pods
}

// inDomain returns the nodes whose label key has the same value as on node.
func (r *reference) inDomain(node *v1.Node, key string) (nodes []*v1.Node) {
	value, ok := node.Labels[key]
	for _, n := range r.nodes {
		if other, has := n.Labels[key]; ok && has && other == value {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// reasons are the reasons of the first plugin that rejects the pod on the node.
func (r *reference) reasons(pod *v1.Pod, node *v1.Node) []string {
	for _, plugin := range []func(*v1.Pod, *v1.Node) []string{
		r.nodeUnschedulable, r.nodeName, r.taintToleration, r.nodeAffinity, r.nodePorts, r.nodeResourcesFit,
		r.volumeRestrictions, r.nodeVolumeLimits, r.volumeBinding, r.volumeZone, r.podTopologySpread, r.interPodAffinity,
	} {
		if reasons := plugin(pod, node); len(reasons) > 0 {
			return reasons
		}
	}
	return nil
}

func (*reference) nodeUnschedulable(pod *v1.Pod, node *v1.Node) []string {
	taint := v1.Taint{Key: "node.kubernetes.io/unschedulable", Effect: v1.TaintEffectNoSchedule}
	if node.Spec.Unschedulable && !tolerated(pod, taint) {
		return []string{"node(s) were unschedulable"}
	}
	return nil
}

func (*reference) nodeName(pod *v1.Pod, node *v1.Node) []string {
	if pod.Spec.NodeName != "" && pod.Spec.NodeName != node.Name {
		return []string{"node(s) didn't match the requested node name"}
	}
	return nil
}

func (*reference) taintToleration(pod *v1.Pod, node *v1.Node) []string {
	for _, taint := range node.Spec.Taints {
		if taint.Effect != v1.TaintEffectPreferNoSchedule && !tolerated(pod, taint) {
			return []string{"node(s) had untolerated taint(s)"}
		}
	}
	return nil
}

func tolerated(pod *v1.Pod, taint v1.Taint) bool {
	for _, t := range pod.Spec.Tolerations {
		key := t.Key == taint.Key || t.Key == "" && t.Operator == v1.TolerationOpExists
		value := t.Operator == v1.TolerationOpExists || t.Value == taint.Value
		if key && value && (t.Effect == "" || t.Effect == taint.Effect) {
			return true
		}
	}
	return false
}

func (*reference) nodeAffinity(pod *v1.Pod, node *v1.Node) []string {
	if !wantsNode(pod, node) {
		return []string{"node(s) didn't match Pod's node affinity/selector"}
	}
	return nil
}

// wantsNode evaluates nodeSelector and the required node affinity.
func wantsNode(pod *v1.Pod, node *v1.Node) bool {
	for key, value := range pod.Spec.NodeSelector {
		if has, ok := node.Labels[key]; !ok || has != value {
			return false
		}
	}
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil {
		return true
	}
	required := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	return required == nil || slices.ContainsFunc(required.NodeSelectorTerms, func(t v1.NodeSelectorTerm) bool { return termSelects(t, node) })
}

// termSelects: all expressions hold. An empty term selects nothing.
func termSelects(term v1.NodeSelectorTerm, node *v1.Node) bool {
	for _, e := range term.MatchExpressions {
		if !holds(e, node.Labels) {
			return false
		}
	}
	for _, e := range term.MatchFields {
		if !holds(e, map[string]string{"metadata.name": node.Name}) {
			return false
		}
	}
	return len(term.MatchExpressions)+len(term.MatchFields) > 0
}

func holds(e v1.NodeSelectorRequirement, values map[string]string) bool {
	value, ok := values[e.Key]
	switch e.Operator {
	case v1.NodeSelectorOpIn:
		return ok && slices.Contains(e.Values, value)
	case v1.NodeSelectorOpNotIn:
		return !ok || !slices.Contains(e.Values, value)
	case v1.NodeSelectorOpExists:
		return ok
	case v1.NodeSelectorOpDoesNotExist:
		return !ok
	}
	number, err := strconv.ParseInt(value, 10, 64)
	limit, wrong := strconv.ParseInt(e.Values[0], 10, 64)
	if !ok || err != nil || wrong != nil {
		return false
	}
	if e.Operator == v1.NodeSelectorOpGt {
		return number > limit
	}
	return number < limit
}

func (r *reference) nodePorts(pod *v1.Pod, node *v1.Node) []string {
	for _, other := range r.on(node) {
		for _, a := range hostPortsOf(pod) {
			for _, b := range hostPortsOf(other) {
				address := a.HostIP == b.HostIP || a.HostIP == "0.0.0.0" || b.HostIP == "0.0.0.0"
				if a.HostPort == b.HostPort && a.Protocol == b.Protocol && address {
					return []string{"node(s) didn't have free ports for the requested pod ports"}
				}
			}
		}
	}
	return nil
}

func hostPortsOf(pod *v1.Pod) (ports []v1.ContainerPort) {
	for _, c := range slices.Concat(pod.Spec.Containers, sidecars(pod)) {
		for _, p := range c.Ports {
			if p.HostPort == 0 {
				continue
			}
			if p.HostIP == "" {
				p.HostIP = "0.0.0.0"
			}
			if p.Protocol == "" {
				p.Protocol = v1.ProtocolTCP
			}
			ports = append(ports, p)
		}
	}
	return ports
}

func isSidecar(c v1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
}

func sidecars(pod *v1.Pod) (containers []v1.Container) {
	for _, c := range pod.Spec.InitContainers {
		if isSidecar(c) {
			containers = append(containers, c)
		}
	}
	return containers
}

func amountOf(list v1.ResourceList, name v1.ResourceName) int64 {
	q := list[name]
	if name == v1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}

// requestOf is the largest amount that the pod needs at any time. missing
// counts for containers without a request.
func requestOf(pod *v1.Pod, name v1.ResourceName, missing int64) int64 {
	of := func(c v1.Container) int64 {
		if _, ok := c.Resources.Requests[name]; !ok {
			return missing
		}
		return amountOf(c.Resources.Requests, name)
	}
	var started, peak int64 // sidecars that run already, and the most that starting up needs
	for _, c := range pod.Spec.InitContainers {
		peak = max(peak, started+of(c))
		if isSidecar(c) {
			started += of(c)
		}
	}
	running := started
	for _, c := range pod.Spec.Containers {
		running += of(c)
	}
	need := max(running, peak)
	if pod.Spec.Resources != nil {
		if _, ok := pod.Spec.Resources.Requests[name]; ok {
			need = amountOf(pod.Spec.Resources.Requests, name)
		}
	}
	return need + amountOf(pod.Spec.Overhead, name)
}

const exampleResource = v1.ResourceName("example.com/device")

func (r *reference) nodeResourcesFit(pod *v1.Pod, node *v1.Node) (reasons []string) {
	if int64(len(r.on(node)))+1 > amountOf(node.Status.Allocatable, v1.ResourcePods) {
		reasons = append(reasons, "Too many pods")
	}
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage, exampleResource} {
		want := requestOf(pod, name, 0)
		if want > 0 && want > amountOf(node.Status.Allocatable, name)-r.used(node, name, 0) {
			reasons = append(reasons, "Insufficient "+string(name))
		}
	}
	slices.Sort(reasons)
	return reasons
}

func (r *reference) used(node *v1.Node, name v1.ResourceName, missing int64) (sum int64) {
	for _, p := range r.on(node) {
		sum += requestOf(p, name, missing)
	}
	return sum
}

func (r *reference) podTopologySpread(pod *v1.Pod, node *v1.Node) []string {
	constraints := constraintsOf(pod, v1.DoNotSchedule)
	for _, c := range constraints {
		value, ok := node.Labels[c.TopologyKey]
		if !ok {
			return []string{"node(s) didn't match pod topology spread constraints (missing required label)"}
		}
		counts := map[string]int{}
		for _, n := range r.nodes {
			if other, has := n.Labels[c.TopologyKey]; has && hasKeys(n, constraints) && included(pod, n, c) {
				counts[other] += r.spread(pod, n, c)
			}
		}
		lowest := 0
		if len(counts) > 0 {
			lowest = slices.Min(slices.Collect(maps.Values(counts)))
		}
		if c.MinDomains != nil && len(counts) < int(*c.MinDomains) {
			lowest = 0
		}
		skew := counts[value] - lowest
		if parsed(c.LabelSelector).Matches(labels.Set(pod.Labels)) {
			skew++
		}
		if skew > int(c.MaxSkew) {
			return []string{"node(s) didn't match pod topology spread constraints"}
		}
	}
	return nil
}

func constraintsOf(pod *v1.Pod, action v1.UnsatisfiableConstraintAction) (constraints []v1.TopologySpreadConstraint) {
	for _, c := range pod.Spec.TopologySpreadConstraints {
		if c.WhenUnsatisfiable == action {
			constraints = append(constraints, c)
		}
	}
	return constraints
}

func hasKeys(node *v1.Node, constraints []v1.TopologySpreadConstraint) bool {
	return !slices.ContainsFunc(constraints, func(c v1.TopologySpreadConstraint) bool {
		_, ok := node.Labels[c.TopologyKey]
		return !ok
	})
}

// included evaluates nodeAffinityPolicy, by default Honor, and nodeTaintsPolicy,
// by default Ignore.
func included(pod *v1.Pod, node *v1.Node, c v1.TopologySpreadConstraint) bool {
	if (c.NodeAffinityPolicy == nil || *c.NodeAffinityPolicy == v1.NodeInclusionPolicyHonor) && !wantsNode(pod, node) {
		return false
	}
	return c.NodeTaintsPolicy == nil || *c.NodeTaintsPolicy == v1.NodeInclusionPolicyIgnore || (*reference)(nil).taintToleration(pod, node) == nil
}

// spread counts the pods of a node that a constraint of the pod selects.
func (r *reference) spread(pod *v1.Pod, node *v1.Node, c v1.TopologySpreadConstraint) (count int) {
	for _, p := range r.on(node) {
		if p.Namespace == pod.Namespace && p.DeletionTimestamp == nil && parsed(c.LabelSelector).Matches(labels.Set(p.Labels)) {
			count++
		}
	}
	return count
}

// parsed returns a selector; a nil one selects nothing.
func parsed(s *metav1.LabelSelector) labels.Selector {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		panic(err)
	}
	return selector
}

// selected reports whether a term of the pod owner selects the other pod.
func (r *reference) selected(owner *v1.Pod, term v1.PodAffinityTerm, other *v1.Pod) bool {
	namespace := slices.Contains(term.Namespaces, other.Namespace)
	if term.NamespaceSelector != nil {
		namespace = namespace || parsed(term.NamespaceSelector).Matches(labels.Set(r.namespaces[other.Namespace]))
	} else if len(term.Namespaces) == 0 {
		namespace = owner.Namespace == other.Namespace
	}
	return namespace && parsed(term.LabelSelector).Matches(labels.Set(other.Labels))
}

func affinityOf(pod *v1.Pod) (near v1.PodAffinity, far v1.PodAntiAffinity) {
	if a := pod.Spec.Affinity; a != nil {
		if a.PodAffinity != nil {
			near = *a.PodAffinity
		}
		if a.PodAntiAffinity != nil {
			far = *a.PodAntiAffinity
		}
	}
	return near, far
}

func (r *reference) interPodAffinity(pod *v1.Pod, node *v1.Node) []string {
	near, far := affinityOf(pod)
	if !r.near(pod, node, near.RequiredDuringSchedulingIgnoredDuringExecution) {
		return []string{"node(s) didn't match pod affinity rules"}
	}
	for _, term := range far.RequiredDuringSchedulingIgnoredDuringExecution {
		for _, n := range r.inDomain(node, term.TopologyKey) {
			if slices.ContainsFunc(r.on(n), func(p *v1.Pod) bool { return r.selected(pod, term, p) }) {
				return []string{"node(s) didn't match pod anti-affinity rules"}
			}
		}
	}
	for _, n := range r.nodes {
		for _, p := range r.on(n) {
			_, far := affinityOf(p)
			for _, term := range far.RequiredDuringSchedulingIgnoredDuringExecution {
				if r.selected(p, term, pod) && slices.Contains(r.inDomain(node, term.TopologyKey), n) {
					return []string{"node(s) didn't satisfy existing pods anti-affinity rules"}
				}
			}
		}
	}
	return nil
}

// near evaluates the required affinity. A pod counts if all terms select it.
// The first pod of a group that wants to be near its own kind may go anywhere
// where the topology keys are.
func (r *reference) near(pod *v1.Pod, node *v1.Node, terms []v1.PodAffinityTerm) bool {
	all := func(p *v1.Pod) bool {
		return !slices.ContainsFunc(terms, func(t v1.PodAffinityTerm) bool { return !r.selected(pod, t, p) })
	}
	satisfied, first := true, all(pod)
	for _, term := range terms {
		if _, ok := node.Labels[term.TopologyKey]; !ok {
			return false
		}
		here := func(n *v1.Node) bool { return slices.ContainsFunc(r.on(n), all) }
		satisfied = satisfied && slices.ContainsFunc(r.inDomain(node, term.TopologyKey), here)
		for _, n := range r.nodes {
			if _, ok := n.Labels[term.TopologyKey]; ok && here(n) {
				first = false
			}
		}
	}
	return satisfied || first
}

// scores are the weighted sums for nodes.
func (r *reference) scores(pod *v1.Pod, nodes []*v1.Node) []int64 {
	total := make([]int64, len(nodes))
	add := func(weight int64, scores []int64) {
		for i, s := range scores {
			total[i] += weight * s
		}
	}
	each := func(score func(*v1.Pod, *v1.Node) int64) []int64 {
		scores := make([]int64, len(nodes))
		for i, n := range nodes {
			scores[i] = score(pod, n)
		}
		return scores
	}
	add(3, reversed(ofHighest(each(untolerated))))
	add(2, ofHighest(each(preferredNode)))
	add(1, each(r.leastAllocated))
	add(1, each(r.freeStorage))
	add(2, r.spreadScores(pod, nodes))
	add(2, ofRange(each(r.preferredPods)))
	add(1, each(r.balanced))
	add(1, each(r.imageLocality))
	return total
}

func ofHighest(scores []int64) []int64 {
	if highest := slices.Max(scores); highest > 0 {
		for i := range scores {
			scores[i] = scores[i] * 100 / highest
		}
	}
	return scores
}

func reversed(scores []int64) []int64 {
	for i := range scores {
		scores[i] = 100 - scores[i]
	}
	return scores
}

func ofRange(scores []int64) []int64 {
	lowest, highest := slices.Min(scores), slices.Max(scores)
	for i := range scores {
		scores[i] = int64(100 * (float64(scores[i]-lowest) / max(float64(highest-lowest), 1)))
	}
	return scores
}

func untolerated(pod *v1.Pod, node *v1.Node) (count int64) {
	for _, taint := range node.Spec.Taints {
		if taint.Effect == v1.TaintEffectPreferNoSchedule && !tolerated(pod, taint) {
			count++
		}
	}
	return count
}

func preferredNode(pod *v1.Pod, node *v1.Node) (sum int64) {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil {
		return 0
	}
	for _, t := range pod.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
		if termSelects(t.Preference, node) {
			sum += int64(t.Weight)
		}
	}
	return sum
}

// missing is the request that a container without one counts for when nodes are
// scored.
var missing = map[v1.ResourceName]int64{v1.ResourceCPU: 100, v1.ResourceMemory: 200 << 20}

func (r *reference) leastAllocated(pod *v1.Pod, node *v1.Node) int64 {
	var sum, resources int64
	for name, floor := range missing {
		capacity := amountOf(node.Status.Allocatable, name)
		if capacity == 0 {
			continue
		}
		resources++
		if used := r.used(node, name, floor) + requestOf(pod, name, floor); used <= capacity {
			sum += (capacity - used) * 100 / capacity
		}
	}
	return sum / max(resources, 1)
}

// balanced: 75 if the pod leaves the balance of cpu and memory as it was, 100
// at best and 50 at worst.
func (r *reference) balanced(pod *v1.Pod, node *v1.Node) int64 {
	cpu, memory := requestOf(pod, v1.ResourceCPU, 0), requestOf(pod, v1.ResourceMemory, 0)
	if cpu == 0 && memory == 0 {
		return 0
	}
	deviation := func(cpu, memory int64) float64 {
		var fractions []float64
		for name, more := range map[v1.ResourceName]int64{v1.ResourceCPU: cpu, v1.ResourceMemory: memory} {
			if capacity := amountOf(node.Status.Allocatable, name); capacity > 0 {
				fractions = append(fractions, min(1, float64(r.used(node, name, 0)+more)/float64(capacity)))
			}
		}
		if len(fractions) < 2 {
			return 0
		}
		return math.Abs(fractions[0]-fractions[1]) / 2
	}
	return int64(100 * (0.75 + (deviation(0, 0)-deviation(cpu, memory))/2))
}

func (r *reference) imageLocality(pod *v1.Pod, node *v1.Node) int64 {
	const mib = 1 << 20
	var sum, containers int64
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		containers++
		var nodes, size int64
		for _, n := range r.nodes {
			if s := imageSize(n, c.Image); s > 0 {
				nodes, size = nodes+1, s
			}
		}
		if imageSize(node, c.Image) > 0 {
			sum += size * nodes / int64(len(r.nodes))
		}
	}
	lowest, highest := int64(23*mib), containers*1000*mib
	return 100 * (min(max(sum, lowest), highest) - lowest) / (highest - lowest)
}

func imageSize(node *v1.Node, image string) int64 {
	for _, i := range node.Status.Images {
		if slices.Contains(i.Names, image) {
			return i.SizeBytes
		}
	}
	return 0
}
