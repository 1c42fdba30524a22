package defaultpreemption

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	policylisters "k8s.io/client-go/listers/policy/v1"
	clientcache "k8s.io/client-go/tools/cache"
	kubescheduler "k8s.io/kube-scheduler/config/v1"

	"github.com/coracle-io/coracle/internal/scheduler/cache"
	"github.com/coracle-io/coracle/internal/scheduler/config"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/defaultbinder"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/interpodaffinity"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/nodeports"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/noderesources"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/prioritysort"
	"github.com/coracle-io/coracle/internal/scheduler/profile"
	"github.com/coracle-io/coracle/internal/scheduler/queue"
)

// cluster holds the objects on which a preemption depends.
type cluster struct {
	nodes     []*v1.Node
	pods      []*v1.Pod
	budgets   []*policyv1.PodDisruptionBudget
	nominated []*v1.Pod // by status.nominatedNodeName
	incoming  *v1.Pod
}

var apps = []string{"a", "b", "c"}

func randomCluster(r *rand.Rand) *cluster {
	c := &cluster{}
	for i := range 1 + r.IntN(4) {
		name := fmt.Sprint("n", i)
		c.nodes = append(c.nodes, &v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1.LabelHostname: name, v1.LabelTopologyZone: fmt.Sprint(i % 2)}},
			Status: v1.NodeStatus{Allocatable: v1.ResourceList{
				v1.ResourceCPU: *resource.NewQuantity(int64(2+r.IntN(4)), resource.DecimalSI), v1.ResourcePods: resource.MustParse("6"),
			}},
		})
		for j := range r.IntN(5) {
			p := randomPod(r, fmt.Sprintf("%s-p%d", name, j))
			p.Spec.NodeName = name
			if r.IntN(8) == 0 {
				p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
			}
			c.pods = append(c.pods, p)
		}
		if r.IntN(4) == 0 {
			p := randomPod(r, name+"-nominated")
			p.Status.NominatedNodeName = name
			c.nominated = append(c.nominated, p)
		}
	}
	for _, app := range apps[:r.IntN(len(apps)+1)] {
		c.budgets = append(c.budgets, &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: app},
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
			Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: int32(r.IntN(3))},
		})
	}
	c.incoming = randomPod(r, "incoming")
	return c
}

func randomPod(r *rand.Rand, name string) *v1.Pod {
	priority := int32(r.IntN(6) - 1)
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), Labels: map[string]string{"app": apps[r.IntN(len(apps))]}},
		Spec: v1.PodSpec{Priority: &priority, Containers: []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{
			Requests: v1.ResourceList{v1.ResourceCPU: *resource.NewMilliQuantity(int64(500*(1+r.IntN(6))), resource.DecimalSI)},
		}}}},
		Status: v1.PodStatus{StartTime: &metav1.Time{Time: time.Unix(int64(r.IntN(5)), 0)}},
	}
	if r.IntN(5) == 0 {
		p.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: int32(80 + r.IntN(2)), ContainerPort: 80}}
	}
	term := func() []v1.PodAffinityTerm {
		return []v1.PodAffinityTerm{{
			TopologyKey:   []string{v1.LabelHostname, v1.LabelTopologyZone}[r.IntN(2)],
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": apps[r.IntN(len(apps))]}},
		}}
	}
	switch r.IntN(8) {
	case 0:
		p.Spec.Affinity = &v1.Affinity{PodAffinity: &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: term()}}
	case 1:
		p.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: term()}}
	}
	return p
}

// world runs the filters over a cluster.
type world struct {
	*cluster
	profile *profile.Profile
	plugin  *plugin
}

