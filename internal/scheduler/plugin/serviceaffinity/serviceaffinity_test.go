package serviceaffinity

import (
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

func podOf(name string) *framework.PodInfo {
	p := &v1.Pod{}
	p.Namespace, p.Name, p.UID, p.Labels = "default", name, types.UID(name), map[string]string{"app": "web"}
	return framework.NewPodInfo(p)
}

// inCluster returns the plugin in a cluster with a service, and the state of a cycle.
func inCluster(t *testing.T, a Arguments) (*plugin, *framework.CycleState) {
	h := &framework.Handle{}
	made, err := Factory().New(t.Context(), &a, h)
	if err != nil {
		t.Fatal(err)
	}
	service := &v1.Service{}
	service.Namespace, service.Name, service.Spec.Selector = "default", "web", map[string]string{"app": "web"}
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	if err := indexer.Add(service); err != nil {
		t.Fatal(err)
	}
	made.(*plugin).services = corev1listers.NewServiceLister(indexer)
	return made.(*plugin), framework.NewCycleState(h)
}

// cluster has nodes in racks, each with a number of pods of the service.
func cluster(racks []string, pods []int) *framework.Snapshot {
	s := framework.NewSnapshot()
	for i, rack := range racks {
		node := &v1.Node{}
		node.Name = fmt.Sprint("node-", i)
		if rack != "" {
			node.Labels = map[string]string{"rack": rack}
		}
		s.SetNode(node)
		for k := range pods[i] {
			s.AddPod(podOf(fmt.Sprint(i, "-", k)), node.Name)
		}
	}
	return s
}

func TestAffinity(t *testing.T) {
	for _, test := range []struct {
		name     string
		pods     []int
		selector map[string]string
		want     []bool
	}{
		{name: "the first pod of a service may go anywhere", pods: []int{0, 0, 0}, want: []bool{true, true, true}},
		{name: "the others follow it", pods: []int{0, 1, 0}, want: []bool{false, true, true}},
		{name: "the pod's own selector is stronger", pods: []int{0, 1, 0}, selector: map[string]string{"rack": "a"}, want: []bool{true, false, false}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, state := inCluster(t, Arguments{AffinityLabels: []string{"rack"}})
			s, pod := cluster([]string{"a", "b", "b"}, test.pods), podOf("new")
			pod.Pod.Spec.NodeSelector = test.selector
			fits := func() (out []bool) {
				for _, n := range s.Nodes() {
					out = append(out, p.Filter(t.Context(), state, pod, n).IsSuccess())
				}
				return out
			}
			if _, status := p.PreFilter(t.Context(), state, pod, s); !status.IsSuccess() {
				t.Fatal(status.Message())
			}
			if got := fits(); !slices.Equal(got, test.want) {
				t.Errorf("%v, want %v", got, test.want)
			}
			trial := podOf("nominated")
			s.AddPod(trial, "node-0")
			p.AddPod(t.Context(), state, pod, trial, s.Node("node-0"))
			if !fits()[0] {
				t.Error("a pod on the first node of the cluster does not count in a trial")
			}
			s.RemovePod(trial, "node-0")
			p.RemovePod(t.Context(), state, pod, trial, s.Node("node-0"))
			if got := fits(); !slices.Equal(got, test.want) {
				t.Errorf("after a trial: %v, want %v", got, test.want)
			}
		})
	}
}

func TestAntiAffinity(t *testing.T) {
	p, state := inCluster(t, Arguments{AntiAffinityLabelsPreference: []string{"rack"}})
	s, pod := cluster([]string{"a", "a", "b", ""}, []int{2, 1, 1, 0}), podOf("new")
	if status := p.PreScore(t.Context(), state, pod, s, s.Nodes()); !status.IsSuccess() {
		t.Fatal(status.Message())
	}
	var got []int64
	for _, n := range s.Nodes() {
		score, _ := p.Score(t.Context(), state, pod, n)
		got = append(got, score)
	}
	if want := []int64{25, 25, 75, 0}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
