package gangscheduling

import (
	"fmt"
	"iter"
	"os"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	schedulingapi "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/leaktest"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/scheduler/podgroup"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Run(m)) }

// scheduler is a fake scheduler for the plugin. It holds the pods, which of
// them have a node or wait in Permit, and what it was asked to do. A pod that
// waits is of the group gang, or named as "group/pod".
type scheduler struct {
	*podgroup.Groups
	framework.WaitingPods
	placed, waits []string
	allowed       []string
}

func (s *scheduler) NumPlaced(types.NamespacedName) int { return len(s.placed) }

func (s *scheduler) All() iter.Seq[framework.WaitingPod] {
	return func(yield func(framework.WaitingPod) bool) {
		for _, name := range s.waits {
			if !yield(waitingPod{s: s, name: name}) {
				return
			}
		}
	}
}

type waitingPod struct {
	framework.WaitingPod
	s    *scheduler
	name string
}

func (w waitingPod) PodInfo() *framework.PodInfo {
	group, name, ok := strings.Cut(w.name, "/")
	if !ok {
		group, name = "gang", w.name
	}
	return framework.NewPodInfo(pod(name, group))
}

func (w waitingPod) Allow(string) { w.s.allowed = append(w.s.allowed, w.name) }

func pod(name, group string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name)}}
	if group != "" {
		p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &group}
	}
	return p
}

func groupOf(p *v1.Pod) *string {
	if p.Spec.SchedulingGroup == nil {
		return new("")
	}
	return p.Spec.SchedulingGroup.PodGroupName
}

func gang(name string, least int32) *schedulingapi.PodGroup {
	g := &schedulingapi.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	g.Spec.SchedulingPolicy.Gang = &schedulingapi.GangSchedulingPolicy{MinCount: least}
	return g
}

func basic(name string) *schedulingapi.PodGroup {
	g := &schedulingapi.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	g.Spec.SchedulingPolicy.Basic = &schedulingapi.BasicSchedulingPolicy{}
	return g
}

func newTestPlugin(t *testing.T, s *scheduler) *plugin {
	t.Helper()
	c := controllertest.New(t, gang("gang", 3), basic("basic"))
	features, err := feature.Parse([]string{"GenericWorkload=true"})
	if err != nil {
		t.Fatal(err)
	}
	h := &framework.Handle{Informers: c.Env.Client.Informers, Features: features, PodGroups: s, WaitingPods: s}
	made, err := Factory().New(t.Context(), nil, h)
	if err != nil {
		t.Fatal(err)
	}
	controllertest.WaitSynced(t, h.Informers.Scheduling().V1beta1().PodGroups().Informer())
	return made.(*plugin)
}

func TestGang(t *testing.T) {
	for _, test := range []struct {
		name          string
		pod           *v1.Pod
		members       string // of the group gang
		placed, waits string
		preEnqueue    string
		permit        string
	}{
		{name: "no group", pod: pod("a", ""), permit: "Success"},
		{name: "a group without a gang", pod: pod("a", "basic"), permit: "Success"},
		{name: "no such group", pod: pod("a", "none"), preEnqueue: `waiting for pods's pod group "none" to appear in scheduling queue`},
		{name: "too few pods", pod: pod("a", "gang"), members: "a b", preEnqueue: "waiting for minCount pods from a gang to appear in scheduling queue"},
		{name: "the first is placed", pod: pod("a", "gang"), members: "a b c", placed: "a", permit: "Wait 5m0s"},
		{name: "one is missing", pod: pod("b", "gang"), members: "a b c", placed: "a b", waits: "a", permit: "Wait 5m0s"},
		{name: "all are placed", pod: pod("c", "gang"), members: "a b c", placed: "a b c", waits: "a b", permit: "Success, allows a b"},
		{name: "enough are placed", pod: pod("c", "gang"), members: "a b c d", placed: "a b c", waits: "a b", permit: "Success, allows a b"},
		{name: "enough are bound", pod: pod("d", "gang"), members: "a b c d", placed: "a b c d", permit: "Success"},
		{name: "pods of other groups wait", pod: pod("c", "gang"), members: "a b c", placed: "a b c", waits: "other/a b other/c /d", permit: "Success, allows b"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := &scheduler{Groups: podgroup.New(), placed: strings.Fields(test.placed), waits: strings.Fields(test.waits)}
			for _, name := range strings.Fields(test.members) {
				s.Set(pod(name, "gang"))
			}
			p, info := newTestPlugin(t, s), framework.NewPodInfo(test.pod)
			if got := p.PreEnqueue(t.Context(), info).Message(); got != test.preEnqueue {
				t.Fatalf("PreEnqueue: %q, want %q", got, test.preEnqueue)
			}
			if test.preEnqueue != "" {
				return
			}
			missing, together := p.Missing(info)
			if gang := *groupOf(test.pod) == "gang"; together != gang || gang && missing != max(0, 3-len(s.placed)) {
				t.Errorf("decided together: %v, %d are missing", together, missing)
			}
			status, timeout := p.Permit(t.Context(), nil, info, "n")
			got := status.Code().String()
			if timeout > 0 {
				got += fmt.Sprint(" ", timeout)
			}
			slices.Sort(s.allowed)
			if len(s.allowed) > 0 {
				got += ", allows " + strings.Join(s.allowed, " ")
			}
			if got != test.permit {
				t.Errorf("Permit: %s, want %s", got, test.permit)
			}
		})
	}
}

func TestHints(t *testing.T) {
	s := &scheduler{Groups: podgroup.New()}
	events, err := newTestPlugin(t, s).EventsToRegister(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	hint := func(resource framework.EventResource, obj any) framework.QueueingHint {
		got, happened := framework.QueueSkip, framework.ClusterEvent{Resource: resource, Action: framework.Add}
		for _, e := range events {
			if e.Event.Matches(happened) && e.Hint(framework.NewPodInfo(pod("a", "gang")), nil, obj) == framework.Queue {
				got = framework.Queue
			}
		}
		return got
	}
	s.Set(pod("a", "gang"))
	s.Set(pod("b", "gang"))
	if hint(framework.UnscheduledPod, pod("b", "gang")) != framework.QueueSkip {
		t.Error("the second pod of three helps the first")
	}
	s.Set(pod("c", "gang"))
	for _, test := range []struct {
		name     string
		resource framework.EventResource
		new      any
		want     framework.QueueingHint
	}{
		{"a pod of the group comes", framework.UnscheduledPod, pod("b", "gang"), framework.Queue},
		{"a pod of the group is bound", framework.AssignedPod, pod("b", "gang"), framework.Queue},
		{"a pod of another group comes", framework.UnscheduledPod, pod("b", "basic"), framework.QueueSkip},
		{"a pod without a group comes", framework.UnscheduledPod, pod("b", ""), framework.QueueSkip},
		{"the group comes", framework.PodGroup, gang("gang", 3), framework.Queue},
		{"another group comes", framework.PodGroup, gang("other", 3), framework.QueueSkip},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := hint(test.resource, test.new); got != test.want {
				t.Errorf("hint %d, want %d", got, test.want)
			}
		})
	}
}

func TestGateIsNeeded(t *testing.T) {
	if _, err := Factory().New(t.Context(), nil, &framework.Handle{}); err == nil {
		t.Error("the plugin is made although GenericWorkload is off")
	}
}
