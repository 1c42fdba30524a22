package explain

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/coracle-io/coracle/internal/scheduler/config"
	"github.com/coracle-io/coracle/internal/supervise"
)

// node has 4 cpu, 8Gi and room for 10 pods.
func node(name string, change ...func(*v1.Node)) *v1.Node {
	n := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1.LabelHostname: name}},
		Status:     v1.NodeStatus{Allocatable: list("4", "8Gi")},
	}
	n.Status.Allocatable[v1.ResourcePods] = resource.MustParse("10")
	for _, c := range change {
		c(n)
	}
	return n
}

func list(cpu, memory string) v1.ResourceList {
	return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
}

func labelNode(key, value string) func(*v1.Node) {
	return func(n *v1.Node) { n.Labels[key] = value }
}

func taint(text string, effect v1.TaintEffect) func(*v1.Node) {
	key, value, _ := strings.Cut(text, "=")
	return func(n *v1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: key, Value: value, Effect: effect})
	}
}

// pod requests 1 cpu and 1Gi.
func pod(name string, change ...func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), Labels: map[string]string{"app": name}},
		Spec: v1.PodSpec{SchedulerName: v1.DefaultSchedulerName, Containers: []v1.Container{
			{Name: "a", Image: "a", Resources: v1.ResourceRequirements{Requests: list("1", "1Gi")}},
		}},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func on(node string) func(*v1.Pod)             { return func(p *v1.Pod) { p.Spec.NodeName = node } }
func app(value string) func(*v1.Pod)           { return func(p *v1.Pod) { p.Labels["app"] = value } }
func priority(value int32) func(*v1.Pod)       { return func(p *v1.Pod) { p.Spec.Priority = ptr.To(value) } }
func spec(set func(*v1.PodSpec)) func(*v1.Pod) { return func(p *v1.Pod) { set(&p.Spec) } }
func requests(cpu, memory string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.Containers[0].Resources.Requests = list(cpu, memory) }
}

func selecting(value string) []v1.PodAffinityTerm {
	return []v1.PodAffinityTerm{{TopologyKey: v1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": value}}}}
}

func required(terms ...v1.NodeSelectorTerm) func(*v1.Pod) {
	return spec(func(s *v1.PodSpec) {
		s.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: terms}}}
	})
}

func expression(key string, operator v1.NodeSelectorOperator, values ...string) v1.NodeSelectorTerm {
	return v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{{Key: key, Operator: operator, Values: values}}}
}

