package status

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/kubelet/cri"
)

// A container whose start or hook failed waits only if it is started again.
func TestWaitingAfterAFailure(t *testing.T) {
	for _, test := range []struct {
		name    string
		policy  v1.RestartPolicy
		code    int32
		deleted bool
		waits   bool
	}{
		{"always", v1.RestartPolicyAlways, 137, false, true},
		{"on failure", v1.RestartPolicyOnFailure, 137, false, true},
		{"on failure, completed", v1.RestartPolicyOnFailure, 0, false, false},
		{"never", v1.RestartPolicyNever, 137, false, false},
		{"deleted", v1.RestartPolicyAlways, 137, true, false},
	} {
		p := &v1.Pod{Spec: v1.PodSpec{RestartPolicy: test.policy, Containers: []v1.Container{{Name: "main"}, {Name: "other"}}}}
		if test.deleted {
			p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1_800_000_000, 0)}
		}
		st := Generate(Input{
			Pod: p, Now: time.Unix(1_800_000_000, 0), Waiting: map[string]Cause{"main": {Reason: "PostStartHookError"}},
			Observed: &cri.Pod{Containers: []*cri.Container{
				{ID: "1", Name: "main", State: cri.Exited, ExitCode: test.code}, {ID: "2", Name: "other", State: cri.Running},
			}},
		}).ContainerStatuses[0]
		if waits := st.State.Waiting != nil; waits != test.waits || waits == (st.State.Terminated != nil) {
			t.Errorf("%s: %+v, want waiting %t", test.name, st.State, test.waits)
		}
	}
}

// A container of which the runtime has lost the instances keeps counting, and an init
// container has completed if those after it were created.
func TestContainersThatTheRuntimeHasLost(t *testing.T) {
	running := v1.ContainerState{Running: &v1.ContainerStateRunning{}}
	failed := v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 3}}
	main := &cri.Container{ID: "new", Name: "main", State: cri.Running}
	for _, test := range []struct {
		name     string
		previous v1.ContainerStatus
		observed []*cri.Container
		deleted  bool
		restarts int32
		last     int32 // exit code of the last instance, 0 if none is shown
	}{
		{"it ran", v1.ContainerStatus{RestartCount: 2, ContainerID: "://old", State: running}, nil, false, 3, 137},
		{"it ran, and the pod is deleted", v1.ContainerStatus{RestartCount: 2, ContainerID: "://old", State: running}, nil, true, 2, 0},
		{"it waits since then", v1.ContainerStatus{RestartCount: 3, State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{}}, LastTerminationState: failed}, nil, false, 3, 3},
		{"it had ended", v1.ContainerStatus{RestartCount: 5, ContainerID: "://old", State: failed}, nil, false, 5, 0},
		{"it runs again", v1.ContainerStatus{RestartCount: 5, ContainerID: "://old", State: failed}, []*cri.Container{main}, false, 6, 3},
		{"it runs again after it waited", v1.ContainerStatus{RestartCount: 6, State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{}}, LastTerminationState: failed}, []*cri.Container{main}, false, 6, 3},
		{"it still runs again", v1.ContainerStatus{RestartCount: 6, ContainerID: "://new", State: running, LastTerminationState: failed}, []*cri.Container{main}, false, 6, 3},
		{"it is the first", v1.ContainerStatus{}, []*cri.Container{main}, false, 0, 0},
	} {
		p := &v1.Pod{Spec: v1.PodSpec{RestartPolicy: v1.RestartPolicyAlways, Containers: []v1.Container{{Name: "main"}}}}
		if test.deleted {
			p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1_800_000_000, 0)}
		}
		test.previous.Name = "main"
		st := Generate(Input{
			Pod: p, Now: time.Unix(1_800_000_000, 0), Observed: &cri.Pod{Containers: test.observed},
			Previous: v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{test.previous}},
		}).ContainerStatuses[0]
		last := int32(0)
		if dead := st.LastTerminationState.Terminated; dead != nil {
			last = dead.ExitCode
		}
		if st.RestartCount != test.restarts || last != test.last {
			t.Errorf("%s: %d restarts and last exit code %d, want %d and %d", test.name, st.RestartCount, last, test.restarts, test.last)
		}
	}
	always := v1.ContainerRestartPolicyAlways
	p := &v1.Pod{Spec: v1.PodSpec{InitContainers: []v1.Container{{Name: "setup"}, {Name: "sidecar", RestartPolicy: &always}}, Containers: []v1.Container{{Name: "main"}}}}
	st := Generate(Input{Pod: p, Now: time.Unix(1_800_000_000, 0), Observed: &cri.Pod{Containers: []*cri.Container{main}}}).InitContainerStatuses
	if dead := st[0].State.Terminated; dead == nil || dead.Reason != "Completed" || !st[0].Ready || st[1].State.Waiting == nil {
		t.Errorf("the init containers are %+v", st)
	}
}

