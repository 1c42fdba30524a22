package scheduler

import (
	"math/rand/v2"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/all"
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
		want    string // a node, or the text of the refusal
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
			c := newCache(nil)
			for _, n := range test.nodes {
				c.setNode(n)
			}
			for _, p := range test.running {
				c.setPod(p)
			}
			profile := &profile{filters: all.Filters(), scores: all.Scores()}
			best, _, err := profile.choose(framework.NewPod(test.pod), &c.cluster, 0, rand.New(rand.NewPCG(1, 1)))
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
	c := newCache(nil)
	for _, name := range []string{"a", "b", "c"} {
		c.setNode(node(name))
	}
	profile := &profile{filters: all.Filters(), scores: all.Scores()}
	random := rand.New(rand.NewPCG(7, 7))
	seen := map[string]bool{}
	for range 100 {
		best, _, err := profile.choose(framework.NewPod(pod("p")), &c.cluster, 0, random)
		if err != nil {
			t.Fatal(err)
		}
		seen[best.Name] = true
	}
	if len(seen) != 3 {
		t.Errorf("of three equal nodes only %v were chosen", seen)
	}
}

func BenchmarkChooseOfThousandNodes(b *testing.B) {
	c := newCache(nil)
	for i := range 1000 {
		c.setNode(node("node-" + strings.Repeat("x", i%7) + string(rune('a'+i%26)) + resource.NewQuantity(int64(i), resource.DecimalSI).String()))
	}
	profile := &profile{filters: all.Filters(), scores: all.Scores()}
	random := rand.New(rand.NewPCG(1, 1))
	p := framework.NewPod(pod("p", requests("100m", "100Mi")))
	start := 0
	for b.Loop() {
		var err error
		if _, start, err = profile.choose(p, &c.cluster, start, random); err != nil {
			b.Fatal(err)
		}
	}
}
