package defaultpreemption

import (
	"context"
	"errors"
	"fmt"
	"maps"
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

	"github.com/coracle-io/coracle/internal/scheduler/cache"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// changing is a cluster in which preemptors come one after the other while
// something changes between them.
type changing struct {
	*world
	t     *testing.T
	r     *rand.Rand
	cache *cache.Cache
	pods  map[string]*v1.Pod // on nodes, by name
	hits  int
}

// TestKnownCandidatesAreCurrent compares choices that use what earlier pods of the same signature
// found with choices that do not, while pods come, go, start, terminate, are
// nominated and evicted, and budgets come and go.
func TestKnownCandidatesAreCurrent(t *testing.T) {
	hits := 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		c := &changing{world: newWorld(t, randomCluster(r)), t: t, r: r, cache: cache.New(), pods: map[string]*v1.Pod{}}
		for _, n := range c.nodes {
			c.cache.SetNode(n)
		}
		for _, p := range c.world.pods {
			c.set(p)
		}
		c.incoming = randomPod(r, "incoming")
		c.incoming.Spec.Affinity = nil
		high := int32(5)
		c.incoming.Spec.Priority = &high
		for range 40 {
			c.step()
			c.compare(seed)
		}
		hits += c.hits
	}
	if hits < 1000 {
		t.Errorf("only %d searches knew of something", hits)
	}
}

func (c *changing) set(p *v1.Pod) {
	c.pods[p.Name] = p
	c.cache.SetPod(p)
}

// step changes something.
func (c *changing) step() {
	node := c.nodes[c.r.IntN(len(c.nodes))].Name
	var some *v1.Pod
	if names := slices.Sorted(maps.Keys(c.pods)); len(names) > 0 {
		some = c.pods[names[c.r.IntN(len(names))]].DeepCopy()
	}
	p := c.plugin
	switch step := c.r.IntN(9); {
	case step == 0:
		one := randomPod(c.r, fmt.Sprint("new-", c.r.IntN(20)))
		if c.pods[one.Name] == nil {
			one.Spec.NodeName = node
			c.set(one)
		}
	case step == 1:
		c.handleNomination(node)
	case step == 2:
		c.setBudgets()
	case some == nil || step > 6:
	case step == 3:
		delete(c.pods, some.Name)
		c.cache.DeletePod(some.UID)
	case step == 4:
		some.Status.StartTime = &metav1.Time{Time: time.Unix(int64(c.r.IntN(5)), 0)}
		c.set(some)
	case step == 5:
		some.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		c.set(some)
	case p.isEvicting(some.UID):
		p.mu.Lock()
		p.gone(some.UID)
		p.mu.Unlock()
	default:
		p.begin("another", &candidate{node: some.Spec.NodeName, victims: []*framework.PodInfo{framework.NewPodInfo(some)}})
	}
}

func (c *changing) handleNomination(node string) {
	nominator := c.plugin.handle.Nominator
	if nominator.NominatedNode("reserved") != "" {
		nominator.DeleteNominatedPod("reserved")
		return
	}
	reserved, priority := randomPod(c.r, "reserved"), int32(4+c.r.IntN(2))
	reserved.Spec.Priority = &priority
	nominator.AddNominatedPod(framework.NewPodInfo(reserved), node)
}

func (c *changing) setBudgets() {
	store := clientcache.NewIndexer(clientcache.MetaNamespaceKeyFunc, clientcache.Indexers{clientcache.NamespaceIndex: clientcache.MetaNamespaceIndexFunc})
	if c.r.IntN(3) == 0 {
		err := store.Add(&policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "budget"},
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": apps[c.r.IntN(len(apps))]}}},
		})
		if err != nil {
			c.t.Fatal(err)
		}
	}
	c.plugin.budgets = newBudgets(policylisters.NewPodDisruptionBudgetLister(store))
}