func newWorld(t testing.TB, c *cluster) *world {
	nominator := queue.NewNominator()
	for _, p := range c.nominated {
		nominator.AddNominatedPod(framework.NewPodInfo(p), "")
	}
	h := &framework.Handle{Nominator: nominator}
	var names []config.Plugin
	registry := framework.Registry{
		framework.Simple(prioritysort.Plugin{}), nodeports.Factory(), noderesources.FitFactory(),
		interpodaffinity.Factory(), defaultbinder.Factory(),
	}
	for _, f := range registry {
		names = append(names, config.Plugin{Name: f.Name})
	}
	p, err := profile.New(t.Context(), profile.Options{Registry: registry, Default: names, Config: config.Profile{SchedulerName: "s"}, Handle: h})
	if err != nil {
		t.Fatal(err)
	}
	store := clientcache.NewIndexer(clientcache.MetaNamespaceKeyFunc, clientcache.Indexers{clientcache.NamespaceIndex: clientcache.MetaNamespaceIndexFunc})
	for _, b := range c.budgets {
		if err := store.Add(b); err != nil {
			t.Fatal(err)
		}
	}
	return &world{c, p, &plugin{
		arguments: Factory().DefaultArguments().(*kubescheduler.DefaultPreemptionArgs), handle: h,
		preemptions: &preemptions{
			preempting: map[types.UID]*preemption{}, evicting: map[types.UID]victim{}, evictingOn: map[string]int{}, rooms: map[types.UID]*room{},
			budgets: newBudgets(policylisters.NewPodDisruptionBudgetLister(store)),
		},
	}}
}

// snapshot builds the cluster without some pods.
func (w *world) snapshot(without []*v1.Pod) *framework.Snapshot {
	c := cache.New()
	for _, n := range w.nodes {
		c.SetNode(n)
	}
	for _, p := range w.pods {
		if !slices.Contains(without, p) {
			c.SetPod(p)
		}
	}
	return c.UpdateSnapshot()
}

// filter asks all filters about a node of the cluster without some pods.
func (w *world) filter(t *testing.T, node string, without []*v1.Pod) *framework.Status {
	snapshot, state, pod := w.snapshot(without), w.profile.NewCycleState(), framework.NewPodInfo(w.incoming)
	if _, s := w.profile.RunPreFilterPlugins(t.Context(), state, pod, snapshot); !s.IsSuccess() {
		return s
	}
	return w.profile.RunFilterPluginsWithNominatedPods(t.Context(), state, pod, snapshot.Node(node))
}

// slow is a candidate by the documentation: take away every pod of lower
// priority, then give back the most important ones while the pod still fits,
// first those whose eviction breaks a budget.
func (w *world) slow(t *testing.T, node string) *candidate {
	var lower, ordered []*v1.Pod
	for _, p := range w.pods {
		if p.Spec.NodeName == node && *p.Spec.Priority < *w.incoming.Spec.Priority {
			lower = append(lower, p)
			if p.DeletionTimestamp == nil {
				ordered = append(ordered, p)
			}
		}
	}
	if len(lower) == 0 || !w.filter(t, node, lower).IsSuccess() {
		return nil
	}
	slices.SortFunc(ordered, func(a, b *v1.Pod) int { return compareImportance(framework.NewPodInfo(a), framework.NewPodInfo(b)) })
	left := map[string]int32{}
	for _, b := range w.budgets {
		left[b.Name] = b.Status.DisruptionsAllowed
	}
	breaks := map[*v1.Pod]bool{}
	for _, p := range ordered {
		if n, protected := left[p.Labels["app"]]; protected {
			breaks[p] = n <= 0
			left[p.Labels["app"]]--
		}
	}
	gone := slices.Clone(lower)
	for _, first := range []bool{true, false} {
		for _, p := range ordered {
			if breaks[p] != first {
				continue
			}
			less := slices.DeleteFunc(slices.Clone(gone), func(o *v1.Pod) bool { return o == p })
			if w.filter(t, node, less).IsSuccess() {
				gone = less
			}
		}
	}
	c := &candidate{node: node}
	for _, p := range ordered {
		if slices.Contains(gone, p) {
			c.victims = append(c.victims, framework.NewPodInfo(p))
			if breaks[p] {
				c.violations++
			}
		}
	}
	return c
}

