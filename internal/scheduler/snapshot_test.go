package scheduler

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/coracle-io/coracle/internal/scheduler/cache"
	"github.com/coracle-io/coracle/internal/scheduler/config"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/all"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/plugintest"
	"github.com/coracle-io/coracle/internal/scheduler/profile"
	"github.com/coracle-io/coracle/internal/scheduler/queue"
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

// TestSnapshotIsRebuilt changes a cluster at random and compares what every
// plugin says of a pod with what it says in a cluster that was built at once,
// also in trials.
func TestSnapshotIsRebuilt(t *testing.T) {
	p := newProfile(t, nil)
	rapid.Check(t, func(t *rapid.T) {
		kept := cache.New()
		nodes, placed, namespaces := map[string]*v1.Node{}, map[types.UID]*v1.Pod{}, map[string]map[string]string{}
		name := func() string { return fmt.Sprint("node-", rapid.IntRange(0, 3).Draw(t, "node")) }
		for i := range rapid.IntRange(1, 25).Draw(t, "steps") {
			switch rapid.IntRange(0, 6).Draw(t, "step") {
			case 0, 1:
				n := zoned(name(), rapid.SampledFrom([]string{"z1", "z2", ""}).Draw(t, "zone"))
				nodes[n.Name] = n
				kept.SetNode(n)
			case 2:
				n := name()
				delete(nodes, n)
				kept.DeleteNode(n)
			case 3, 4:
				p := drawPod(t, fmt.Sprint("pod-", rapid.IntRange(0, 5).Draw(t, "pod")))
				p.Spec.NodeName, p.Generation = name(), int64(i+1) // a changed spec has a new generation
				if rapid.IntRange(0, 5).Draw(t, "deleted") == 0 {
					p.DeletionTimestamp = &metav1.Time{}
				}
				placed[p.UID] = p
				kept.SetPod(p)
			case 5:
				uid := types.UID(fmt.Sprint("pod-", rapid.IntRange(0, 5).Draw(t, "pod")))
				delete(placed, uid)
				kept.DeletePod(uid)
			case 6:
				ns := rapid.SampledFrom([]string{"default", "other"}).Draw(t, "namespace")
				namespaces[ns] = map[string]string{"team": rapid.SampledFrom([]string{"x", "y"}).Draw(t, "team")}
				kept.SetNamespace(ns, namespaces[ns])
			}
			fresh := func(without types.UID) *framework.Snapshot {
				c := cache.New()
				for _, n := range nodes {
					c.SetNode(n)
				}
				for _, p := range placed {
					if p.UID != without {
						c.SetPod(p)
					}
				}
				for ns, labels := range namespaces {
					c.SetNamespace(ns, labels)
				}
				return c.UpdateSnapshot()
			}
			asked := framework.NewPodInfo(drawPod(t, fmt.Sprint("asked-", i)))
			snapshot := kept.UpdateSnapshot()
			if diff := cmp.Diff(opinions(t, p, asked, fresh(""), nil, nil), opinions(t, p, asked, snapshot, nil, nil)); diff != "" {
				t.Fatalf("step %d (-rebuilt +kept):\n%s", i, diff)
			}
			for _, n := range snapshot.Nodes() {
				if len(n.Pods) == 0 {
					continue
				}
				gone := n.Pods[0]
				if diff := cmp.Diff(opinions(t, p, asked, fresh(gone.Pod.UID), nil, nil), opinions(t, p, asked, snapshot, gone, n)); diff != "" {
					t.Fatalf("step %d, %s is gone from %s (-rebuilt +trial):\n%s", i, gone.Pod.Name, n.Name, diff)
				}
				if diff := cmp.Diff(opinions(t, p, asked, fresh(""), nil, nil), opinions(t, p, asked, snapshot, nil, nil)); diff != "" {
					t.Fatalf("step %d, after the trial (-rebuilt +kept):\n%s", i, diff)
				}
				break
			}
		}
	})
}

