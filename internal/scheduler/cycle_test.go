package scheduler

import (
	"context"
	"math/rand/v2"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"

	"github.com/coracle-io/coracle/internal/scheduler/cache"
	"github.com/coracle-io/coracle/internal/scheduler/config"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/all"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/plugintest"
	"github.com/coracle-io/coracle/internal/scheduler/profile"
	"github.com/coracle-io/coracle/internal/scheduler/queue"
)

type podOption func(*v1.Pod)

func pod(name string, options ...podOption) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)}}
	p.Spec.Containers = []v1.Container{{Name: "main", Image: "web:1"}}
	for _, o := range options {
		o(p)
	}
	return p
}

func requests(cpu, memory string) podOption {
	return func(p *v1.Pod) {
		p.Spec.Containers[0].Resources.Requests = v1.ResourceList{
			v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory),
		}
	}
}

func labeled(key, value string) podOption {
	return func(p *v1.Pod) { p.Labels = map[string]string{key: value} }
}

func selects(key, value string) podOption {
	return func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{key: value} }
}

func onPort(port int32) podOption {
	return func(p *v1.Pod) {
		p.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: port, ContainerPort: port}}
	}
}

func antiAffinity(key, value string) podOption {
	return func(p *v1.Pod) {
		p.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{term(key, value)},
		}}
	}
}

func affinity(key, value string) podOption {
	return func(p *v1.Pod) {
		p.Spec.Affinity = &v1.Affinity{PodAffinity: &v1.PodAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{term(key, value)},
		}}
	}
}

func term(key, value string) v1.PodAffinityTerm {
	return v1.PodAffinityTerm{
		TopologyKey:   v1.LabelHostname,
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{key: value}},
	}
}

func spreadBy(key, app string) podOption {
	return func(p *v1.Pod) {
		p.Labels = map[string]string{"app": app}
		p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: key, WhenUnsatisfiable: v1.DoNotSchedule,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
		}}
	}
}

type nodeOption func(*v1.Node)

func node(name string, options ...nodeOption) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1.LabelHostname: name}}}
	n.Status.Allocatable = v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("4Gi"), v1.ResourcePods: resource.MustParse("10"),
	}
	for _, o := range options {
		o(n)
	}
	return n
}

func tainted(key string, effect v1.TaintEffect) nodeOption {
	return func(n *v1.Node) { n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: key, Effect: effect}) }
}

func cordoned(n *v1.Node) { n.Spec.Unschedulable = true }

func zone(z string) nodeOption {
	return func(n *v1.Node) { n.Labels[v1.LabelTopologyZone] = z }
}

func running(p *v1.Pod, node string) *v1.Pod {
	p.Spec.NodeName = node
	return p
}

