package status

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/podquery"
)

// The resources of a pod as a whole are shown when they are allocated, and when
// the pod has them.
func TestPodLevelResources(t *testing.T) {
	of := func(cpu string) *v1.ResourceRequirements {
		list := v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}
		return &v1.ResourceRequirements{Requests: list, Limits: list}
	}
	in := Input{
		Pod:      &v1.Pod{Spec: v1.PodSpec{Resources: of("1"), Containers: []v1.Container{{Name: "main"}}}},
		Observed: &cri.Pod{}, Now: time.Unix(1_800_000_000, 0),
	}
	check := func(when, allocated, has string) {
		t.Helper()
		st := Generate(in)
		if !equality.Semantic.DeepEqual(st.AllocatedResources, of(allocated).Requests) || !equality.Semantic.DeepEqual(st.Resources, of(has)) {
			t.Errorf("%s: allocated %v, has %+v", when, st.AllocatedResources, st.Resources)
		}
		in.Previous = st
	}
	check("at first", "1", "1")
	in.Pod.Spec.Resources = of("2")
	in.Conditions = []v1.PodCondition{{Type: v1.PodResizeInProgress, Status: v1.ConditionTrue}}
	check("during a resize", "2", "1")
	in.Conditions = []v1.PodCondition{{Type: v1.PodResizeInProgress}}
	check("after it", "2", "2")
	in.Pod.Spec.Overhead = of("1").Requests
	check("with overhead", "2", "2")
	in.WithoutPodLevel = true
	if st := Generate(in); st.AllocatedResources != nil || st.Resources != nil {
		t.Errorf("if they are not shown: %+v", st)
	}
}

// A pod without resources as a whole shows what its containers sum up to; while it runs,
// what its control group has: no limit unless all of them have one.
func TestPodLevelResourcesOfContainers(t *testing.T) {
	list := func(cpu, memory string) v1.ResourceList {
		l := v1.ResourceList{v1.ResourceMemory: resource.MustParse(memory)}
		if cpu != "" {
			l[v1.ResourceCPU] = resource.MustParse(cpu)
		}
		return l
	}
	one := v1.Container{Name: "one", Resources: v1.ResourceRequirements{Requests: list("100m", "1Gi"), Limits: list("200m", "2Gi")}}
	one.Resources.Requests[v1.ResourceEphemeralStorage] = resource.MustParse("1Mi")
	two := v1.Container{Name: "two", Resources: v1.ResourceRequirements{Requests: list("50m", "1Gi"), Limits: list("", "1Gi")}}
	in := Input{
		Pod:      &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{one, two}, Overhead: list("1", "1Gi")}},
		Observed: &cri.Pod{}, Now: time.Unix(1_800_000_000, 0),
	}
	all := list("150m", "2Gi")
	all[v1.ResourceEphemeralStorage] = resource.MustParse("1Mi")
	for _, c := range []struct {
		phase v1.PodPhase
		has   v1.ResourceRequirements
	}{
		{v1.PodPending, v1.ResourceRequirements{Requests: all, Limits: list("200m", "3Gi")}},
		{v1.PodRunning, v1.ResourceRequirements{Requests: list("150m", "2Gi"), Limits: list("", "3Gi")}},
	} {
		in.Previous.Phase = c.phase
		if st := Generate(in); !equality.Semantic.DeepEqual(st.AllocatedResources, all) || !equality.Semantic.DeepEqual(st.Resources, &c.has) {
			t.Errorf("%s: allocated %v, has %+v", c.phase, st.AllocatedResources, st.Resources)
		}
	}
	in.Pod.Spec.Containers = []v1.Container{{Name: "one"}}
	if st := Generate(in); len(st.AllocatedResources) != 0 || !equality.Semantic.DeepEqual(st.Resources, &v1.ResourceRequirements{}) {
		t.Errorf("without any: allocated %v, has %+v", st.AllocatedResources, st.Resources)
	}
}

