package cri_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/kubelet/cri/inmemory"
)

// faultyRuntime is a runtime in memory with a clock that a test sets, and whose
// status calls fail with the error that fail returns.
type faultyRuntime struct {
	*inmemory.Runtime
	created map[string]time.Time // creation times by id, in place of the real ones
	fail    func(id string) error
}

func (f *faultyRuntime) PodSandboxStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	if f.fail != nil {
		if err := f.fail(id); err != nil {
			return nil, err
		}
	}
	answer, err := f.Runtime.PodSandboxStatus(ctx, id, verbose)
	if at, ok := f.created[id]; ok && err == nil {
		answer.Status = proto.Clone(answer.GetStatus()).(*runtimeapi.PodSandboxStatus)
		answer.Status.CreatedAt = at.UnixNano()
	}
	return answer, err
}

func (f *faultyRuntime) ContainerStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error) {
	if f.fail != nil {
		if err := f.fail(id); err != nil {
			return nil, err
		}
	}
	answer, err := f.Runtime.ContainerStatus(ctx, id, verbose)
	if at, ok := f.created[id]; ok && err == nil {
		answer.Status = proto.Clone(answer.GetStatus()).(*runtimeapi.ContainerStatus)
		answer.Status.CreatedAt = at.UnixNano()
	}
	return answer, err
}

func testPod() *v1.Pod {
	grace := int64(77)
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "uid", Labels: map[string]string{"app": "web", "io.kubernetes.pod.uid": "forged"}},
		Spec: v1.PodSpec{TerminationGracePeriodSeconds: &grace, Containers: []v1.Container{{
			Name: "main", Image: "app:1", TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: v1.TerminationMessageReadFile,
			Ports:     []v1.ContainerPort{{Name: "http", ContainerPort: 80}},
			Lifecycle: &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"drain"}}}},
		}}},
	}
}

func (f *faultyRuntime) sandbox(t *testing.T, attempt uint32) string {
	t.Helper()
	pod := testPod()
	id, err := f.RunPodSandbox(t.Context(), &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: pod.Name, Namespace: pod.Namespace, Uid: string(pod.UID), Attempt: attempt},
		Labels:   cri.PodLabels(pod),
	}, "")
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func (f *faultyRuntime) container(t *testing.T, sandbox string, restarts int, exited bool) string {
	t.Helper()
	pod := testPod()
	id, err := f.CreateContainer(t.Context(), sandbox, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "main", Attempt: uint32(restarts)}, Image: &runtimeapi.ImageSpec{Image: "app:1"},
		Labels: cri.ContainerLabels(pod, "main"), Annotations: cri.ContainerAnnotations(pod, &pod.Spec.Containers[0], restarts, 0, "hash"),
	}, nil)
	if err == nil {
		err = f.StartContainer(t.Context(), id)
	}
	if err != nil {
		t.Fatal(err)
	}
	if exited {
		f.Exit(id, 1)
	}
	return id
}

// If the clock is set back, the instance that was created last is still the
// newest one. Otherwise the kubelet would use a dead container as the current
// one, and try to start one that already runs.
func TestNewestIgnoresTheClock(t *testing.T) {
	f := &faultyRuntime{Runtime: inmemory.New(), created: map[string]time.Time{}}
	now := time.Unix(1_800_000_000, 0)
	var sandbox, current string
	for attempt := range 3 { // the clock goes back by an hour each time
		if sandbox != "" {
			if err := f.StopPodSandbox(t.Context(), sandbox); err != nil {
				t.Fatal(err)
			}
		}
		sandbox = f.sandbox(t, uint32(attempt))
		current = f.container(t, sandbox, attempt, false)
		f.created[sandbox], f.created[current] = now, now
		now = now.Add(-time.Hour)
	}
	pod, err := cri.Observe(t.Context(), f, "uid")
	if err != nil {
		t.Fatal(err)
	}
	if s := pod.ReadySandbox(); s == nil || s.ID != sandbox {
		t.Errorf("the ready sandbox is %+v, want %s", s, sandbox)
	}
	newest := pod.Find("main")
	if newest.ID != current || newest.State != cri.Running {
		t.Fatalf("the newest container is %s with restart count %d, want %s", newest.ID, newest.RestartCount, current)
	}
	if previous := pod.Previous(newest); previous == nil || previous.RestartCount != 1 {
		t.Errorf("the container before it is %+v", previous)
	}
	if dead := pod.Dead("main"); dead == nil || dead.RestartCount != 1 {
		t.Errorf("the newest dead container is %+v", dead)
	}
	if oldest := pod.Containers[2]; pod.Previous(oldest) != nil {
		t.Errorf("before the first container there was %+v", pod.Previous(oldest))
	}
}