// explained decides about the pod in a cluster of the objects.
func explained(t *testing.T, o Options, pod *v1.Pod, objects ...runtime.Object) *Decision {
	t.Helper()
	var d *Decision
	err := supervise.Run(t.Context(), func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		if o.Kubernetes == nil {
			o.Kubernetes = fake.NewSimpleClientset(objects...)
		}
		var err error
		if o.Cluster, err = Load(ctx, o.Kubernetes); err != nil {
			return err
		}
		e, err := New(ctx, o)
		if err != nil {
			return err
		}
		d, err = e.Explain(ctx, pod)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func text(d *Decision) string {
	var b strings.Builder
	fmt.Fprintln(&b, d.Answer())
	d.WriteText(&b)
	return b.String()
}

// obstacles lists the obstacles on each node, with their remedies.
func obstacles(d *Decision) (out []string) {
	add := func(where string, rejections []Rejection) {
		for _, r := range rejections {
			for _, o := range r.Obstacles {
				out = append(out, strings.Join(append([]string{where + r.Plugin + ": " + o.Text}, o.Remedies...), " | "))
			}
		}
	}
	add("", d.Rejections)
	for _, n := range d.Nodes {
		add(n.Name+" ", n.Rejections)
	}
	return out
}

func TestObstacles(t *testing.T) {
	for _, c := range []struct {
		name    string
		pod     *v1.Pod
		cluster []runtime.Object
		want    []string
	}{
		{"resources that others have", pod("p", requests("3", "1Gi")), []runtime.Object{node("a"), pod("x", on("a"), requests("2500m", "1Gi"))}, []string{
			"a NodeResourcesFit: cpu: 3 requested, 1500m of 4 free | free 1500m cpu on node a | request at most 1500m cpu",
		}},
		{"more than a node has", pod("p", requests("5", "16Gi")), []runtime.Object{node("a")}, []string{
			"a NodeResourcesFit: cpu: 5 requested, 4 of 4 free: too much even for the empty node | request at most 4 cpu",
			"a NodeResourcesFit: memory: 16Gi requested, 8Gi of 8Gi free: too much even for the empty node | request at most 8Gi memory",
		}},
		{"a resource that no node has", pod("p", spec(func(s *v1.PodSpec) {
			s.Containers[0].Resources.Requests["example.com/gpu"] = resource.MustParse("2")
		})), []runtime.Object{node("a")}, []string{"a NodeResourcesFit: example.com/gpu: 2 requested, the node has none"}},
		{"places for pods", pod("p"), []runtime.Object{node("a", func(n *v1.Node) { n.Status.Allocatable[v1.ResourcePods] = resource.MustParse("1") }), pod("x", on("a"))}, []string{
			"a NodeResourcesFit: pods: the node has as many as it allows (1) | delete or move a pod of node a",
		}},
		{"taints", pod("p"), []runtime.Object{node("a", taint("dedicated=gpu", v1.TaintEffectNoSchedule), taint(v1.TaintNodeNotReady, v1.TaintEffectNoExecute))}, []string{
			"a TaintToleration: taint dedicated=gpu:NoSchedule is not tolerated | kubectl taint node a dedicated=gpu:NoSchedule- | add the toleration {key: dedicated, operator: Equal, value: gpu, effect: NoSchedule}",
			"a TaintToleration: taint node.kubernetes.io/not-ready:NoExecute is not tolerated | make the node ready (kubectl describe node a)",
		}},
		{"a cordoned node", pod("p"), []runtime.Object{node("a", func(n *v1.Node) { n.Spec.Unschedulable = true })}, []string{
			"a NodeUnschedulable: the node is cordoned (spec.unschedulable) | kubectl uncordon a",
		}},
		{"every filter is asked", pod("p", requests("9", "1Gi")), []runtime.Object{node("a", taint("x", v1.TaintEffectNoSchedule))}, []string{
			"a TaintToleration: taint x:NoSchedule is not tolerated | kubectl taint node a x:NoSchedule- | add the toleration {key: x, operator: Exists, effect: NoSchedule}",
			"a NodeResourcesFit: cpu: 9 requested, 4 of 4 free: too much even for the empty node | request at most 4 cpu",
		}},
		{"scheduling gates", pod("p", spec(func(s *v1.PodSpec) { s.SchedulingGates = []v1.PodSchedulingGate{{Name: "example.com/wait"}} })), []runtime.Object{node("a")}, []string{
			"SchedulingGates: scheduling gate example.com/wait is set | let the controller that owns the gate example.com/wait remove it from spec.schedulingGates",
		}},
		{"another scheduler", pod("p", spec(func(s *v1.PodSpec) { s.SchedulerName = "mine" })), []runtime.Object{node("a")}, []string{
			"schedulerName: spec.schedulerName is mine, and the scheduler of this cluster schedules pods with schedulerName default-scheduler | recreate the pod with schedulerName default-scheduler | run a scheduler named mine",
		}},
		{"host ports", pod("p", port(80)), []runtime.Object{node("a"), pod("x", on("a"), port(80))}, []string{
			"a NodePorts: host port 80/TCP belongs to pod default/x | choose a hostPort other than 80, or none | move pod default/x to another node",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := explained(t, Options{}, c.pod, c.cluster...)
			if diff := cmp.Diff(c.want, obstacles(d)); diff != "" {
				t.Errorf("obstacles (-want +got):\n%s", diff)
			}
			if d.Node != "" {
				t.Errorf("the pod would go to %s", d.Node)
			}
		})
	}
}

func port(number int32) func(*v1.Pod) {
	return spec(func(s *v1.PodSpec) {
		s.Containers[0].Ports = []v1.ContainerPort{{HostPort: number, ContainerPort: number, Protocol: v1.ProtocolTCP}}
	})
}

func TestObstaclesOfLabels(t *testing.T) {
	zones := []runtime.Object{node("a", labelNode("zone", "x")), node("b", labelNode("zone", "y"))}
	spread := spec(func(s *v1.PodSpec) {
		s.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: v1.DoNotSchedule,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "p"}},
		}}
	})
	away := spec(func(s *v1.PodSpec) {
		s.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: selecting("db")}}
	})
	for _, c := range []struct {
		name    string
		pod     *v1.Pod
		cluster []runtime.Object
		want    []string
	}{
		{"nodeSelector", pod("p", spec(func(s *v1.PodSpec) { s.NodeSelector = map[string]string{"zone": "y", "disk": "ssd"} })), zones[:1], []string{
			"a NodeAffinity: nodeSelector: label disk is missing, want ssd | kubectl label node a disk=ssd",
			"a NodeAffinity: nodeSelector: label zone is x, want y | kubectl label node a zone=y --overwrite",
		}},
		{"node affinity", pod("p", required(expression("zone", v1.NodeSelectorOpNotIn, "x"))), zones[:1], []string{
			"a NodeAffinity: node affinity: label zone is x, want none of x | kubectl label node a zone-",
		}},
		{"alternatives of node affinity", pod("p", required(expression("zone", v1.NodeSelectorOpIn, "y", "z"), expression("gpu", v1.NodeSelectorOpExists))), zones[:1], []string{
			"a NodeAffinity: node affinity: label zone is x, want one of y, z; or label gpu is missing, want any value | kubectl label node a zone=y --overwrite | kubectl label node a gpu=",
		}},
		{"values that no label can have", pod("p", required(expression("zone", v1.NodeSelectorOpIn, "$(id)"))), zones[:1], []string{
			"a NodeAffinity: node affinity: label zone is x, want $(id)",
		}},
		{"one value that a label can have", pod("p", required(expression("zone", v1.NodeSelectorOpIn, "$(id)", "y"))), zones[:1], []string{
			"a NodeAffinity: node affinity: label zone is x, want one of $(id), y | kubectl label node a zone=y --overwrite",
		}},
		{"spread", pod("p", spread), append([]runtime.Object{pod("x", on("a"), app("p")), pod("big", on("b"), requests("4", "1Gi"))}, zones...), []string{
			"a PodTopologySpread: zone=x has 1 matching pods and the least is 0: one more makes a skew of 2, maxSkew is 1 | make room where the fewest pods are: zone=y | set maxSkew of zone to 2 | set whenUnsatisfiable of zone to ScheduleAnyway",
			"b NodeResourcesFit: cpu: 1 requested, 0 of 4 free | free 1 cpu on node b",
		}},
		{"spread without label", pod("p", spread), []runtime.Object{node("c")}, []string{
			"c PodTopologySpread: the node has no label zone, over which the pod is to be spread | kubectl label node c zone=VALUE",
		}},
		{"pod affinity", pod("p", spec(func(s *v1.PodSpec) {
			s.Affinity = &v1.Affinity{PodAffinity: &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: selecting("db")}}
		})), zones[:1], []string{
			"a InterPodAffinity: pod affinity: no pod of app=db in kubernetes.io/hostname=a | run a pod of app=db in kubernetes.io/hostname=a",
		}},
		{"pod anti-affinity", pod("p", away), append([]runtime.Object{pod("db-0", on("a"), app("db"))}, zones[:1]...), []string{
			"a InterPodAffinity: pod anti-affinity: the pod keeps away from default/db-0 (app=db) in kubernetes.io/hostname=a | move pod default/db-0 out of kubernetes.io/hostname=a",
		}},
		{"anti-affinity of another pod", pod("p", app("db")), append([]runtime.Object{pod("shy", on("a"), away)}, zones[:1]...), []string{
			"a InterPodAffinity: anti-affinity of another pod: this pod is kept away by default/shy (app=db) in kubernetes.io/hostname=a | move pod default/shy out of kubernetes.io/hostname=a",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, obstacles(explained(t, Options{}, c.pod, c.cluster...))); diff != "" {
				t.Errorf("obstacles (-want +got):\n%s", diff)
			}
		})
	}
}