// A pod of the containers x and y (init), s (sidecar), t (sidecar that has not
// started), a and b. What runs or has ended, with its exit code, is in observed.
func TestPhase(t *testing.T) {
	const always, onFailure, never = v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever
	for _, test := range []struct {
		policy          v1.RestartPolicy
		names, observed string
		want            v1.PodPhase
	}{
		{always, "a b", "", v1.PodPending},
		{always, "a b", "a:running", v1.PodPending},
		{always, "a b", "a:running b:1", v1.PodRunning},
		{always, "a b", "a:0 b:1", v1.PodRunning},
		{onFailure, "a b", "a:0 b:1", v1.PodRunning},
		{onFailure, "a b", "a:0 b:0", v1.PodSucceeded},
		{never, "a b", "a:0 b:1", v1.PodFailed},
		{never, "x a", "x:1", v1.PodFailed},
		{always, "x a", "x:1", v1.PodPending},
		{always, "x a", "x:running", v1.PodPending},
		{always, "s a b", "s:running", v1.PodPending},
		{always, "s a b", "s:running a:running", v1.PodPending},
		{always, "s a b", "s:1 a:running b:running", v1.PodRunning},
		{always, "t a b", "t:running a:running b:running", v1.PodRunning},
		{never, "s a b", "s:running a:0 b:0", v1.PodRunning},
		{never, "s a b", "s:1 a:0 b:0", v1.PodSucceeded},
		{always, "x s a", "x:running s:running a:running", v1.PodPending},
		{always, "x s a", "x:running s:running a:0", v1.PodPending}, // the pod has a new sandbox
		{always, "x s a", "x:0 s:running a:0", v1.PodRunning},
		{always, "x s a", "x:0 s:running a:running", v1.PodRunning},
		{always, "x y a", "y:0 a:running", v1.PodRunning}, // the runtime has lost x
	} {
		policy := v1.ContainerRestartPolicyAlways
		pod, observed := &v1.Pod{Spec: v1.PodSpec{RestartPolicy: test.policy}}, &cri.Pod{}
		for _, name := range strings.Fields(test.names) {
			switch c := (v1.Container{Name: name}); name {
			case "a", "b":
				pod.Spec.Containers = append(pod.Spec.Containers, c)
			case "s", "t":
				c.RestartPolicy = &policy
				fallthrough
			default:
				pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
			}
		}
		for _, word := range strings.Fields(test.observed) {
			name, state, _ := strings.Cut(word, ":")
			c := &cri.Container{ID: name, Name: name, State: cri.Running}
			if state != "running" {
				c.State = cri.Exited
				_, _ = fmt.Sscan(state, &c.ExitCode)
			}
			observed.Containers = append(observed.Containers, c)
		}
		got := Generate(Input{Pod: pod, Observed: observed, Now: time.Unix(1_800_000_000, 0),
			Started: func(c *v1.Container, _ *cri.Container) bool { return c.Name != "t" }}).Phase
		if got != test.want {
			t.Errorf("%s, %s, %s: %s, want %s", test.policy, test.names, test.observed, got, test.want)
		}
	}
}

// A pod keeps the time when it started, also when another kubelet saw that, and a
// condition the time of its last change.
func TestTimesAreKept(t *testing.T) {
	began := time.Unix(1_800_000_000, 0)
	ready := true
	in := Input{
		Pod:      &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main"}}}},
		Observed: &cri.Pod{Containers: []*cri.Container{{ID: "1", Name: "main", State: cri.Running}}},
		Ready:    func(*v1.Container, *cri.Container) bool { return ready },
	}
	check := func(when string, now, changed, start time.Time) {
		t.Helper()
		in.Now = now
		st := Generate(in)
		if c := podquery.Condition(&st, v1.PodReady); c == nil || (c.Status == v1.ConditionTrue) != ready || !c.LastTransitionTime.Time.Equal(changed) {
			t.Errorf("%s: the condition is %+v, want that of %v", when, c, changed)
		}
		if st.StartTime == nil || !st.StartTime.Time.Equal(start) {
			t.Errorf("%s: started at %v, want %v", when, st.StartTime, start)
		}
		in.Previous = st
	}
	check("at first", began, began, began)
	check("a minute later", began.Add(time.Minute), began, began)
	ready = false
	check("when it is not ready any more", began.Add(2*time.Minute), began.Add(2*time.Minute), began)
	check("a minute after that", began.Add(3*time.Minute), began.Add(2*time.Minute), began)
	earlier := metav1.NewTime(began.Add(-time.Hour))
	in.Previous = v1.PodStatus{StartTime: &earlier}
	check("with only a time of start", began, began, earlier.Time)
}