// Containers may be removed between the listing and the reading of their
// statuses.
func TestObserveWhileContainersAreRemoved(t *testing.T) {
	f := &faultyRuntime{Runtime: inmemory.New()}
	dead := f.sandbox(t, 0)
	gone := f.container(t, dead, 0, true)
	sandbox := f.sandbox(t, 1)
	stays := f.container(t, sandbox, 1, false)
	f.fail = func(id string) error {
		if id == dead || id == gone {
			return fmt.Errorf("inspect: %w", grpcstatus.Errorf(codes.NotFound, "no such id"))
		}
		return nil
	}
	pod, err := cri.Observe(t.Context(), f, "uid")
	if err != nil || len(pod.Sandboxes) != 1 || len(pod.Containers) != 1 || pod.FindID(stays) == nil || pod.FindID(gone) != nil {
		t.Errorf("%+v, %v; want the rest", pod, err)
	}
	if pod.Name != "web" || pod.Namespace != "default" {
		t.Errorf("the pod is %s/%s", pod.Namespace, pod.Name)
	}
	away := errors.New("connection refused")
	f.fail = func(id string) error {
		if id == stays {
			return away
		}
		return nil
	}
	if pod, err := cri.Observe(t.Context(), f, "uid"); !errors.Is(err, away) || pod != nil {
		t.Errorf("%+v, %v; a runtime that does not answer must not look like a pod without containers", pod, err)
	}
}

func TestListIgnoresForeignSandboxes(t *testing.T) {
	f := &faultyRuntime{Runtime: inmemory.New()}
	f.container(t, f.sandbox(t, 0), 0, false)
	foreign, err := f.RunPodSandbox(t.Context(), &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "foreign"}}, "")
	if err != nil {
		t.Fatal(err)
	}
	pods, err := cri.List(t.Context(), f)
	if err != nil || len(pods) != 1 || pods["uid"] == nil || !pods["uid"].Running() || len(pods["uid"].States) != 2 {
		t.Fatalf("%+v, %v", pods, err)
	}
	if _, ok := pods["uid"].States[foreign]; ok {
		t.Error("a sandbox without a pod's label counts as the pod's")
	}
}

// A pod's own labels cannot make its sandbox another pod's.
func TestLabelsCannotBeForged(t *testing.T) {
	if got := cri.PodLabels(testPod())["io.kubernetes.pod.uid"]; got != "uid" {
		t.Errorf("the sandbox is labeled as of pod %q", got)
	}
}

// A kubelet that no longer has a pod's specification still runs its containers'
// stop hooks and respects their grace periods.
func TestRestoredPod(t *testing.T) {
	f := &faultyRuntime{Runtime: inmemory.New()}
	sandbox := f.sandbox(t, 0)
	f.container(t, sandbox, 0, true)
	f.container(t, sandbox, 1, false)
	observed, err := cri.Observe(t.Context(), f, "uid")
	if err != nil {
		t.Fatal(err)
	}
	got, want := cri.RestoredPod(observed), testPod()
	if len(got.Spec.Containers) != 1 || got.UID != want.UID || got.Name != want.Name || got.Namespace != want.Namespace {
		t.Fatalf("restored %+v", got)
	}
	c := got.Spec.Containers[0]
	if c.Lifecycle == nil || !slices.Equal(c.Lifecycle.PreStop.Exec.Command, []string{"drain"}) || c.TerminationMessagePath != "/dev/termination-log" || c.Ports[0].Name != "http" {
		t.Errorf("restored container %+v", c)
	}
	if g := got.Spec.TerminationGracePeriodSeconds; g == nil || *g != 77 || got.DeletionGracePeriodSeconds != nil {
		t.Errorf("restored grace periods %v, %v", g, got.DeletionGracePeriodSeconds)
	}
	for _, broken := range []map[string]string{nil, {"io.kubernetes.container.preStopHandler": "{", "io.kubernetes.container.ports": "[", "io.kubernetes.pod.terminationGracePeriod": "soon"}} {
		pod := cri.RestoredPod(&cri.Pod{Containers: []*cri.Container{{Name: "main", Annotations: broken}}})
		if pod.Spec.Containers[0].Lifecycle != nil || pod.Spec.TerminationGracePeriodSeconds != nil {
			t.Errorf("annotations %v make %+v", broken, pod.Spec)
		}
	}
}