// opinions returns the results of the plugins for a pod, by node. Unless gone
// is nil, filters are asked in a trial without gone on node. Scores are given
// for the cluster without trial.
func opinions(t *rapid.T, p *profile.Profile, pod *framework.PodInfo, snapshot *framework.Snapshot, gone *framework.PodInfo, node *framework.NodeInfo) map[string]string {
	said := map[string]string{}
	state := p.NewCycleState()
	if _, status := p.RunPreFilterPlugins(t.Context(), state, pod, snapshot); !status.IsSuccess() {
		t.Fatal(status.Message())
	}
	if gone != nil {
		trial := p.Trial(t.Context(), state, pod)
		defer trial.Revert()
		trial.RemovePod(gone, node)
	}
	for _, n := range snapshot.Nodes() {
		said[n.Name] = p.RunFilterPluginsWithNominatedPods(t.Context(), state, pod, n).Message()
	}
	scores, status := p.RunScorePlugins(t.Context(), state, pod, snapshot, snapshot.Nodes())
	if !status.IsSuccess() {
		t.Fatal(status.Message())
	}
	for i, n := range snapshot.Nodes() {
		said[n.Name] += fmt.Sprint(" ", scores[i])
	}
	return said
}

// BenchmarkDecide places pods of 50 kinds on clusters of several sizes.
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
		for _, size := range []int{1000, 5000, 10_000} {
			b.Run(fmt.Sprint(how.name, "/", size), func(b *testing.B) { benchmarkDecide(b, size, how.option) })
		}
	}
}

func benchmarkDecide(b *testing.B, size int, option func(color string) podOption) {
	c := cache.New()
	for i := range size {
		c.SetNode(zoned(fmt.Sprint("node-", i), fmt.Sprint("zone-", i%3)))
	}
	p := newProfile(b, nil)
	a := newAlgorithm(1)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		color := fmt.Sprint("c", i%50)
		info := framework.NewPodInfo(pod(fmt.Sprint("pod-", i), requests("1m", "1Mi"), labeled("color", color), option(color)))
		if i >= 3000 {
			c.DeletePod(types.UID(fmt.Sprint("pod-", i-3000)))
		}
		best, err := a.schedule(b.Context(), p, p.NewCycleState(), info, "", c.UpdateSnapshot())
		if err != nil {
			b.Fatal(err)
		}
		if err := c.Assume(info, best.Name); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDecideNowhere tries pods that fit on no node: all nodes are full of pods of
// the same priority. It includes the search for room, and why there is none.
func BenchmarkDecideNowhere(b *testing.B) {
	for _, size := range []int{1000, 5000, 10_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) { benchmarkDecideNowhere(b, size) })
	}
}

func benchmarkDecideNowhere(b *testing.B, size int) {
	c := cache.New()
	for i := range size {
		name := fmt.Sprint("node-", i)
		c.SetNode(zoned(name, fmt.Sprint("zone-", i%3)))
		c.SetPod(running(pod("full-"+name, requests("2", "1Gi")), name))
	}
	p, err := profile.New(b.Context(), profile.Options{
		Registry: all.Registry(), Default: all.Default(nil), Config: config.Profile{SchedulerName: DefaultName},
		Handle: &framework.Handle{Nominator: queue.NewNominator(), Informers: plugintest.Informers(b), Bound: c},
	})
	if err != nil {
		b.Fatal(err)
	}
	a := newAlgorithm(1)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		info, state, snapshot := framework.NewPodInfo(pod(fmt.Sprint("pod-", i), requests("1", "1Mi"))), p.NewCycleState(), c.UpdateSnapshot()
		var unfit *framework.FitError
		if _, err := a.schedule(b.Context(), p, state, info, "", snapshot); !errors.As(err, &unfit) {
			b.Fatal(err)
		}
		if _, status := p.RunPostFilterPlugins(b.Context(), state, info, snapshot, unfit.Nodes); !status.IsRejected() || unfit.Error() == "" {
			b.Fatal(status.Message())
		}
	}
}
