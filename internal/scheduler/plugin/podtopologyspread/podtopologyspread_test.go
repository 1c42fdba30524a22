package podtopologyspread

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/plugintest"
)

// nodes are a and b in zone 1, c in zone 2 and d in none. c has a taint.
func nodes() []*v1.Node {
	var all []*v1.Node
	for _, name := range []string{"a", "b", "c", "d"} {
		n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1.LabelHostname: name}}}
		switch name {
		case "a", "b":
			n.Labels["zone"] = "1"
		case "c":
			n.Labels["zone"] = "2"
			n.Spec.Taints = []v1.Taint{{Key: "dedicated", Effect: v1.TaintEffectNoSchedule}}
		}
		all = append(all, n)
	}
	return all
}

// web returns pods with app=web and version=1 on nodes such as "a a b".
func web(on string, change func(*v1.Pod)) (pods []*v1.Pod) {
	for i, node := range strings.Fields(on) {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: node, UID: types.UID(rune('0' + i)), Labels: map[string]string{"app": "web", "version": "1"}}}
		p.Spec.NodeName = node
		change(p)
		pods = append(pods, p)
	}
	return pods
}

func asItIs(*v1.Pod) {}

const overZones = "maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}"

// TestFilter lists the nodes on which a pod with app=web and version=2 may be.
func TestFilter(t *testing.T) {
	for _, test := range []struct {
		name       string
		constraint string
		spec       string // of the pod besides
		on         string // nodes of the other pods
		others     func(*v1.Pod)
		pod        func(*v1.Pod)
		want       string
	}{
		{name: "no pods yet", constraint: overZones, want: "a b c"},
		{name: "the other zone", constraint: overZones, on: "a", want: "c"},
		{name: "both zones are alike", constraint: overZones, on: "a c", want: "a b c"},
		{name: "more skew", constraint: strings.Replace(overZones, "maxSkew: 1", "maxSkew: 2", 1), on: "a", want: "a b c"},
		{name: "each node is a domain", constraint: strings.Replace(overZones, "topologyKey: zone", "topologyKey: kubernetes.io/hostname", 1), on: "a c", want: "b d"},
		{name: "a preference filters nothing", constraint: strings.Replace(overZones, "DoNotSchedule", "ScheduleAnyway", 1), on: "a a", want: "a b c d"},
		{name: "pods that are not selected", constraint: strings.Replace(overZones, "app: web", "app: db", 1), on: "a a", want: "a b c"},
		{name: "the pod itself is not selected", constraint: overZones, on: "a", pod: func(p *v1.Pod) { p.Labels = nil }, want: "a b c"},
		{name: "pods that are being deleted", constraint: overZones, on: "a", others: func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{} }, want: "a b c"},
		{name: "pods of another namespace", constraint: overZones, on: "a", others: func(p *v1.Pod) { p.Namespace = "other" }, want: "a b c"},
		{name: "fewer domains than minDomains", constraint: overZones + ", minDomains: 3", on: "a c", want: ""},
		{name: "as many domains as minDomains", constraint: overZones + ", minDomains: 2", on: "a c", want: "a b c"},
		{name: "matchLabelKeys", constraint: overZones + ", matchLabelKeys: [version]", on: "a", want: "a b c"},
		{name: "nodes that the pod selects", constraint: overZones, spec: `nodeSelector: {zone: "1"}`, on: "a", want: "a b c"},
		{name: "nodes whatever it selects", constraint: overZones + ", nodeAffinityPolicy: Ignore", spec: `nodeSelector: {zone: "1"}`, on: "a", want: "c"},
		{name: "nodes without taints", constraint: overZones + ", nodeTaintsPolicy: Honor", on: "a", want: "a b c"},
		{name: "taints that the pod tolerates", constraint: overZones + ", nodeTaintsPolicy: Honor", spec: "tolerations: [{operator: Exists}]", on: "a", want: "c"},
		{name: "two constraints", constraint: overZones + "}, {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}", on: "a c", want: "b"},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "p", Labels: map[string]string{"app": "web", "version": "2"}}}
			pod.Spec = *plugintest.Yaml[v1.PodSpec](t, "topologySpreadConstraints: [{"+test.constraint+"}]\ncontainers: []\n"+test.spec)
			if test.pod != nil {
				test.pod(pod)
			}
			if test.others == nil {
				test.others = asItIs
			}
			p, h := plugintest.New(t, Factory(), nil)
			snapshot := plugintest.Snapshot(nodes(), web(test.on, test.others)...)
			var got []string
			for _, n := range snapshot.Nodes() {
				if s := plugintest.Filter(t, p, h, pod, snapshot, n.Name); s.IsSuccess() || s.IsSkip() {
					got = append(got, n.Name)
				}
			}
			if want := strings.Fields(test.want); !slices.Equal(got, want) {
				t.Errorf("nodes %v, want %v", got, want)
			}
		})
	}
}

