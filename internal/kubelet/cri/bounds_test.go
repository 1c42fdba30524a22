package cri_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	utilexec "k8s.io/utils/exec"

	"github.com/coracle-io/coracle/internal/kubelet/cri"
)

// writer is a runtime whose commands write as much as their names say.
type writer struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer
}

func (writer) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "writer", RuntimeVersion: "1", RuntimeApiVersion: "v1"}, nil
}

func (writer) ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error) {
	return &runtimeapi.ImageFsInfoResponse{}, nil
}

func (writer) ExecSync(_ context.Context, r *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	answer := &runtimeapi.ExecSyncResponse{Stdout: []byte("out "), Stderr: []byte("err")}
	switch r.GetCmd()[0] {
	case "fail":
		answer.ExitCode = 3
	case "long":
		answer.Stdout = bytes.Repeat([]byte("x"), 8<<20)
	}
	return answer, nil
}

// lists returns so many containers and sandboxes that a list has 30 MB.
func lists() (containers []*runtimeapi.Container, sandboxes []*runtimeapi.PodSandbox) {
	labels := map[string]string{"label": strings.Repeat("x", 10_000)}
	for range 3000 {
		containers = append(containers, &runtimeapi.Container{Labels: labels})
		sandboxes = append(sandboxes, &runtimeapi.PodSandbox{Labels: labels})
	}
	return containers, sandboxes
}

func (writer) ListContainers(context.Context, *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	containers, _ := lists()
	return &runtimeapi.ListContainersResponse{Containers: containers}, nil
}

func (writer) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	_, sandboxes := lists()
	return &runtimeapi.ListPodSandboxResponse{Items: sandboxes}, nil
}

func (writer) StreamContainers(_ *runtimeapi.StreamContainersRequest, s grpc.ServerStreamingServer[runtimeapi.StreamContainersResponse]) error {
	containers, _ := lists()
	for part := range slices.Chunk(containers, 1000) {
		if err := s.Send(&runtimeapi.StreamContainersResponse{Containers: part}); err != nil {
			return err
		}
	}
	return nil
}

func (writer) StreamPodSandboxes(_ *runtimeapi.StreamPodSandboxesRequest, s grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxesResponse]) error {
	_, sandboxes := lists()
	for part := range slices.Chunk(sandboxes, 1000) {
		if err := s.Send(&runtimeapi.StreamPodSandboxesResponse{PodSandboxes: part}); err != nil {
			return err
		}
	}
	return nil
}

// connect returns a client of a writer.
func connect(t *testing.T) *cri.Client { return connectTraced(t, nil) }

// connectTraced returns a client of a writer whose calls are spans.
func connectTraced(t *testing.T, traces trace.TracerProvider) *cri.Client {
	t.Helper()
	endpoint := filepath.Join(t.TempDir(), "cri.sock")
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", endpoint)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, writer{})
	runtimeapi.RegisterImageServiceServer(server, writer{})
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	c := cri.NewClient(nil, nil, prometheus.NewRegistry(), nil)
	if err := c.Connect(t.Context(), &kubeletconfig.KubeletConfiguration{
		ContainerRuntimeEndpoint: "unix://" + endpoint, RuntimeRequestTimeout: metav1.Duration{Duration: time.Minute},
	}, traces); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.WithoutCancel(t.Context())) })
	return c
}

// Lists are not too long for the kubelet because of what pods have in them.
func TestLongLists(t *testing.T) {
	c := connect(t)
	containers, sandboxes := lists()
	if got, err := c.Runtime().ListContainers(t.Context(), nil); err != nil || len(got) != len(containers) {
		t.Errorf("%d containers are listed, %v", len(got), err)
	}
	if got, err := c.Runtime().ListPodSandbox(t.Context(), nil); err != nil || len(got) != len(sandboxes) {
		t.Errorf("%d sandboxes are listed, %v", len(got), err)
	}
}

// The runtime gets the short part of a pod's metadata.
func TestMetadataForTheRuntimeIsBounded(t *testing.T) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "uid", Labels: map[string]string{}, Annotations: map[string]string{
		"bandwidth": "10M", "kubectl.kubernetes.io/last-applied-configuration": strings.Repeat("x", 100_000),
	}}}
	for i := range 10_000 {
		pod.Labels[fmt.Sprint("label", i)], pod.Annotations[fmt.Sprint("e", i)] = "value", "value"
	}
	long := strings.Repeat("x", 1<<20)
	c := &v1.Container{Name: "main", TerminationMessagePath: long, Lifecycle: &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{long}}}}}
	for i := range 1000 {
		c.Ports = append(c.Ports, v1.ContainerPort{ContainerPort: int32(i + 1)})
	}
	size := func(m map[string]string) (n int) {
		for k, v := range m {
			n += len(k) + len(v)
		}
		return n
	}
	labels, annotations := cri.PodLabels(pod), cri.SandboxAnnotations(pod, "/var/lib/kubelet")
	if labels["io.kubernetes.pod.uid"] != "uid" || annotations["bandwidth"] != "10M" || annotations["coracle.io/kubelet.root"] != "/var/lib/kubelet" {
		t.Errorf("the identity or a short annotation is missing in %.200v, %.200v", labels, annotations)
	}
	container := cri.ContainerAnnotations(pod, c, 3, 0, "hash")
	if n, m, k := size(labels), size(annotations), size(container); n > 20<<10 || m > 40<<10 || k > 4<<10 || container["io.kubernetes.container.hash"] != "hash" {
		t.Errorf("%d bytes of labels, %d of annotations, %d of a container's", n, m, k)
	}
	c.Lifecycle.PreStop.Exec.Command, c.Ports, c.TerminationMessagePath = []string{"sleep", "5"}, c.Ports[:1], "/dev/termination-log"
	if got := cri.ContainerAnnotations(pod, c, 3, 0, "hash"); len(got) != len(container)+3 {
		t.Errorf("short annotations of a container are missing in %v", got)
	}
}

// A command of a pod cannot make the kubelet keep an output of any length.
func TestOutputOfCommandsIsBounded(t *testing.T) {
	c := connect(t)
	if output, err := c.ExecBounded(t.Context(), "id", []string{"succeed"}, time.Minute); err != nil || string(output) != "out err" {
		t.Errorf("%q, %v", output, err)
	}
	var exit utilexec.ExitError
	if output, err := c.ExecBounded(t.Context(), "id", []string{"fail"}, 0); !errors.As(err, &exit) || exit.ExitStatus() != 3 || string(output) != "out err" {
		t.Errorf("a command that fails: %q, %v", output, err)
	}
	if output, err := c.ExecBounded(t.Context(), "id", []string{"long"}, 0); err == nil || errors.As(err, &exit) || !strings.Contains(err.Error(), "wrote more than 1048576 bytes") || len(output) > 0 {
		t.Errorf("a command that writes 8 MiB: %d bytes, %v", len(output), err)
	}
}
