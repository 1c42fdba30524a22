package server

import (
	"errors"
	"io"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/kubelet/cri/inmemory"
)

// kubectl logs --previous shows why a container crashed, also while it waits for
// its restart.
func TestLoggedInstance(t *testing.T) {
	instance := func(id string, state cri.State) *cri.Container {
		return &cri.Container{ID: id, Name: "main", State: state}
	}
	waits := v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
	for _, test := range []struct {
		name       string
		state      v1.ContainerState
		containers []*cri.Container // newest first
		last, prev string           // their ids, without and with previous; "" for an error
	}{
		{"runs", v1.ContainerState{}, []*cri.Container{instance("2", cri.Running), instance("1", cri.Exited)}, "2", "1"},
		{"runs for the first time", v1.ContainerState{}, []*cri.Container{instance("1", cri.Running)}, "1", ""},
		{"backs off", waits, []*cri.Container{instance("2", cri.Exited), instance("1", cri.Exited)}, "2", "2"},
		{"backs off after its first run", waits, []*cri.Container{instance("1", cri.Exited)}, "1", "1"},
		{"has ended", v1.ContainerState{}, []*cri.Container{instance("2", cri.Exited), instance("1", cri.Exited)}, "2", "1"},
		{"cannot start again", waits, []*cri.Container{instance("2", cri.Created), instance("1", cri.Exited)}, "1", "1"},
		{"cannot start", waits, []*cri.Container{instance("1", cri.Created)}, "", ""},
		{"was not created", waits, nil, "", ""},
	} {
		pod := &v1.Pod{Status: v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "main", State: test.state}}}}
		for previous, want := range map[bool]string{false: test.last, true: test.prev} {
			got, err := logged(pod, &cri.Pod{Containers: test.containers}, "main", previous)
			if (err != nil) != (want == "") || err == nil && got.ID != want {
				t.Errorf("%s, previous %t: %+v, %v, want %q", test.name, previous, got, err, want)
			}
		}
	}
}

// The runtime knows the containers of a pod of which the kubelet keeps only its end.
func TestLogsOfAReducedPod(t *testing.T) {
	s := &Server{config: Config{Runtime: inmemory.New()}}
	whole := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "other"}}}, Status: v1.PodStatus{Phase: v1.PodSucceeded}}
	reduced := &v1.Pod{Status: whole.Status}
	for pod, unknown := range map[*v1.Pod]bool{whole: true, reduced: false} {
		err := s.readLogs(t.Context(), pod, "main", &v1.PodLogOptions{}, io.Discard, io.Discard)
		if err == nil || errors.Is(err, errNotFound) != unknown {
			t.Errorf("unknown %t: %v", unknown, err)
		}
	}
}