// compare has two pods of one signature choose, one of which knows nothing.
func (c *changing) compare(seed uint64) {
	choose := func(name string) string {
		twin := c.incoming.DeepCopy()
		twin.Name, twin.UID = name, types.UID(name)
		snapshot, state, pod := c.cache.UpdateSnapshot(), c.profile.NewCycleState(), framework.NewPodInfo(twin)
		if _, s := c.profile.RunPreFilterPlugins(c.t.Context(), state, pod, snapshot); !s.IsSuccess() {
			return s.Message()
		}
		statuses := framework.NewNodeToStatus(nil, len(c.nodes))
		for _, n := range snapshot.Nodes() {
			statuses.Set(n.Name, c.profile.RunFilterPluginsWithNominatedPods(c.t.Context(), state, pod, n))
		}
		c.plugin.start = 0
		best, why, err := (&trials{plugin: c.plugin, ctx: c.t.Context(), state: state, pod: pod, snapshot: snapshot}).best(statuses)
		if err != nil {
			c.t.Fatal(err)
		}
		return shown(best) + why
	}
	if len(c.plugin.known.byNode) > 0 {
		c.hits++
	}
	got := choose("first")
	known := c.plugin.known
	c.plugin.known = knownCandidates{}
	want := choose("second")
	c.plugin.known = known
	if got != want {
		c.t.Fatalf("seed %d: chose  %s\nwant %s", seed, got, want)
	}
}

// answering calls a function instead of the filters, unless that returns nil.
type answering struct {
	framework.FilterRunner
	answer func() *framework.Status
}

func (a answering) RunFilterPluginsWithNominatedPods(ctx context.Context, state *framework.CycleState, pod *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	if s := a.answer(); s != nil {
		return s
	}
	return a.FilterRunner.RunFilterPluginsWithNominatedPods(ctx, state, pod, node)
}

// Results that hold only while a pod is nominated for the node, or while a
// filter fails, are not used for the next pod of the same signature.
func TestPassingAnswersAreNotKnown(t *testing.T) {
	sized := func(name, node string, priority int32) *v1.Pod {
		p := randomPod(rand.New(rand.NewPCG(1, 1)), name)
		p.Spec.Affinity, p.Spec.Containers[0].Ports, p.Spec.NodeName, p.Spec.Priority = nil, nil, node, &priority
		p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("2")}
		return p
	}
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	n.Status.Allocatable = v1.ResourceList{v1.ResourceCPU: resource.MustParse("2"), v1.ResourcePods: resource.MustParse("10")}
	for name, answer := range map[string]func(framework.Nominator) *framework.Status{
		"nominated": func(nominator framework.Nominator) *framework.Status {
			nominator.AddNominatedPod(framework.NewPodInfo(sized("reserved", "", 9)), "n")
			return nil
		},
		"failed": func(framework.Nominator) *framework.Status { return framework.AsStatus("Any", errors.New("not now")) },
	} {
		t.Run(name, func(t *testing.T) {
			c := &changing{world: newWorld(t, &cluster{nodes: []*v1.Node{n}}), t: t, cache: cache.New(), pods: map[string]*v1.Pod{}}
			c.cache.SetNode(n)
			c.set(sized("low", "n", 0))
			handle := c.plugin.handle
			filters := handle.Filters
			choose := func(name string) *candidate {
				snapshot, state, pod := c.cache.UpdateSnapshot(), c.profile.NewCycleState(), framework.NewPodInfo(sized(name, "", 5))
				if _, s := c.profile.RunPreFilterPlugins(t.Context(), state, pod, snapshot); !s.IsSuccess() {
					t.Fatal(s.Message())
				}
				statuses := framework.NewNodeToStatus(framework.NewStatus(framework.Unschedulable, "Any"), 0)
				best, _, err := (&trials{plugin: c.plugin, ctx: t.Context(), state: state, pod: pod, snapshot: snapshot}).best(statuses)
				if err != nil && name != "first" { // whose filter may fail
					t.Fatal(err)
				}
				return best
			}
			handle.Filters = answering{filters, func() *framework.Status { return answer(handle.Nominator) }}
			if best := choose("first"); best != nil {
				t.Fatalf("chose %s", shown(best))
			}
			handle.Filters = filters
			handle.Nominator.DeleteNominatedPod("reserved")
			for _, name := range []string{"second", "third"} {
				if best := choose(name); best == nil {
					t.Errorf("found no node for the %s twin", name)
				}
			}
			if len(c.plugin.known.byNode) != 1 {
				t.Errorf("%d nodes are known", len(c.plugin.known.byNode))
			}
		})
	}
}
