package status

import (
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
