package scheduler

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/all"
)

const zoneKey = v1.LabelTopologyZone

func zoned(name, in string) *v1.Node {
	n := node(name)
	n.Labels = map[string]string{v1.LabelHostname: name}
	if in != "" {
		n.Labels[zoneKey] = in
	}
	return n
}

// drawPod makes a pod with some of the terms that look at other pods.
func drawPod(t *rapid.T, name string) *v1.Pod {
	p := pod(name, labeled("app", rapid.SampledFrom([]string{"a", "b"}).Draw(t, "label")))
	p.Namespace = rapid.SampledFrom([]string{"default", "other"}).Draw(t, "namespace")
	aTerm := func() v1.PodAffinityTerm {
		made := v1.PodAffinityTerm{
			TopologyKey:   rapid.SampledFrom([]string{zoneKey, v1.LabelHostname}).Draw(t, "key"),
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": rapid.SampledFrom([]string{"a", "b"}).Draw(t, "selects")}},
		}
		switch rapid.IntRange(0, 3).Draw(t, "namespaces") {
		case 0:
			made.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "x"}}
		case 1:
			made.Namespaces = []string{"other"}
		case 2:
			made.LabelSelector = nil
		}
		return made
	}
	terms := func(what string) (made []v1.PodAffinityTerm) {
		for range rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, what) {
			made = append(made, aTerm())
		}
		return made
	}
	weighted := func(what string) (made []v1.WeightedPodAffinityTerm) {
		for i, one := range terms(what) {
			made = append(made, v1.WeightedPodAffinityTerm{Weight: int32(i + 1), PodAffinityTerm: one})
		}
		return made
	}
	p.Spec.Affinity = &v1.Affinity{
		PodAffinity: &v1.PodAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: terms("required"), PreferredDuringSchedulingIgnoredDuringExecution: weighted("preferred"),
		},
		PodAntiAffinity: &v1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: terms("anti"), PreferredDuringSchedulingIgnoredDuringExecution: weighted("preferred anti"),
		},
	}
	for range rapid.IntRange(0, 2).Draw(t, "constraints") {
		one := aTerm()
		p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, v1.TopologySpreadConstraint{
			MaxSkew: 1, TopologyKey: one.TopologyKey, LabelSelector: one.LabelSelector,
			WhenUnsatisfiable: rapid.SampledFrom([]v1.UnsatisfiableConstraintAction{v1.DoNotSchedule, v1.ScheduleAnyway}).Draw(t, "action"),
		})
	}
	if rapid.IntRange(0, 4).Draw(t, "selective") == 0 {
		p.Spec.NodeSelector = map[string]string{zoneKey: "z1"}
	}
	return p
}

