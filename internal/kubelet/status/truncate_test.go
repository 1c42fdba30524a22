package status

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/kubelet/cri"
)

func TestMessagesOfManyContainersAreTruncated(t *testing.T) {
	const each = 4096
	for containers, want := range map[int]int{1: each, 3: each, 4: 3 << 10, 100: (12 << 10) / 100} {
		pod, observed := &v1.Pod{}, &cri.Pod{}
		for i := range containers {
			name := fmt.Sprint("c", i)
			pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: name})
			for _, id := range []string{"new", "old"} {
				observed.Containers = append(observed.Containers, &cri.Container{ID: name + id, Name: name, State: cri.Exited, ExitCode: 1, Message: strings.Repeat("m", each)})
			}
		}
		st := Generate(Input{Pod: pod, Observed: observed, Now: time.Unix(1, 0)})
		for _, c := range st.ContainerStatuses {
			if got := len(c.State.Terminated.Message); got != want {
				t.Fatalf("%d containers: a message of %d bytes, want %d", containers, got, want)
			}
			if got := len(c.LastTerminationState.Terminated.Message); got != want {
				t.Fatalf("%d containers: a last message of %d bytes, want %d", containers, got, want)
			}
		}
	}
}

// The reasons why containers wait fit into a status together.
func TestReasonsOfManyContainersAreTruncated(t *testing.T) {
	const long = 8 << 10
	for containers, want := range map[int]int{1: 4 << 10, 64: 4 << 10, 1024: 256} {
		st := &v1.PodStatus{}
		for range containers {
			st.ContainerStatuses = append(st.ContainerStatuses, v1.ContainerStatus{
				State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Message: strings.Repeat("m", long)}}})
		}
		truncateMessages(st)
		for _, c := range st.ContainerStatuses {
			if got := len(c.State.Waiting.Message); got != want {
				t.Fatalf("%d containers: a reason of %d bytes, want %d", containers, got, want)
			}
		}
	}
}