func TestClientCountsCalls(t *testing.T) {
	registry := prometheus.NewRegistry()
	runtime := inmemory.New()
	c := cri.NewClient(runtime, runtime.Images(), registry, nil)
	if c.Name() != "" || c.Version() != "" {
		t.Errorf("before Connect the runtime is %s %s", c.Name(), c.Version())
	}
	if err := c.Connect(t.Context(), &kubeletconfig.KubeletConfiguration{}, nil); err != nil {
		t.Fatal(err)
	}
	if c.Name() != "simulated" || c.Version() != "1.0.0" {
		t.Errorf("the runtime is %s %s", c.Name(), c.Version())
	}
	if err := c.Runtime().StartContainer(t.Context(), "missing"); !cri.IsNotFound(err) {
		t.Errorf("starting a missing container: %v", err)
	}
	if _, err := c.Images().ListImages(t.Context(), nil); err != nil {
		t.Error(err)
	}
	want := `
# HELP kubelet_runtime_operations_errors_total [ALPHA] Cumulative number of runtime operation errors by operation type.
# TYPE kubelet_runtime_operations_errors_total counter
kubelet_runtime_operations_errors_total{operation_type="start_container"} 1
# HELP kubelet_runtime_operations_total [ALPHA] Cumulative number of runtime operations by operation type.
# TYPE kubelet_runtime_operations_total counter
kubelet_runtime_operations_total{operation_type="list_images"} 1
kubelet_runtime_operations_total{operation_type="start_container"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "kubelet_runtime_operations_total", "kubelet_runtime_operations_errors_total"); err != nil {
		t.Error(err)
	}
}

// Dial ends with its context, and names the runtime that it could not reach.
func TestDialEndsWithItsContext(t *testing.T) {
	if _, _, err := cri.Dial(t.Context(), "", "", time.Second, nil); err == nil || !strings.Contains(err.Error(), "--container-runtime-endpoint") {
		t.Errorf("without an endpoint: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	endpoint := "unix://" + t.TempDir() + "/missing.sock"
	if _, _, err := cri.Dial(ctx, endpoint, "", time.Second, nil); err == nil || !strings.Contains(err.Error(), endpoint) {
		t.Errorf("without a runtime: %v", err)
	}
}

// heldRuntime refuses to remove containers that have a task.
type heldRuntime struct {
	*inmemory.Runtime
	task map[string]bool
}

func (h *heldRuntime) RemoveContainer(ctx context.Context, id string) error {
	if h.task[id] {
		return grpcstatus.Error(codes.FailedPrecondition, "cannot delete running task")
	}
	return h.Runtime.RemoveContainer(ctx, id)
}

func TestRemoveContainerDeletesItsTask(t *testing.T) {
	runtime := &heldRuntime{inmemory.New(), map[string]bool{"a": true, "b": true}}
	c := cri.NewClient(runtime, runtime.Images(), prometheus.NewRegistry(), func(_ context.Context, id string) error {
		if id == "b" {
			return errors.New("no answer")
		}
		delete(runtime.task, id)
		return nil
	})
	if err := c.Runtime().RemoveContainer(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	err := c.Runtime().RemoveContainer(t.Context(), "b")
	if err == nil || !strings.Contains(err.Error(), "running task") || !strings.Contains(err.Error(), "no answer") {
		t.Errorf("without an answer: %v, want both errors", err)
	}
	if err := cri.NewClient(runtime, runtime.Images(), prometheus.NewRegistry(), nil).Runtime().RemoveContainer(t.Context(), "b"); grpcstatus.Code(err) != codes.FailedPrecondition {
		t.Errorf("a runtime without another way: %v", err)
	}
}