// TestScore ranks the nodes for a constraint that is only preferred: the fewer
// pods are in the domain, the better. A node without the label is the worst.
func TestScore(t *testing.T) {
	for _, test := range []struct {
		name, key, on string
		want          string // best first; nodes that are alike are in brackets
	}{
		{"no pods yet", "zone", "", "[a b c] d"},
		{"the other zone", "zone", "a", "c [a b d]"},
		{"the emptier zone", "zone", "a c c", "[a b] c d"},
		{"each node is a domain", v1.LabelHostname, "a a b", "[c d] b a"},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "p", Labels: map[string]string{"app": "web"}}}
			pod.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{
				MaxSkew: 1, TopologyKey: test.key, WhenUnsatisfiable: v1.ScheduleAnyway, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			}}
			made, h := plugintest.New(t, Factory(), nil)
			p, snapshot := made.(*plugin), plugintest.Snapshot(nodes(), web(test.on, asItIs)...)
			state, info := framework.NewCycleState(h), framework.NewPodInfo(pod)
			if s := p.PreScore(t.Context(), state, info, snapshot, snapshot.Nodes()); !s.IsSuccess() {
				t.Fatal(s.Code())
			}
			var scores []int64
			for _, n := range snapshot.Nodes() {
				score, _ := p.Score(t.Context(), state, info, n)
				scores = append(scores, score)
			}
			p.NormalizeScore(t.Context(), state, info, scores)
			if got := ranking(snapshot.Nodes(), scores); got != test.want {
				t.Errorf("%s, want %s (%v)", got, test.want, scores)
			}
		})
	}
}

// Upstream's tests have these scores for nodes a and b in zone 1, x and y in zone 2.
func TestScoresMatchUpstream(t *testing.T) {
	const host, zone = ", topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway", ", topologyKey: zone, whenUnsatisfiable: ScheduleAnyway"
	const web1 = ", labelSelector: {matchLabels: {app: web}}"
	var nodes []*v1.Node
	for name, zone := range map[string]string{"a": "1", "b": "1", "x": "2", "y": "2"} {
		nodes = append(nodes, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1.LabelHostname: name, "zone": zone}}})
	}
	for _, test := range []struct{ name, constraints, on, candidates, want string }{
		{"no pods", "{maxSkew: 1" + host + web1 + "}", "", "a b x y", "100 100 100 100"},
		{"one candidate", "{maxSkew: 1" + host + web1 + "}", "a a b", "a", "100"},
		{"all are alike", "{maxSkew: 1" + host + web1 + "}", "a b", "a b", "100 100"},
		{"each node has its own number", "{maxSkew: 1" + host + web1 + "}", "a a b y y y", "a b x y", "20 60 100 0"},
		{"no selector", "{maxSkew: 1" + host + "}", "a a b y y y", "a b x y", "100 100 100 100"},
		{"maxSkew 2", "{maxSkew: 2" + host + web1 + "}", "a a b y y y", "a b x y", "33 66 100 16"},
		{"maxSkew 3", "{maxSkew: 3" + host + web1 + "}", "a a a a b b b x x y", "a b x y", "44 66 77 100"},
		{"a node that is no candidate", "{maxSkew: 1" + host + web1 + "}", "a a a a b b x y y y", "a b x", "33 83 100"},
		{"its pods count in the zone", "{maxSkew: 1" + zone + web1 + "}", "a a a a b b x y y y", "a b x", "75 75 100"},
		{"two constraints", "{maxSkew: 1" + zone + web1 + "}, {maxSkew: 1" + host + web1 + "}", "a a b x x y y y y", "a x", "100 63"},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "p", Labels: map[string]string{"app": "web"}}}
			pod.Spec = *plugintest.Yaml[v1.PodSpec](t, "topologySpreadConstraints: ["+test.constraints+"]\ncontainers: []")
			made, h := plugintest.New(t, Factory(), nil)
			p, snapshot := made.(*plugin), plugintest.Snapshot(nodes, web(test.on, asItIs)...)
			var candidates []*framework.NodeInfo
			for _, name := range strings.Fields(test.candidates) {
				candidates = append(candidates, snapshot.Node(name))
			}
			state, info := framework.NewCycleState(h), framework.NewPodInfo(pod)
			if s := p.PreScore(t.Context(), state, info, snapshot, candidates); !s.IsSuccess() {
				t.Fatal(s.Code())
			}
			scores := make([]int64, len(candidates))
			for i, n := range candidates {
				scores[i], _ = p.Score(t.Context(), state, info, n)
			}
			p.NormalizeScore(t.Context(), state, info, scores)
			if got := strings.Trim(fmt.Sprint(scores), "[]"); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

// ranking lists nodes by their scores, best first.
func ranking(nodes []*framework.NodeInfo, scores []int64) string {
	byScore := map[int64][]string{}
	for i, n := range nodes {
		byScore[scores[i]] = append(byScore[scores[i]], n.Name)
	}
	var out []string
	for score := framework.MaxNodeScore; score >= framework.MinNodeScore; score-- {
		names := strings.Join(byScore[score], " ")
		if len(byScore[score]) > 1 {
			names = "[" + names + "]"
		}
		if names != "" {
			out = append(out, names)
		}
	}
	return strings.Join(out, " ")
}
