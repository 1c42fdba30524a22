package daemonset

import (
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const (
	outdated = "1"
	current  = "2"
)

// surging returns a snapshot of a rolling update with maxSurge 1.
func surging(nodes []string, pods ...*v1.Pod) snapshot {
	set := setOf()
	set.Spec.UpdateStrategy.RollingUpdate.MaxSurge = new(intstr.FromInt32(1))
	set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = new(intstr.FromInt32(0))
	s := snapshot{set: set, pods: pods, hash: current, now: time.Unix(1000, 0)}
	for _, name := range nodes {
		s.nodes = append(s.nodes, nodeOfDisk(name, "fast"))
	}
	return s
}

// surgePod returns a running pod. Outdated pods are older than current ones.
func surgePod(node, hash string, ready bool) *v1.Pod {
	p := podOn(node, hash, v1.PodRunning)
	p.Name += "-" + hash
	p.UID = types.UID(p.Name)
	p.CreationTimestamp = metav1.Unix(100, 0)
	if hash == current {
		p.CreationTimestamp = metav1.Unix(200, 0)
	}
	status := v1.ConditionFalse
	if ready {
		status = v1.ConditionTrue
	}
	p.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: status, LastTransitionTime: metav1.Unix(300, 0)}}
	return p
}

func names(pods []*v1.Pod) (names []string) {
	for _, p := range pods {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	return names
}

// maxSurge limits the nodes with an available outdated pod. A node whose outdated pod is
// unavailable gets a current one at once.
func TestSurgeReplacesUnavailablePods(t *testing.T) {
	s := surging([]string{"a", "b", "c", "d"},
		surgePod("a", outdated, false), surgePod("b", outdated, false), surgePod("c", outdated, true), surgePod("d", outdated, true))
	next := rollingUpdate(s)
	if want := []string{"a", "b", "c"}; !slices.Equal(next.create, want) || len(next.delete) != 0 {
		t.Errorf("creates pods on %v and deletes %v, want pods on %v", next.create, names(next.delete), want)
	}
}

// A node on which no pod becomes available, as when it is down, does not stop the roll-out on
// the others.
func TestSurgePastNodeThatIsDown(t *testing.T) {
	s := surging([]string{"a", "b"},
		surgePod("a", outdated, false), surgePod("a", current, false), surgePod("b", outdated, true))
	if next := rollingUpdate(s); !slices.Equal(next.create, []string{"b"}) {
		t.Errorf("creates pods on %v, want one on b", next.create)
	}
}

// An outdated pod that is not ready gives way to its replacement, which may not fit beside it.
func TestSurgeDeletesUnreadyPod(t *testing.T) {
	for _, c := range []struct {
		old, new bool // ready
		want     []string
	}{
		{old: true, new: false},
		{old: false, new: false, want: []string{"agent-a-1"}},
		{old: true, new: true, want: []string{"agent-a-1"}},
	} {
		s := surging([]string{"a"}, surgePod("a", outdated, c.old), surgePod("a", current, c.new))
		if next := manage(s); !slices.Equal(names(next.delete), c.want) || len(next.create) != 0 {
			t.Errorf("outdated ready %v, current ready %v: deletes %v, want %v", c.old, c.new, names(next.delete), c.want)
		}
	}
}

// A node counts as updated once its current pod has replaced the outdated one. Until then, the
// outdated pod says whether the node has an available pod.
func TestSurgeStatus(t *testing.T) {
	terminating := surgePod("a", outdated, true)
	terminating.DeletionTimestamp = &metav1.Time{Time: time.Unix(999, 0)}
	for _, c := range []struct {
		name string
		pods []*v1.Pod
		want string
	}{
		{"surged", []*v1.Pod{surgePod("a", current, false), surgePod("a", outdated, true)}, "ready 1 available 1 updated 0"},
		{"replaced", []*v1.Pod{terminating, surgePod("a", current, true)}, "ready 1 available 1 updated 1"},
		{"terminating alone", []*v1.Pod{terminating}, "ready 0 available 0 updated 0"},
	} {
		st, _ := status(surging([]string{"a"}, c.pods...))
		if got := fmt.Sprintf("ready %d available %d updated %d", st.NumberReady, st.NumberAvailable, st.UpdatedNumberScheduled); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
