package defaultpreemption

import (
	"errors"
	"iter"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// The end of its last victim wakes a preemptor also if the end of an earlier one
// was seen before it was chosen.
func TestAVictimThatIsGoneWhenItIsChosen(t *testing.T) {
	w := newWorld(t, &cluster{})
	info := func(name string) *framework.PodInfo {
		p := &v1.Pod{}
		p.Name, p.UID, p.Spec.NodeName = name, types.UID(name), "n"
		return framework.NewPodInfo(p)
	}
	preemptor, first, last, bystander := info("preemptor"), info("first"), info("last"), info("bystander")
	w.plugin.handle.Nominator.AddNominatedPod(preemptor, "n")
	ended := func(pod *framework.PodInfo) func(*framework.PodInfo) bool {
		return w.plugin.FilterEvent(framework.ClusterEvent{Resource: framework.AssignedPod, Action: framework.Delete}, pod.Pod, nil)
	}
	ended(first)
	w.plugin.begin(preemptor.Pod.UID, &candidate{node: "n", victims: []*framework.PodInfo{first, last}})
	w.plugin.begin(bystander.Pod.UID, &candidate{node: "m", victims: []*framework.PodInfo{info("other")}})
	w.plugin.lost(preemptor.Pod.UID, first.Pod.UID)
	if helps := ended(last); helps != nil && !helps(preemptor) {
		t.Error("the preemptor sleeps on")
	}
}

// nobody waits for a permit.
type nobody struct{}

func (nobody) Get(types.UID) framework.WaitingPod  { return nil }
func (nobody) All() iter.Seq[framework.WaitingPod] { return func(func(framework.WaitingPod) bool) {} }

// A victim that cannot be marked because it changes is not deleted: the Job that
// owns it would count its end as a failure of its own.
func TestAVictimIsMarkedBeforeItIsDeleted(t *testing.T) {
	victim := &v1.Pod{}
	victim.Namespace, victim.Name, victim.UID = "default", "victim", "victim"
	client := fake.NewSimpleClientset(victim)
	client.PrependReactor("patch", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewConflict(a.GetResource().GroupResource(), "victim", errors.New("it changed"))
	})
	w := newWorld(t, &cluster{})
	w.plugin.handle.Client, w.plugin.handle.WaitingPods, w.plugin.evictions = client, nobody{}, make(chan struct{}, 1)
	if err := w.plugin.evict(t.Context(), &v1.Pod{}, victim, "n"); !apierrors.IsConflict(err) {
		t.Errorf("error %v, want a conflict", err)
	}
	for _, a := range client.Actions() {
		if a.GetVerb() == "delete" {
			t.Error("the victim was deleted")
		}
	}
}