func TestChoice(t *testing.T) {
	nodes := []runtime.Object{node("a"), node("b", taint("slow", v1.TaintEffectPreferNoSchedule)), node("c", func(n *v1.Node) { n.Spec.Unschedulable = true })}
	d := explained(t, Options{}, pod("p"), nodes...)
	if d.Node != "a" || d.Tied != nil || d.Nodes[0].Name != "a" || d.Nodes[1].Name != "b" || d.Nodes[2].Feasible {
		t.Errorf("decision %+v", d)
	}
	var sum int64
	for _, s := range d.Nodes[1].Scores {
		if sum += s.Weighted; s.Plugin == "TaintToleration" && (s.Score != 0 || s.Weight != 3) {
			t.Errorf("score of TaintToleration: %+v, want 0 with weight 3", s)
		}
	}
	if sum != d.Nodes[1].Score || sum+300 != d.Nodes[0].Score {
		t.Errorf("scores %d and %d, the plugins' sum is %d", d.Nodes[0].Score, d.Nodes[1].Score, sum)
	}
	if d := explained(t, Options{}, pod("p"), node("a"), node("b")); fmt.Sprint(d.Tied) != "[a b]" || d.Node != "a" {
		t.Errorf("tie: node %s, tied %v", d.Node, d.Tied)
	}
	// a pod that is bound does not stand in its own way
	if d := explained(t, Options{}, pod("p", on("a"), requests("4", "8Gi")), node("a"), pod("p", on("a"), requests("4", "8Gi"))); d.Node != "a" {
		t.Errorf("a bound pod: node %q, obstacles %v", d.Node, obstacles(d))
	}
	nominated := pod("p", func(p *v1.Pod) { p.Status.NominatedNodeName = "b" })
	if d := explained(t, Options{}, nominated, nodes...); d.Node != "b" || !d.Nominated {
		t.Errorf("a nominated pod: node %q", d.Node)
	}
}

