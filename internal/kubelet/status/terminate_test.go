package status

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/kubelet/cri"
)

func TestFailedInitLeavesTheOthersWaiting(t *testing.T) {
	pod := &v1.Pod{Spec: v1.PodSpec{
		RestartPolicy:  v1.RestartPolicyNever,
		InitContainers: []v1.Container{{Name: "first"}, {Name: "second"}, {Name: "third"}},
		Containers:     []v1.Container{{Name: "main"}},
	}}
	observed := &cri.Pod{Containers: []*cri.Container{
		{ID: "2", Name: "second", State: cri.Exited, ExitCode: 1}, {ID: "1", Name: "first", State: cri.Exited},
	}}
	for _, ended := range []bool{false, true} {
		st := Generate(Input{Pod: pod, Observed: observed, Now: time.Unix(1, 0), Ended: ended})
		main, third := st.ContainerStatuses[0].State.Waiting, find(st.InitContainerStatuses, "third").State.Waiting
		if st.Phase != v1.PodFailed || main == nil || main.Reason != "PodInitializing" || third == nil || third.Reason != "PodInitializing" {
			t.Errorf("ended %v: phase %s, main waits %v, third waits %v", ended, st.Phase, main, third)
		}
	}
	observed.Containers[0].ExitCode = 0
	observed.Containers = append(observed.Containers, &cri.Container{ID: "3", Name: "third", State: cri.Exited})
	st := Generate(Input{Pod: pod, Observed: observed, Now: time.Unix(1, 0), Ended: true})
	if dead := st.ContainerStatuses[0].State.Terminated; st.Phase != v1.PodFailed || dead == nil || dead.Reason != "ContainerStatusUnknown" {
		t.Errorf("an initialized pod that ended: phase %s, main %+v", st.Phase, st.ContainerStatuses[0].State)
	}
}

func TestRejectedPodShowsNoContainers(t *testing.T) {
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main"}}}}
	st := Generate(Input{
		Pod: pod, Observed: &cri.Pod{}, Now: time.Unix(1, 0), Ended: true, Rejected: true,
		Failed: &Cause{Reason: "AppArmor", Message: RejectedPrefix + "no"},
	})
	pod.Status = st
	if st.Phase != v1.PodFailed || st.Reason != "AppArmor" || len(st.ContainerStatuses) != 0 || st.StartTime == nil || !WasRejected(pod) {
		t.Errorf("status %+v", st)
	}
}

// What of an ended pod had a chance to start is Terminated: init containers up to the
// last one that did, and the regular ones if the last init container ever completed or
// one of them ever ran. w waits, l waits after it had ended with 0, and the others have
// ended with a code or run.
func TestUnknownEnds(t *testing.T) {
	for _, test := range []struct{ init, regular, want string }{
		{"", "w", "?"},
		{"", "l", "?"},
		{"", "2", "2"},
		{"w", "w", "? w"},
		{"w w", "w", "? w w"},
		{"w w 1 w", "w", "? ? 1 w w"},
		{"w w 1", "w", "? ? 1 w"},
		{"w w 0", "w", "? ? 0 ?"},
		{"w w l", "w", "? ? ? ?"},
		{"w", "r", "? ?"},
		{"w", "0", "? 0"},
		{"w", "l", "? ?"},
	} {
		pod, st := &v1.Pod{}, &v1.PodStatus{}
		add := func(words string) (list []v1.Container, statuses []v1.ContainerStatus) {
			for i, word := range strings.Fields(words) {
				c := v1.ContainerStatus{Name: fmt.Sprint(words, i)}
				switch word {
				case "w":
					c.State.Waiting = &v1.ContainerStateWaiting{}
				case "l":
					c.State.Waiting, c.LastTerminationState.Terminated = &v1.ContainerStateWaiting{}, &v1.ContainerStateTerminated{}
				case "r":
					c.State.Running = &v1.ContainerStateRunning{}
				default:
					c.State.Terminated = &v1.ContainerStateTerminated{}
					_, _ = fmt.Sscan(word, &c.State.Terminated.ExitCode)
				}
				list, statuses = append(list, v1.Container{Name: c.Name}), append(statuses, c)
			}
			return list, statuses
		}
		pod.Spec.InitContainers, st.InitContainerStatuses = add(test.init)
		pod.Spec.Containers, st.ContainerStatuses = add(test.regular)
		terminateUnknown(pod, st)
		var got []string
		for _, c := range append(st.InitContainerStatuses, st.ContainerStatuses...) {
			switch dead := c.State.Terminated; {
			case dead == nil:
				got = append(got, "w")
			case dead.Reason == "ContainerStatusUnknown":
				got = append(got, "?")
			default:
				got = append(got, fmt.Sprint(dead.ExitCode))
			}
		}
		if text := strings.Join(got, " "); text != test.want {
			t.Errorf("%s | %s: %s, want %s", test.init, test.regular, text, test.want)
		}
	}
}
