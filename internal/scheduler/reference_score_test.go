package scheduler

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"pgregory.net/rapid"

	"github.com/coracle-io/coracle/internal/scheduler/cache"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/plugintest"
	"github.com/coracle-io/coracle/internal/scheduler/profile"
	"github.com/coracle-io/coracle/internal/scheduler/queue"
)

// preferredPods sums the weights of the pod's preferred terms and of the
// preferred terms of existing pods that select it. A required affinity of an
// existing pod weighs 1.
func (r *reference) preferredPods(pod *v1.Pod, node *v1.Node) (sum int64) {
	near, far := affinityOf(pod)
	for _, n := range r.nodes {
		for _, p := range r.on(n) {
			theirs, against := affinityOf(p)
			count := func(owner *v1.Pod, term v1.PodAffinityTerm, other *v1.Pod, weight int64) {
				if r.selected(owner, term, other) && slices.Contains(r.inDomain(node, term.TopologyKey), n) {
					sum += weight
				}
			}
			for _, t := range near.PreferredDuringSchedulingIgnoredDuringExecution {
				count(pod, t.PodAffinityTerm, p, int64(t.Weight))
			}
			for _, t := range far.PreferredDuringSchedulingIgnoredDuringExecution {
				count(pod, t.PodAffinityTerm, p, -int64(t.Weight))
			}
			for _, t := range theirs.PreferredDuringSchedulingIgnoredDuringExecution {
				count(p, t.PodAffinityTerm, pod, int64(t.Weight))
			}
			for _, t := range against.PreferredDuringSchedulingIgnoredDuringExecution {
				count(p, t.PodAffinityTerm, pod, -int64(t.Weight))
			}
			for _, t := range theirs.RequiredDuringSchedulingIgnoredDuringExecution {
				count(p, t, pod, 1)
			}
		}
	}
	return sum
}

// spreadScores: the more matching pods are in a node's domains, the worse. A
// node without one of the keys gets 0. nodes are the feasible ones.
func (r *reference) spreadScores(pod *v1.Pod, nodes []*v1.Node) []int64 {
	scores := make([]int64, len(nodes))
	constraints := constraintsOf(pod, v1.ScheduleAnyway)
	if len(constraints) == 0 {
		return scores
	}
	lowest, highest := int64(math.MaxInt64), int64(0)
	for i, node := range nodes {
		if !hasKeys(node, constraints) {
			continue
		}
		var sum float64
		for _, c := range constraints {
			values := map[string]bool{}
			for _, n := range nodes {
				if hasKeys(n, constraints) {
					values[n.Labels[c.TopologyKey]] = true
				}
			}
			count := 0
			for _, n := range r.inDomain(node, c.TopologyKey) {
				if c.TopologyKey == v1.LabelHostname && n == node || c.TopologyKey != v1.LabelHostname && hasKeys(n, constraints) && included(pod, n, c) {
					count += r.spread(pod, n, c)
				}
			}
			sum += float64(count)*math.Log(float64(len(values)+2)) + float64(c.MaxSkew-1)
		}
		scores[i] = int64(math.Round(sum))
		lowest, highest = min(lowest, scores[i]), max(highest, scores[i])
	}
	for i, node := range nodes {
		switch {
		case !hasKeys(node, constraints):
			scores[i] = 0
		case highest == 0:
			scores[i] = 100
		default:
			scores[i] = 100 * (highest + lowest - scores[i]) / highest
		}
	}
	return scores
}

func sometimes(t *rapid.T, what string) bool { return rapid.IntRange(0, 3).Draw(t, what) == 0 }

func drawAmounts(t *rapid.T, cpu, memory, devices []string) v1.ResourceList {
	list := v1.ResourceList{}
	for _, kind := range []struct {
		name    v1.ResourceName
		amounts []string
	}{{v1.ResourceCPU, cpu}, {v1.ResourceMemory, memory}, {exampleResource, devices}} {
		if amount := rapid.SampledFrom(kind.amounts).Draw(t, string(kind.name)); amount != "" {
			list[kind.name] = resource.MustParse(amount)
		}
	}
	return list
}

