package scheduler

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/coracle-io/coracle/internal/scheduler/cache"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/plugintest"
	"github.com/coracle-io/coracle/internal/scheduler/profile"
	"github.com/coracle-io/coracle/internal/scheduler/queue"
)

// decider decides in a cluster of its own.
type decider struct {
	*profile.Profile
	algorithm *algorithm
	cache     *cache.Cache
}

func (d *decider) decide(t *rapid.T, pod *framework.PodInfo) string {
	best, err := d.algorithm.schedule(t.Context(), d.Profile, d.NewCycleState(), pod, "", d.cache.UpdateSnapshot())
	if err != nil {
		return err.Error()
	}
	if err := d.cache.Assume(pod, best.Name); err != nil {
		t.Fatal(err)
	}
	return best.Name
}

// TestSharingDecidesTheSame runs the same random events through a scheduler
// that shares results between pods and through one that does not. All
// decisions, messages and tie breaks are the same.
func TestSharingDecidesTheSame(t *testing.T) {
	nominator, f := queue.NewNominator(), plugintest.Informers(t)
	profiles := []*profile.Profile{newProfileWith(t, nominator, f, false), newProfileWith(t, nominator, f, true)}
	rapid.Check(t, func(t *rapid.T) {
		defer nominator.DeleteNominatedPod("nominated")
		var all []*decider
		for _, p := range profiles {
			a := newAlgorithm(1)
			a.percentage = 30
			all = append(all, &decider{p, a, cache.New()})
		}
		both := func(do func(*cache.Cache)) {
			for _, d := range all {
				do(d.cache)
			}
		}
		templates := []*v1.Pod{drawAnyPod(t, "template-0"), drawAnyPod(t, "template-1"), pod("template-2", requests("100m", "1Mi"))}
		var nodes []*v1.Node
		for i := range rapid.SampledFrom([]int{3, 3, 120}).Draw(t, "nodes") {
			n := drawNode(t, fmt.Sprint("node-", i))
			both(func(c *cache.Cache) { c.SetNode(n) })
			nodes = append(nodes, n)
		}
		_, objects := drawStorage(t, nodes)
		plugintest.Set(t, f, objects...)
		defer func() { plugintest.Delete(t, f, objects...) }()
		for i := range rapid.IntRange(1, 30).Draw(t, "steps") {
			node := fmt.Sprint("node-", rapid.IntRange(0, 3).Draw(t, "node"))
			earlier := types.UID(fmt.Sprint("pod-", rapid.IntRange(0, i).Draw(t, "earlier")))
			switch rapid.IntRange(0, 10).Draw(t, "step") {
			case 0:
				n := drawNode(t, node)
				both(func(c *cache.Cache) { c.SetNode(n) })
			case 1:
				both(func(c *cache.Cache) { c.DeleteNode(node) })
			case 2:
				both(func(c *cache.Cache) { c.DeletePod(earlier) })
			case 3:
				other := drawAnyPod(t, fmt.Sprint("pod-", i))
				other.Spec.NodeName = node
				both(func(c *cache.Cache) { c.SetPod(other) })
			case 4:
				nominator.AddNominatedPod(framework.NewPodInfo(drawAnyPod(t, "nominated")), node)
			case 5:
				nominator.DeleteNominatedPod("nominated")
			case 6: // volumes, claims and limits change, and no node does
				plugintest.Delete(t, f, objects...)
				_, objects = drawStorage(t, nodes)
				plugintest.Set(t, f, objects...)
			default:
				twin := rapid.SampledFrom(templates).Draw(t, "template").DeepCopy()
				twin.Name, twin.UID = fmt.Sprint("pod-", i), types.UID(fmt.Sprint("pod-", i))
				info := framework.NewPodInfo(twin)
				if diff := cmp.Diff(all[1].decide(t, info), all[0].decide(t, info)); diff != "" {
					t.Fatalf("step %d (-unshared +shared):\n%s", i, diff)
				}
			}
		}
	})
}