// TestCensusIsRecount changes a cluster at random and compares what every
// plugin says of a pod with what it says in a cluster that was built at once.
func TestCensusIsRecount(t *testing.T) {
	profile := &profile{filters: all.Filters(), scores: all.Scores()}
	rapid.Check(t, func(t *rapid.T) {
		kept := newCache(nil)
		nodes, placed, namespaces := map[string]*v1.Node{}, map[types.UID]*v1.Pod{}, map[string]map[string]string{}
		name := func() string { return fmt.Sprint("node-", rapid.IntRange(0, 3).Draw(t, "node")) }
		for i := range rapid.IntRange(1, 25).Draw(t, "steps") {
			switch rapid.IntRange(0, 6).Draw(t, "step") {
			case 0, 1:
				n := zoned(name(), rapid.SampledFrom([]string{"z1", "z2", ""}).Draw(t, "zone"))
				nodes[n.Name] = n
				kept.setNode(n)
			case 2:
				n := name()
				delete(nodes, n)
				kept.deleteNode(n)
			case 3, 4:
				p := drawPod(t, fmt.Sprint("pod-", rapid.IntRange(0, 5).Draw(t, "pod")))
				p.Spec.NodeName = name()
				if rapid.IntRange(0, 5).Draw(t, "deleted") == 0 {
					p.DeletionTimestamp = &metav1.Time{}
				}
				placed[p.UID] = p
				kept.setPod(p)
			case 5:
				uid := types.UID(fmt.Sprint("pod-", rapid.IntRange(0, 5).Draw(t, "pod")))
				delete(placed, uid)
				kept.deletePod(uid)
			case 6:
				ns := rapid.SampledFrom([]string{"default", "other"}).Draw(t, "namespace")
				namespaces[ns] = map[string]string{"team": rapid.SampledFrom([]string{"x", "y"}).Draw(t, "team")}
				kept.setNamespace(ns, namespaces[ns])
			}
			fresh := newCache(nil)
			for _, n := range nodes {
				fresh.setNode(n)
			}
			for _, p := range placed {
				fresh.setPod(p)
			}
			for ns, labels := range namespaces {
				fresh.setNamespace(ns, labels)
			}
			asked := framework.NewPod(drawPod(t, fmt.Sprint("asked-", i)))
			if diff := cmp.Diff(opinions(profile, asked, &fresh.cluster), opinions(profile, asked, &kept.cluster)); diff != "" {
				t.Fatalf("step %d (-recounted +kept):\n%s", i, diff)
			}
			for n, real := range kept.cluster.ByName {
				trial, again := real.Clone(), fresh.cluster.ByName[n].Clone()
				for uid := range real.Pods {
					trial.RemovePod(uid)
					again.RemovePod(uid)
					fresh.remove(uid)
					break
				}
				view := withNode(&kept.cluster, real, trial)
				if diff := cmp.Diff(opinions(profile, asked, &fresh.cluster), opinions(profile, asked, view)); diff != "" {
					t.Fatalf("step %d, a pod of %s is gone (-recounted +trial):\n%s", i, n, diff)
				}
				break
			}
		}
	})
}

// opinions is what the plugins say of a pod, by node.
func opinions(p *profile, pod *framework.Pod, cluster *framework.Cluster) map[string]string {
	said := map[string]string{}
	for _, f := range p.filters {
		check := f.Filter(pod, cluster)
		for name, n := range cluster.ByName {
			if check != nil && check(n) != nil {
				said[name] += " " + f.Name()
			}
		}
	}
	for i, rating := range p.rate(pod, cluster, cluster.Nodes) {
		said[cluster.Nodes[i].Name] += fmt.Sprint(" ", rating)
	}
	return said
}

// BenchmarkDecide places pods that look at other pods, of 50 kinds, on 1,000
// nodes.
func BenchmarkDecide(b *testing.B) {
	for _, how := range []struct {
		name   string
		option func(color string) podOption
	}{
		{"plain", func(string) podOption { return func(*v1.Pod) {} }},
		{"affinity", func(color string) podOption {
			return func(p *v1.Pod) {
				affinity("color", color)(p)
				p.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].TopologyKey = zoneKey
			}
		}},
		{"anti-affinity", func(color string) podOption { return antiAffinity("color", color) }},
		{"spread", func(color string) podOption {
			return func(p *v1.Pod) {
				p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{
					MaxSkew: 1, TopologyKey: zoneKey, WhenUnsatisfiable: v1.DoNotSchedule,
					LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"color": color}},
				}}
			}
		}},
	} {
		b.Run(how.name, func(b *testing.B) {
			c := newCache(nil)
			for i := range 1000 {
				c.setNode(zoned(fmt.Sprint("node-", i), fmt.Sprint("zone-", i%3)))
			}
			profile := &profile{filters: all.Filters(), scores: all.Scores()}
			random := rand.New(rand.NewPCG(1, 1))
			start := 0
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				color := fmt.Sprint("c", i%50)
				p := framework.NewPod(pod(fmt.Sprint("pod-", i%3000), requests("1m", "1Mi"), labeled("color", color), how.option(color)))
				best, next, err := profile.choose(p, &c.cluster, start, random)
				if err != nil {
					b.Fatal(err)
				}
				start = next
				c.place(p, best.Name, true)
			}
		})
	}
}