func drawNode(t *rapid.T, name string) *v1.Node {
	n := zoned(name, rapid.SampledFrom([]string{"z1", "z2", "z3", ""}).Draw(t, "zone"))
	if sometimes(t, "no hostname") {
		delete(n.Labels, v1.LabelHostname)
	}
	if disk := rapid.SampledFrom([]string{"", "1", "5", "ssd"}).Draw(t, "disk"); disk != "" {
		n.Labels["disk"] = disk
	}
	n.Spec.Unschedulable = rapid.IntRange(0, 9).Draw(t, "cordoned") == 0
	for range rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "taints") {
		n.Spec.Taints = append(n.Spec.Taints, v1.Taint{
			Key: rapid.SampledFrom([]string{"k", "l"}).Draw(t, "taint"), Value: rapid.SampledFrom([]string{"", "v"}).Draw(t, "value"),
			Effect: rapid.SampledFrom([]v1.TaintEffect{v1.TaintEffectNoSchedule, v1.TaintEffectPreferNoSchedule, v1.TaintEffectNoExecute}).Draw(t, "effect"),
		})
	}
	n.Status.Allocatable = drawAmounts(t, []string{"2", "4", "1500m", ""}, []string{"4Gi", "1Gi", "3000M", ""}, []string{"", "2"})
	n.Status.Allocatable[v1.ResourcePods] = *resource.NewQuantity(int64(rapid.SampledFrom([]int{10, 10, 10, 2}).Draw(t, "pods")), resource.DecimalSI)
	if sometimes(t, "image") {
		n.Status.Images = []v1.ContainerImage{{Names: []string{"web:1"}, SizeBytes: 700 << 20}}
	}
	return n
}

// drawAnyPod makes a pod that uses whatever the default plugins look at.
func drawAnyPod(t *rapid.T, name string) *v1.Pod {
	p := drawPod(t, name)
	amounts := func() v1.ResourceRequirements {
		return v1.ResourceRequirements{Requests: drawAmounts(t, []string{"", "100m", "700m", "0"}, []string{"", "100Mi", "1Gi"}, []string{"", "", "1"})}
	}
	p.Spec.Containers[0].Resources = amounts()
	for i := range rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "init containers") {
		c := v1.Container{Name: fmt.Sprint("init-", i), Image: "web:2", Resources: amounts()}
		if rapid.Bool().Draw(t, "sidecar") {
			c.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
			c.Ports = []v1.ContainerPort{{HostPort: 81}}
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
	if sometimes(t, "overhead") {
		p.Spec.Overhead = v1.ResourceList{v1.ResourceCPU: resource.MustParse("50m"), v1.ResourceMemory: resource.MustParse("10Mi")}
	}
	if sometimes(t, "pod-level") {
		p.Spec.Resources = &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}}
	}
	if sometimes(t, "port") {
		p.Spec.Containers[0].Ports = []v1.ContainerPort{{
			HostPort: 80, HostIP: rapid.SampledFrom([]string{"", "10.0.0.1", "10.0.0.2"}).Draw(t, "address"),
			Protocol: rapid.SampledFrom([]v1.Protocol{"", v1.ProtocolTCP, v1.ProtocolUDP}).Draw(t, "protocol"),
		}}
	}
	for range rapid.SampledFrom([]int{0, 1, 2}).Draw(t, "tolerations") {
		one := v1.Toleration{
			Key:    rapid.SampledFrom([]string{"k", "l", "node.kubernetes.io/unschedulable"}).Draw(t, "tolerated"),
			Value:  rapid.SampledFrom([]string{"", "v"}).Draw(t, "value"),
			Effect: rapid.SampledFrom([]v1.TaintEffect{"", v1.TaintEffectNoSchedule, v1.TaintEffectPreferNoSchedule}).Draw(t, "effect"),
		}
		if rapid.Bool().Draw(t, "exists") {
			one.Operator, one.Value = v1.TolerationOpExists, ""
			one.Key = rapid.SampledFrom([]string{one.Key, ""}).Draw(t, "any key")
		}
		p.Spec.Tolerations = append(p.Spec.Tolerations, one)
	}
	drawNodeAffinity(t, p)
	drawVolumes(t, p)
	for i := range p.Spec.TopologySpreadConstraints {
		c := &p.Spec.TopologySpreadConstraints[i]
		c.MaxSkew = int32(rapid.IntRange(1, 3).Draw(t, "skew"))
		policies := []*v1.NodeInclusionPolicy{nil, new(v1.NodeInclusionPolicyHonor), new(v1.NodeInclusionPolicyIgnore)}
		c.NodeAffinityPolicy, c.NodeTaintsPolicy = rapid.SampledFrom(policies).Draw(t, "affinity policy"), rapid.SampledFrom(policies).Draw(t, "taints policy")
		if c.WhenUnsatisfiable == v1.DoNotSchedule && sometimes(t, "min domains") {
			c.MinDomains = new(int32(rapid.IntRange(1, 4).Draw(t, "domains")))
		}
	}
	return p
}

