package status

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/costtest"
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

// The groups of the users of very many containers fit into a status together.
func TestGroupsOfManyContainersAreTruncated(t *testing.T) {
	const many = 4096
	for containers, want := range map[int]int{1: many, 4: many, 512: 32} {
		pod, observed := &v1.Pod{}, &cri.Pod{}
		for i := range containers {
			name := fmt.Sprint("c", i)
			pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: name})
			observed.Containers = append(observed.Containers, &cri.Container{
				ID: name, Name: name, State: cri.Running, User: &runtimeapi.LinuxContainerUser{SupplementalGroups: make([]int64, many)}})
		}
		st := Generate(Input{Pod: pod, Observed: observed, Now: time.Unix(1, 0)})
		for _, c := range st.ContainerStatuses {
			if got := len(c.User.Linux.SupplementalGroups); got != want {
				t.Fatalf("%d containers: %d groups, want %d", containers, got, want)
			}
		}
	}
}

// The mounts of very many containers fit into a status together.
func TestMountsOfManyContainersAreTruncated(t *testing.T) {
	for containers, want := range map[int]int{1: 20, 2: 20, 512: 7} {
		pod, observed := &v1.Pod{}, &cri.Pod{}
		for i := range containers {
			c := v1.Container{Name: fmt.Sprint("c", i)}
			for m := range 20 {
				c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: "v", MountPath: fmt.Sprintf("/%03d", m)})
			}
			pod.Spec.Containers = append(pod.Spec.Containers, c)
			observed.Containers = append(observed.Containers, &cri.Container{ID: c.Name, Name: c.Name, State: cri.Running})
		}
		st := Generate(Input{Pod: pod, Observed: observed, Now: time.Unix(1, 0)})
		for _, c := range st.ContainerStatuses {
			if got := len(c.VolumeMounts); got != want {
				t.Fatalf("%d containers: %d mounts, want %d", containers, got, want)
			}
		}
	}
}

// Very many mounts that are read-only are not compared with each other.
func TestManyReadOnlyMounts(t *testing.T) {
	const many = 20_000
	c, running := &v1.Container{}, &cri.Container{}
	for i := range many {
		path := fmt.Sprint("/", i)
		c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: "v", MountPath: path, ReadOnly: true})
		running.Mounts = append(running.Mounts, &runtimeapi.Mount{ContainerPath: path, RecursiveReadOnly: i%2 == 0})
	}
	var shown []v1.VolumeMountStatus
	cost := costtest.Of(t, func() { shown = volumeMounts(c, running) })
	if len(shown) != many || *shown[0].RecursiveReadOnly != v1.RecursiveReadOnlyEnabled || *shown[1].RecursiveReadOnly != v1.RecursiveReadOnlyDisabled {
		t.Errorf("%d mounts: %+v, %+v", len(shown), shown[0], shown[1])
	}
	if cost.Processor > time.Second {
		t.Errorf("they take %v of processor time", cost.Processor)
	}
}