// The scheduler counts what is allocated to a container, also while it waits for its
// next start. What a container has differs only while it runs.
func TestAllocatedResources(t *testing.T) {
	list := v1.ResourceList{v1.ResourceCPU: resource.MustParse("2")}
	p := &v1.Pod{Spec: v1.PodSpec{RestartPolicy: v1.RestartPolicyAlways, Containers: []v1.Container{
		{Name: "main", Resources: v1.ResourceRequirements{Requests: list, Limits: list}}}}}
	half := &runtimeapi.LinuxContainerResources{CpuShares: 1024, CpuPeriod: 100_000, CpuQuota: 100_000}
	for name, test := range map[string]struct {
		newest *cri.Container // nil: there is none
		has    string         // the limit of CPUs, "" if none is shown
	}{
		"not created": {nil, ""},
		"created":     {&cri.Container{ID: "1", Name: "main", State: cri.Created, Resources: half}, "2"},
		"running":     {&cri.Container{ID: "1", Name: "main", State: cri.Running, Resources: half}, "1"},
		"ended":       {&cri.Container{ID: "1", Name: "main", State: cri.Exited, ExitCode: 1, Resources: half}, "2"},
	} {
		observed := &cri.Pod{}
		if test.newest != nil {
			observed.Containers = append(observed.Containers, test.newest)
		}
		st := Generate(Input{Pod: p, Now: time.Unix(1_800_000_000, 0), Observed: observed}).ContainerStatuses[0]
		if (st.Resources != nil) != (test.has != "") || len(st.AllocatedResources) != len(list) && test.has != "" {
			t.Errorf("%s: resources %v, allocated %v", name, st.Resources, st.AllocatedResources)
		} else if test.has != "" && (st.Resources.Limits.Cpu().String() != test.has || st.AllocatedResources.Cpu().String() != "2") {
			t.Errorf("%s: it has %s of the allocated %s CPUs, want %s of 2", name, st.Resources.Limits.Cpu(), st.AllocatedResources.Cpu(), test.has)
		}
	}
}

// shownState returns the state and the last state of a container in short.
func shownState(s v1.ContainerStatus) string {
	one := func(s v1.ContainerState) string {
		switch {
		case s.Running != nil:
			return "running"
		case s.Waiting != nil:
			return s.Waiting.Reason
		case s.Terminated != nil:
			return fmt.Sprint(s.Terminated.ExitCode)
		}
		return ""
	}
	text := one(s.State)
	if last := one(s.LastTerminationState); last != "" {
		text += ", last " + last
	}
	return text
}

