package scheduler

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A pod belongs to its group from when it is created until it has ended or is
// deleted, whether it has a node or not.
func TestMembersOfPodGroups(t *testing.T) {
	member := func(p *v1.Pod) { p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: new("gang")} }
	group := types.NamespacedName{Namespace: "default", Name: "gang"}
	simulate(t, func(*simulation) {}, func(s *simulation) {
		want := func(when string, members, placed int) {
			t.Helper()
			advance(time.Minute)
			have := podGroups{s.scheduler.groups, s.scheduler.cache}.NumPlaced(group)
			if n := s.scheduler.groups.Count(group); n != members || len(s.scheduler.groups.Members(group)) != members || have != placed {
				t.Errorf("%s: %d members, %d of them placed, want %d and %d", when, n, have, members, placed)
			}
		}
		s.add(pod("fits", requests("1", "1Gi"), member))
		s.add(pod("ends", requests("1", "1Gi"), member))
		s.add(pod("waits", requests("9", "1Gi"), member))
		s.add(pod("alone"))
		want("created", 3, 2)
		s.remove("waits")
		want("a pod without node is deleted", 2, 2)
		ended := s.get("ends")
		ended.Status.Phase = v1.PodSucceeded
		s.update(ended)
		want("a pod has ended", 1, 1)
		s.remove("fits")
		want("a pod with a node is deleted", 0, 0)
	}, node("a"))
}