func TestPreemption(t *testing.T) {
	full := []runtime.Object{node("a"), pod("low", on("a"), requests("3", "1Gi"), priority(1)), pod("high", on("a"), requests("1", "1Gi"), priority(100))}
	d := explained(t, Options{}, pod("p", requests("2", "1Gi"), priority(10)), full...)
	want := &Preemption{Node: "a", Victims: []Victim{{"default", "low", 1}}}
	if diff := cmp.Diff(want, d.Preemption); diff != "" || d.Node != "" {
		t.Errorf("node %q, preemption (-want +got):\n%s", d.Node, diff)
	}
	d = explained(t, Options{}, pod("p", requests("2", "1Gi")), full...)
	if d.Preemption != nil || !strings.Contains(d.PreemptionMessage, "No preemption victims found") {
		t.Errorf("a pod of no priority: %+v, %q", d.Preemption, d.PreemptionMessage)
	}
	// room that is being made for a pod counts as taken
	waiting := pod("waiting", requests("4", "1Gi"), priority(50), func(p *v1.Pod) { p.Status.NominatedNodeName = "a" })
	d = explained(t, Options{}, pod("p"), node("a"), waiting)
	if d.Node != "" || len(d.Nodes[0].Rejections) != 1 || !d.Nodes[0].Rejections[0].Nominated {
		t.Errorf("beside a nominated pod: %+v", d)
	}
}

func TestConfiguration(t *testing.T) {
	two := config.Configuration{Profiles: []config.Profile{{SchedulerName: "two", Plugins: config.Plugins{MultiPoint: config.PluginSet{Disabled: []string{"TaintToleration"}}}}}}
	p := pod("p", spec(func(s *v1.PodSpec) { s.SchedulerName = "two" }))
	if d := explained(t, Options{Configuration: two}, p, node("a", taint("x", v1.TaintEffectNoSchedule))); d.Node != "a" {
		t.Errorf("without TaintToleration: node %q, %v", d.Node, obstacles(d))
	}
}

func TestMissingRights(t *testing.T) {
	refuse := func(resource string) *fake.Clientset {
		c := fake.NewSimpleClientset(node("a"))
		c.PrependReactor("list", resource, func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(v1.Resource(resource), "", fmt.Errorf("no"))
		})
		return c
	}
	if _, err := Load(t.Context(), refuse("nodes")); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "nodes is forbidden") {
		t.Errorf("nodes: %v", err)
	}
	if c, err := Load(t.Context(), refuse("namespaces")); err != nil || len(c.Refused) != 1 {
		t.Errorf("namespaces: %v, %v", c, err)
	}
	err := supervise.Run(t.Context(), func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		kube := refuse("services")
		e, err := New(ctx, Options{Kubernetes: kube, Cluster: &Cluster{Nodes: []*v1.Node{node("a")}}})
		if err == nil && (len(e.Refused) != 1 || !strings.Contains(e.Refused[0], "services is forbidden")) {
			t.Errorf("refused: %q", e.Refused)
		}
		if err != nil {
			return err
		}
		d, err := e.Explain(ctx, pod("p"))
		if err == nil && d.Node != "a" {
			t.Errorf("node %q", d.Node)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