// The state of a container follows from its instances, why it does not start, and what was
// shown before. An init container that has completed does not start again.
func TestStatesOfContainers(t *testing.T) {
	const always, onFailure, never = v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever
	of := func(state cri.State, code int32) *cri.Container {
		return &cri.Container{ID: fmt.Sprint(code), Name: "main", State: state, ExitCode: code}
	}
	exited := func(codes ...int32) (list []*cri.Container) {
		for _, code := range codes {
			list = append(list, of(cri.Exited, code))
		}
		return list
	}
	ended := func(code int32, id string) v1.ContainerState {
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: code, ContainerID: id}}
	}
	running := v1.ContainerState{Running: &v1.ContainerStateRunning{}}
	waiting := v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "error"}}
	unknown := []*cri.Container{of(cri.Unknown, 0)}
	for _, test := range []struct {
		what     string
		policy   v1.RestartPolicy
		observed []*cri.Container // newest first
		cause    string           // why it does not start
		previous v1.ContainerStatus
		regular  string
		init     string // "" if it is the same
	}{
		{"it is new", onFailure, nil, "", v1.ContainerStatus{}, "ContainerCreating", "PodInitializing"},
		{"all are lost", onFailure, nil, "", v1.ContainerStatus{LastTerminationState: ended(3, "")}, "ContainerCreating, last 3", "PodInitializing, last 3"},
		{"it runs", onFailure, append([]*cri.Container{of(cri.Running, 0)}, exited(1)...), "", v1.ContainerStatus{}, "running, last 1", ""},
		{"it failed", onFailure, exited(1, 3), "", v1.ContainerStatus{}, "1, last 3", ""},
		{"it cannot start again", onFailure, exited(2, 4), "error", v1.ContainerStatus{}, "error, last 2", ""},
		{"it completed", onFailure, exited(0, 5), "error", v1.ContainerStatus{}, "0, last 5", ""},
		{"it completed, and restarts", always, exited(0, 2), "error", v1.ContainerStatus{}, "error, last 0", "0, last 2"},
		{"it failed, and restarts", always, exited(1, 3), "error", v1.ContainerStatus{}, "error, last 1", ""},
		{"it completed for ever", never, exited(0, 2), "error", v1.ContainerStatus{}, "0, last 2", ""},
		{"it failed for ever", never, exited(1, 3), "error", v1.ContainerStatus{}, "1, last 3", ""},
		{"unknown, and it ran", onFailure, unknown, "", v1.ContainerStatus{ContainerID: "://0", State: running}, "137", ""},
		{"unknown for a while", onFailure, unknown, "", v1.ContainerStatus{ContainerID: "://0", State: ended(137, "://0")}, "137", ""},
		{"unknown, and it waits", onFailure, unknown, "error", v1.ContainerStatus{ContainerID: "://0", State: waiting, LastTerminationState: ended(137, "://0")}, "error, last 137", ""},
		{"unknown, and never seen", onFailure, unknown, "", v1.ContainerStatus{}, "ContainerCreating", ""},
	} {
		in := Input{Pod: &v1.Pod{Spec: v1.PodSpec{RestartPolicy: test.policy}}, Now: time.Unix(1_800_000_000, 0), Observed: &cri.Pod{Containers: test.observed}}
		if test.cause != "" {
			in.Waiting = map[string]Cause{"main": {Reason: test.cause}}
		}
		test.previous.Name = "main"
		list, before := []v1.Container{{Name: "main"}}, []v1.ContainerStatus{test.previous}
		in.Pod.Spec.Containers, in.Previous.ContainerStatuses = list, before
		if got := shownState(Generate(in).ContainerStatuses[0]); got != test.regular {
			t.Errorf("%s: %s, want %s", test.what, got, test.regular)
		}
		in.Pod.Spec = v1.PodSpec{RestartPolicy: test.policy, InitContainers: list}
		in.Previous = v1.PodStatus{InitContainerStatuses: before}
		want := test.init
		if want == "" {
			want = test.regular
		}
		if got := shownState(Generate(in).InitContainerStatuses[0]); got != want {
			t.Errorf("%s, an init container: %s, want %s", test.what, got, want)
		}
	}
	for policy, want := range map[v1.RestartPolicy]v1.PodPhase{always: v1.PodRunning, onFailure: v1.PodRunning, never: v1.PodFailed} {
		got := Generate(Input{
			Pod: &v1.Pod{Spec: v1.PodSpec{RestartPolicy: policy, Containers: []v1.Container{{Name: "main"}}}}, Now: time.Unix(1_800_000_000, 0),
			Observed: &cri.Pod{Containers: unknown},
			Previous: v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{{Name: "main", ContainerID: "://0", State: running}}},
		}).Phase
		if got != want {
			t.Errorf("a pod whose container ran, and is unknown: %s, want %s", got, want)
		}
	}
}
