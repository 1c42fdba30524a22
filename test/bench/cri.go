package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/host"
	"github.com/coracle-io/coracle/internal/supervise"
)

// measureRuntime measures what containerd takes for a pod of one container
// without a kubelet.
func measureRuntime(ctx context.Context, _ *settings, c *cluster, t *table) (err error) {
	conn, err := grpc.NewClient("unix://"+filepath.Join(host.RunDir(c.name), "containerd", "containerd.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	runtime := runtimeapi.NewRuntimeServiceClient(conn)
	var started, removed []time.Duration
	for i := range podsOneByOne {
		began := time.Now()
		sandbox, container, err := startBare(ctx, runtime, fmt.Sprintf("bare-%d", i), c.dir)
		if err != nil {
			return err
		}
		started = append(started, time.Since(began))
		began = time.Now()
		if err := removeBare(ctx, runtime, sandbox, container); err != nil {
			return err
		}
		removed = append(removed, time.Since(began))
	}
	t.add("containerd alone: sandbox and container started, p50", "", "%.0f ms", milliseconds(sorted(started).quantile(0.5)))
	t.add("containerd alone: stopped and removed, p50", "", "%.0f ms", milliseconds(sorted(removed).quantile(0.5)))
	for _, n := range []int{podsAtOnce, podsOnNode} {
		if err := measureRuntimeAtOnce(ctx, runtime, n, c.dir, t); err != nil {
			return err
		}
	}
	return nil
}

// measureRuntimeAtOnce measures what containerd takes for n pods at once, which
// no kubelet can be faster than.
func measureRuntimeAtOnce(ctx context.Context, runtime runtimeapi.RuntimeServiceClient, n int, dir string, t *table) error {
	sandboxes, containers := make([]string, n), make([]string, n)
	atOnce := func(what string, do func(i int) error) error {
		began := time.Now()
		if err := errors.Join(supervise.ForEach(n, do)...); err != nil {
			return err
		}
		t.add(fmt.Sprintf("containerd alone: %d at once, %s", n, what), "", "%.2f s", time.Since(began).Seconds())
		return nil
	}
	if err := atOnce("started", func(i int) (err error) {
		sandboxes[i], containers[i], err = startBare(ctx, runtime, fmt.Sprintf("bare-%d-%d", n, i), dir)
		return err
	}); err != nil {
		return err
	}
	return atOnce("stopped and removed", func(i int) error { return removeBare(ctx, runtime, sandboxes[i], containers[i]) })
}

// startBare starts a sandbox with a container as the kubelet does.
func startBare(ctx context.Context, runtime runtimeapi.RuntimeServiceClient, name, dir string) (sandbox, container string, err error) {
	labels := map[string]string{"io.kubernetes.pod.name": name, "io.kubernetes.pod.namespace": "bench", "io.kubernetes.pod.uid": name}
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "bench", Uid: name}, Labels: labels,
		LogDirectory: filepath.Join(dir, name), Hostname: name, Linux: &runtimeapi.LinuxPodSandboxConfig{},
	}
	pod, err := runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
	if err != nil {
		return "", "", err
	}
	created, err := runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: pod.GetPodSandboxId(), SandboxConfig: config,
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "main"}, Image: &runtimeapi.ImageSpec{Image: benchImage}, Labels: labels,
			LogPath: "main.log", Linux: &runtimeapi.LinuxContainerConfig{},
		},
	})
	if err != nil {
		return "", "", err
	}
	_, err = runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: created.GetContainerId()})
	return pod.GetPodSandboxId(), created.GetContainerId(), err
}

func removeBare(ctx context.Context, runtime runtimeapi.RuntimeServiceClient, sandbox, container string) error {
	if _, err := runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: container, Timeout: 30}); err != nil {
		return err
	}
	if _, err := runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: sandbox}); err != nil {
		return err
	}
	_, err := runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sandbox})
	return err
}
