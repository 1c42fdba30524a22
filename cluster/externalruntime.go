package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelettypes "k8s.io/kubelet/pkg/types"

	"github.com/coracle-io/coracle/internal/containerd"
	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/supervise"
)

// externalTimeout bounds requests to an external runtime.
const externalTimeout = 10 * time.Second

// purgeExternal removes this cluster's pods from a runtime that is not the
// cluster's: those that the kubelet has files for. It leaves everything else in
// the runtime, including images. It kills the processes of pods that the
// runtime did not end, by their cgroup.
func purgeExternal(ctx context.Context, o *settings) error {
	known, err := podsOnDisk(rootOfKubelet(o))
	if err != nil {
		return err
	}
	var removed error
	if len(known) > 0 {
		removed = removePods(ctx, o.Node.ContainerRuntimeEndpoint, known)
	}
	if err := containerd.RemoveCgroups(ctx, o.Node.CgroupRoot); err != nil {
		return err
	}
	if removed != nil {
		o.Progress(fmt.Sprintf("the pods' processes have ended, but the runtime still lists the pods: %v", removed))
	}
	return nil
}

// podsOnDisk returns the UIDs of the pods that a kubelet has files for.
func podsOnDisk(kubeletRoot string) (map[string]bool, error) {
	entries, err := os.ReadDir(filepath.Join(kubeletRoot, "pods"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	known := make(map[string]bool, len(entries))
	for _, e := range entries {
		known[e.Name()] = true
	}
	return known, nil
}

// removePods stops and removes the sandboxes of pods, with their containers.
func removePods(ctx context.Context, endpoint string, uids map[string]bool) error {
	if err := containerd.CheckEndpoint(endpoint); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, externalTimeout)
	defer cancel()
	runtime, _, err := cri.Dial(ctx, endpoint, "", externalTimeout, nil)
	if err != nil {
		return err
	}
	sandboxes, err := runtime.ListPodSandbox(ctx, nil)
	if err != nil {
		return fmt.Errorf("list the pods of the runtime at %s: %w", endpoint, err)
	}
	g, ctx := supervise.WithContext(ctx)
	for _, s := range sandboxes {
		if uids[s.GetLabels()[kubelettypes.KubernetesPodUIDLabel]] {
			g.Go(func() error { return removeSandbox(ctx, runtime, s) })
		}
	}
	return g.Wait()
}

type sandboxes interface {
	StopPodSandbox(ctx context.Context, id string) error
	RemovePodSandbox(ctx context.Context, id string) error
}

func removeSandbox(ctx context.Context, runtime sandboxes, s *runtimeapi.PodSandbox) error {
	err := runtime.StopPodSandbox(ctx, s.GetId())
	if err == nil {
		err = runtime.RemovePodSandbox(ctx, s.GetId())
	}
	if err != nil {
		return fmt.Errorf("remove pod %s/%s: %w", s.GetMetadata().GetNamespace(), s.GetMetadata().GetName(), err)
	}
	return nil
}
