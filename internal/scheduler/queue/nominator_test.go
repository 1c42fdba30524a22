package queue

import (
	"testing"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// A newer version of a nominated pod takes the place of the older one. One that
// is not nominated does not become so.
func TestNominatorUpdate(t *testing.T) {
	n := NewNominator()
	n.AddNominatedPod(framework.NewPodInfo(pod("p", 1)), "a")
	changed := pod("p", 1)
	changed.Labels = map[string]string{"app": "web"}
	n.Update(framework.NewPodInfo(changed))
	if got := n.NominatedPodsForNode("a"); len(got) != 1 || got[0].Pod.Labels["app"] != "web" || n.NominatedNode("p") != "a" {
		t.Errorf("nominated %v on %q", got, n.NominatedNode("p"))
	}
	n.DeleteNominatedPod("p")
	n.Update(framework.NewPodInfo(changed))
	if got := n.NominatedPodsForNode("a"); len(got) != 0 {
		t.Errorf("nominated %v", got)
	}
}
