package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

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

// countingRuntime counts the containers whose statuses are read.
type countingRuntime struct {
	*inmemory.Runtime
	read atomic.Int32
}

func (r *countingRuntime) ContainerStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error) {
	r.read.Add(1)
	return r.Runtime.ContainerStatus(ctx, id, verbose)
}

// Requests for one container of a pod do not read the others, of which it may have
// hundreds.
func TestOtherContainersAreNotRead(t *testing.T) {
	runtime := &countingRuntime{Runtime: inmemory.New()}
	s := &Server{config: Config{Runtime: runtime}}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "uid"}}
	sandbox, err := runtime.RunPodSandbox(t.Context(), &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: pod.Name, Namespace: pod.Namespace, Uid: string(pod.UID)}, Labels: cri.PodLabels(pod),
	}, "")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		name := fmt.Sprintf("container-%d", i)
		id, err := runtime.CreateContainer(t.Context(), sandbox, &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: name}, Labels: cri.ContainerLabels(pod, name),
			Annotations: cri.ContainerAnnotations(pod, &v1.Container{Name: name}, 0, 0, "hash"),
		}, nil)
		if err == nil {
			err = runtime.StartContainer(t.Context(), id)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for what, request := range map[string]func() (string, error){
		"a command": func() (string, error) { return s.containerID(t.Context(), pod, "container-7") },
		"ports":     func() (string, error) { return s.sandboxID(t.Context(), pod) },
		"a log": func() (string, error) {
			c, err := s.instance(t.Context(), pod, "container-7", false)
			if err != nil {
				return "", err
			}
			return c.ID, nil
		},
	} {
		runtime.read.Store(0)
		if id, err := request(); err != nil || id == "" {
			t.Errorf("%s: %q, %v", what, id, err)
		}
		if n := runtime.read.Load(); n > 1 {
			t.Errorf("a request for %s reads %d containers", what, n)
		}
	}
}

// Who asks for the log of a container that has none learns why.
func TestWhyThereIsNoLog(t *testing.T) {
	for reason, want := range map[string]string{
		"":                     `container "main" in pod "web" is waiting to start - no logs yet`,
		"ErrImagePull":         `container "main" in pod "web" is waiting to start: image can't be pulled`,
		"ImagePullBackOff":     `container "main" in pod "web" is waiting to start: trying and failing to pull image`,
		"CreateContainerError": `container "main" in pod "web" is waiting to start: CreateContainerError`,
		"PodInitializing":      `container "main" in pod "web" is waiting to start: PodInitializing`,
	} {
		var waits []v1.ContainerStatus
		if reason != "" {
			waits = []v1.ContainerStatus{{Name: "main", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}}}}
		}
		for kind, status := range map[string]v1.PodStatus{"a regular": {ContainerStatuses: waits}, "an init": {InitContainerStatuses: waits}, "an ephemeral": {EphemeralContainerStatuses: waits}} {
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Status: status}
			if got, err := logged(pod, &cri.Pod{}, "main", false); err == nil || err.Error() != want {
				t.Errorf("%s container: %v, %v, want %s", kind, got, err, want)
			}
			if _, err := logged(pod, &cri.Pod{}, "main", true); err == nil || err.Error() != `previous terminated container "main" in pod "web" not found` {
				t.Errorf("the instance before, of %s container: %v", kind, err)
			}
		}
	}
}

// The parameters of requests for logs are upstream's, with the older name of tailLines.
func TestLogOptions(t *testing.T) {
	for query, want := range map[string]v1.PodLogOptions{
		"":                                {},
		"tailLines=5":                     {TailLines: new(int64(5))},
		"tail=5":                          {TailLines: new(int64(5))},
		"tail=all":                        {},
		"tailLines=0":                     {TailLines: new(int64(0))},
		"follow=1":                        {Follow: true},
		"follow=true&previous=true":       {Follow: true, Previous: true},
		"follow":                          {Follow: true},
		"follow=false":                    {},
		"timestamps=true&limitBytes=1024": {Timestamps: true, LimitBytes: new(int64(1024))},
		"sinceSeconds=60&stream=Stdout":   {SinceSeconds: new(int64(60)), Stream: new(v1.LogStreamStdout)},
		"sinceTime=2026-11-21T07:00:00Z":  {SinceTime: &metav1.Time{Time: time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)}},
	} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := logOptions(values); err != nil || !equality.Semantic.DeepEqual(*got, want) {
			t.Errorf("%q: %+v, %v, want %+v", query, got, err, want)
		}
	}
}