func TestChoose(t *testing.T) {
	for _, test := range []struct {
		name    string
		nodes   []*v1.Node
		running []*v1.Pod
		pod     *v1.Pod
		want    string // a node, or the text of the error
	}{
		{"only one node", []*v1.Node{node("a")}, nil, pod("p"), "a"},
		{"no nodes", nil, nil, pod("p"), "no nodes available to schedule pods"},
		{
			"emptier node wins", []*v1.Node{node("a"), node("b")},
			[]*v1.Pod{running(pod("r", requests("1", "1Gi")), "a")}, pod("p", requests("500m", "1Gi")), "b",
		},
		{
			"every reason is counted",
			[]*v1.Node{node("a", cordoned), node("b"), node("c", tainted("k", v1.TaintEffectNoSchedule))}, nil,
			pod("p", requests("3", "8Gi")),
			"0/3 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable.",
		},
		{
			"node selector", []*v1.Node{node("a"), node("b", zone("z"))}, nil,
			pod("p", selects(v1.LabelTopologyZone, "z")), "b",
		},
		{
			"no node matches the selector", []*v1.Node{node("a")}, nil, pod("p", selects("disk", "ssd")),
			"0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.",
		},
		{
			"host port taken", []*v1.Node{node("a")}, []*v1.Pod{running(pod("r", onPort(80)), "a")}, pod("p", onPort(80)),
			"0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports.",
		},
		{
			"anti-affinity", []*v1.Node{node("a"), node("b")},
			[]*v1.Pod{running(pod("r", labeled("app", "web")), "a")}, pod("p", antiAffinity("app", "web")), "b",
		},
		{
			"anti-affinity of a running pod", []*v1.Node{node("a")},
			[]*v1.Pod{running(pod("r", antiAffinity("app", "web")), "a")}, pod("p", labeled("app", "web")),
			"0/1 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules.",
		},
		{
			"affinity", []*v1.Node{node("a"), node("b")},
			[]*v1.Pod{running(pod("r", labeled("app", "db")), "b")}, pod("p", affinity("app", "db")), "b",
		},
		{
			"affinity to itself: the first pod may go anywhere", []*v1.Node{node("a")}, nil,
			pod("p", affinity("app", "db"), labeled("app", "db")), "a",
		},
		{
			"affinity that nothing satisfies", []*v1.Node{node("a")}, nil, pod("p", affinity("app", "db")),
			"0/1 nodes are available: 1 node(s) didn't match pod affinity rules.",
		},
		{
			"spread over zones", []*v1.Node{node("a", zone("1")), node("b", zone("2"))},
			[]*v1.Pod{running(pod("r", labeled("app", "web")), "a")}, pod("p", spreadBy(v1.LabelTopologyZone, "web")), "b",
		},
		{
			"spread without the label", []*v1.Node{node("a")}, nil, pod("p", spreadBy(v1.LabelTopologyZone, "web")),
			"0/1 nodes are available: 1 node(s) didn't match pod topology spread constraints (missing required label).",
		},
		{
			"PreferNoSchedule is avoided", []*v1.Node{node("a", tainted("k", v1.TaintEffectPreferNoSchedule)), node("b")}, nil, pod("p"), "b",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := newProfile(t, nil)
			best, err := newAlgorithm(1).schedule(t.Context(), p, p.NewCycleState(), framework.NewPodInfo(test.pod), "", snapshotOf(test.nodes, test.running))
			got := ""
			if err != nil {
				got = err.Error()
			} else {
				got = best.Name
			}
			if got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestTiesAreBrokenAtRandom(t *testing.T) {
	snapshot := snapshotOf([]*v1.Node{node("a"), node("b"), node("c")}, nil)
	p, a := newProfile(t, nil), newAlgorithm(7)
	seen := map[string]bool{}
	for range 100 {
		best, err := a.schedule(t.Context(), p, p.NewCycleState(), framework.NewPodInfo(pod("p")), "", snapshot)
		if err != nil {
			t.Fatal(err)
		}
		seen[best.Name] = true
	}
	if len(seen) != 3 {
		t.Errorf("of three equal nodes only %v were chosen", seen)
	}
}

// Pods that are nominated for a node count there for pods of the same or a
// lower priority, and for no others.
func TestNominatedPodsCount(t *testing.T) {
	for _, test := range []struct {
		name     string
		priority int32
		want     string
	}{
		{"lower", 1, "0/1 nodes are available: 1 Insufficient cpu."}, {"same", 5, "0/1 nodes are available: 1 Insufficient cpu."}, {"higher", 9, "a"},
	} {
		t.Run(test.name, func(t *testing.T) {
			nominator := queue.NewNominator()
			nominator.AddNominatedPod(framework.NewPodInfo(pod("nominated", requests("2", "1Gi"), priority(5))), "a")
			p, snapshot := newProfile(t, nominator), snapshotOf([]*v1.Node{node("a")}, nil)
			best, err := newAlgorithm(1).schedule(t.Context(), p, p.NewCycleState(), framework.NewPodInfo(pod("p", requests("1", "1Gi"), priority(test.priority))), "", snapshot)
			got := ""
			if err != nil {
				got = err.Error()
			} else {
				got = best.Name
			}
			if got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			if n := snapshot.Node("a"); len(n.Pods) != 0 || n.Requested.CPU != 0 {
				t.Errorf("the nominated pod stayed on the node: %+v", n)
			}
		})
	}
}

func newProfile(t testing.TB, nominator *queue.Nominator) *profile.Profile {
	if nominator == nil {
		nominator = queue.NewNominator()
	}
	return newProfileWith(t, nominator, plugintest.Informers(t), false)
}

// failer is a testing.TB or a *rapid.T.
type failer interface {
	Context() context.Context
	Fatal(...any)
}

func newProfileWith(t failer, nominator *queue.Nominator, f informers.SharedInformerFactory, unshared bool) *profile.Profile {
	p, err := profile.New(t.Context(), profile.Options{
		Registry: all.Registry(), Default: all.Default(nil), Config: config.Profile{SchedulerName: DefaultName},
		Handle: &framework.Handle{Nominator: nominator, Informers: f}, Unshared: unshared,
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func newAlgorithm(seed uint64) *algorithm {
	return &algorithm{random: rand.New(rand.NewPCG(seed, seed))}
}

func snapshotOf(nodes []*v1.Node, pods []*v1.Pod) *framework.Snapshot {
	c := cache.New()
	for _, n := range nodes {
		c.SetNode(n)
	}
	for _, p := range pods {
		c.SetPod(p)
	}
	return c.UpdateSnapshot()
}