func drawNodeAffinity(t *rapid.T, p *v1.Pod) {
	aTerm := func() (made v1.NodeSelectorTerm) {
		for range rapid.IntRange(0, 2).Draw(t, "expressions") {
			e := v1.NodeSelectorRequirement{
				Key: rapid.SampledFrom([]string{"disk", zoneKey}).Draw(t, "label"),
				Operator: rapid.SampledFrom([]v1.NodeSelectorOperator{v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn, v1.NodeSelectorOpExists,
					v1.NodeSelectorOpDoesNotExist, v1.NodeSelectorOpGt, v1.NodeSelectorOpLt}).Draw(t, "operator"),
			}
			switch e.Operator {
			case v1.NodeSelectorOpGt, v1.NodeSelectorOpLt:
				e.Values = []string{"3"}
			case v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn:
				e.Values = []string{"ssd", "z1"}
			}
			made.MatchExpressions = append(made.MatchExpressions, e)
		}
		if sometimes(t, "field") {
			made.MatchFields = []v1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: v1.NodeSelectorOpIn, Values: []string{"node-1"}}}
		}
		return made
	}
	affinity := &v1.NodeAffinity{}
	if sometimes(t, "required node") {
		affinity.RequiredDuringSchedulingIgnoredDuringExecution = &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{aTerm(), aTerm()}}
	}
	if sometimes(t, "preferred node") {
		affinity.PreferredDuringSchedulingIgnoredDuringExecution = []v1.PreferredSchedulingTerm{{Weight: 3, Preference: aTerm()}, {Weight: 10, Preference: aTerm()}}
	}
	p.Spec.Affinity.NodeAffinity = affinity
}

// TestAgreesWithReference compares what the default profile says of random
// pods in random clusters with the reference, node by node: of a pod, and of
// its twins after changes, with and without sharing results between them.
func TestAgreesWithReference(t *testing.T) {
	for _, unshared := range []bool{false, true} {
		t.Run(fmt.Sprint("unshared=", unshared), func(t *testing.T) {
			f := plugintest.Informers(t)
			p := newProfileWith(t, queue.NewNominator(), f, unshared)
			rapid.Check(t, func(t *rapid.T) { agreeWithReference(t, p, f) })
		})
	}
}

func agreeWithReference(t *rapid.T, p *profile.Profile, f informers.SharedInformerFactory) {
	r := &reference{namespaces: map[string]map[string]string{"default": {"team": rapid.SampledFrom([]string{"x", "y"}).Draw(t, "team")}}}
	c := cache.New()
	c.SetNamespace("default", r.namespaces["default"])
	for i := range rapid.IntRange(1, 5).Draw(t, "nodes") {
		r.nodes = append(r.nodes, drawNode(t, fmt.Sprint("node-", i)))
		c.SetNode(r.nodes[i])
	}
	var objects []runtime.Object
	r.storage, objects = drawStorage(t, r.nodes)
	plugintest.Set(t, f, objects...)
	defer plugintest.Delete(t, f, objects...)
	place := func(name string) {
		p := drawAnyPod(t, name)
		p.Spec.NodeName = fmt.Sprint("node-", rapid.IntRange(0, 5).Draw(t, "on")) // the last one is never there
		if rapid.IntRange(0, 5).Draw(t, "deleted") == 0 {
			p.DeletionTimestamp = &metav1.Time{}
		}
		r.pods = append(r.pods, p)
		c.SetPod(p)
	}
	for i := range rapid.IntRange(0, 8).Draw(t, "pods") {
		place(fmt.Sprint("pod-", i))
	}
	pod := drawAnyPod(t, "asked")
	for i := range rapid.IntRange(1, 3).Draw(t, "twins") {
		if rapid.Bool().Draw(t, "change a node") {
			changed := rapid.IntRange(0, len(r.nodes)-1).Draw(t, "changed")
			r.nodes[changed] = drawNode(t, r.nodes[changed].Name)
			c.SetNode(r.nodes[changed])
		} else if i > 0 {
			place(fmt.Sprint("later-", i))
		}
		r.compare(t, p, pod, c.UpdateSnapshot())
	}
}

// compare reports differences between what the profile and the reference say
// of a pod.
func (r *reference) compare(t *rapid.T, p *profile.Profile, pod *v1.Pod, snapshot *framework.Snapshot) {
	info, state := framework.NewPodInfo(pod), p.NewCycleState()
	if _, status := p.RunPreFilterPlugins(t.Context(), state, info, snapshot); !status.IsSuccess() {
		t.Fatal(status.Message())
	}
	var feasible []*v1.Node
	var infos []*framework.NodeInfo
	for _, n := range r.nodes {
		want := r.reasons(pod, n)
		got := p.RunFilterPluginsWithNominatedPods(t.Context(), state, info, snapshot.Node(n.Name)).Reasons()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%s (-reference +plugins):\n%s", n.Name, diff)
		}
		if len(want) == 0 {
			feasible, infos = append(feasible, n), append(infos, snapshot.Node(n.Name))
		}
	}
	if len(feasible) == 0 {
		return
	}
	got, status := p.RunScorePlugins(t.Context(), state, info, snapshot, infos)
	if !status.IsSuccess() {
		t.Fatal(status.Message())
	}
	if diff := cmp.Diff(r.scores(pod, feasible), got); diff != "" {
		t.Fatalf("scores (-reference +plugins):\n%s", diff)
	}
}