// choose takes the best candidate, one criterion of the documentation after
// the other.
func choose(candidates []*candidate) *candidate {
	criteria := []func(*candidate) int64{
		func(c *candidate) int64 { return int64(c.violations) },
		func(c *candidate) int64 {
			if len(c.victims) == 0 {
				return -1 << 40
			}
			return int64(c.victims[0].Priority)
		},
		func(c *candidate) (sum int64) {
			for _, v := range c.victims {
				sum += int64(v.Priority) + 1<<31
			}
			return sum
		},
		func(c *candidate) int64 { return int64(len(c.victims)) },
		func(c *candidate) int64 {
			earliest := int64(1 << 40)
			for _, v := range c.victims {
				if v.Priority == c.victims[0].Priority {
					earliest = min(earliest, v.Pod.Status.StartTime.Unix())
				}
			}
			return -earliest
		},
	}
	for _, cost := range criteria {
		least := cost(candidates[0])
		for _, c := range candidates {
			least = min(least, cost(c))
		}
		candidates = slices.DeleteFunc(slices.Clone(candidates), func(c *candidate) bool { return cost(c) != least })
	}
	return candidates[0]
}

// TestAgreesWithTheDocumentation compares the choice with the choice of an
// obvious implementation that builds the cluster anew for each question.
func TestAgreesWithTheDocumentation(t *testing.T) {
	const clusters = 3000
	preempted := 0
	for seed := range uint64(clusters) {
		w := newWorld(t, randomCluster(rand.New(rand.NewPCG(seed, 0))))
		statuses := framework.NewNodeToStatus(nil, len(w.nodes))
		fits := false
		var candidates []*candidate
		for _, n := range w.nodes {
			s := w.filter(t, n.Name, nil)
			fits = fits || s.IsSuccess()
			statuses.Set(n.Name, s)
			if s.Code() == framework.Unschedulable {
				if c := w.slow(t, n.Name); c != nil {
					candidates = append(candidates, c)
				}
			}
		}
		if fits {
			continue
		}
		snapshot, state, pod := w.snapshot(nil), w.profile.NewCycleState(), framework.NewPodInfo(w.incoming)
		if _, s := w.profile.RunPreFilterPlugins(t.Context(), state, pod, snapshot); !s.IsSuccess() && !s.IsSkip() {
			t.Fatalf("seed %d: %v", seed, s.AsError())
		}
		before := describe(snapshot)
		got, _, _ := (&trials{plugin: w.plugin, ctx: t.Context(), state: state, pod: pod, snapshot: snapshot}).best(statuses)
		if after := describe(snapshot); after != before {
			t.Fatalf("seed %d: the snapshot was\n%s\nand is\n%s", seed, before, after)
		}
		w.plugin.start = 0
		again, _, _ := (&trials{plugin: w.plugin, ctx: t.Context(), state: state, pod: pod, snapshot: snapshot}).best(statuses)
		if a, b := shown(again), shown(got); a != b {
			t.Fatalf("seed %d: chose  %s\nafter  %s", seed, a, b)
		}
		var want *candidate
		if len(candidates) > 0 {
			want = choose(candidates)
			preempted++
		}
		if a, b := shown(got), shown(want); a != b {
			t.Fatalf("seed %d: chose  %s\nwant %s", seed, a, b)
		}
	}
	if preempted < clusters/10 {
		t.Errorf("only %d of %d clusters have a preemption", preempted, clusters)
	}
}

func shown(c *candidate) string {
	if c == nil {
		return "nothing"
	}
	text := fmt.Sprintf("%s, %d violations:", c.node, c.violations)
	for _, v := range c.victims {
		text += fmt.Sprintf(" %s(%d)", v.Pod.Name, v.Priority)
	}
	return text
}

// describe shows the pods and sums of a snapshot in an order of their own.
func describe(s *framework.Snapshot) (text string) {
	for _, n := range s.Nodes() {
		var names []string
		for _, p := range n.Pods {
			names = append(names, p.Pod.Name)
		}
		slices.Sort(names)
		text += fmt.Sprintln(n.Name, n.Requested.CPU, n.Requested.Pods, names)
	}
	return text
}
