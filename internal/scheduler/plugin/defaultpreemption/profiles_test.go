package defaultpreemption

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/scheduler/queue"
)

// The end of a victim does not wake a preemptor of any profile that waits for
// another victim, however often the profiles are asked about the event.
func TestFilterEventOfTwoProfiles(t *testing.T) {
	pod := func(name string) *framework.PodInfo {
		return framework.NewPodInfo(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}})
	}
	nominator, shared := queue.NewNominator(), map[string]any{}
	profiles := make([]*plugin, 2)
	for i := range profiles {
		made, err := Factory().New(t.Context(), Factory().DefaultArguments(), &framework.Handle{Nominator: nominator, Shared: shared})
		if err != nil {
			t.Fatal(err)
		}
		profiles[i] = made.(*plugin)
	}
	nominator.AddNominatedPod(pod("p"), "a")
	nominator.AddNominatedPod(pod("q"), "b")
	profiles[0].begin("p", &candidate{node: "a", victims: []*framework.PodInfo{pod("v1"), pod("v2")}})
	profiles[1].begin("q", &candidate{node: "b", victims: []*framework.PodInfo{pod("w")}})
	gone := framework.ClusterEvent{Resource: framework.AssignedPod, Action: framework.Delete}
	for i, profile := range profiles {
		helps := profile.FilterEvent(gone, pod("v1").Pod, nil)
		if helps == nil {
			t.Fatalf("profile %d: the event may help every pod", i)
		}
		for name, want := range map[string]bool{"p": false, "q": false, "other": true} {
			if got := helps(pod(name)); got != want {
				t.Errorf("profile %d: helps %s: %v, want %v", i, name, got, want)
			}
		}
	}
	for i, profile := range profiles {
		if profile.FilterEvent(gone, pod("nobody").Pod, nil) != nil {
			t.Errorf("profile %d: the end of a pod that is no victim does not help all", i)
		}
	}
}
