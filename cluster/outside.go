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
	"github.com/coracle-io/coracle/internal/host"
	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/supervise"
)

// outsidePatience is how long a runtime of others may take to answer.
const outsidePatience = 10 * time.Second

// purgeOutside ends and removes this cluster's pods in a runtime that others
// run: those that the kubelet keeps files for. All else in the runtime, images
// included, is left alone. Processes of pods that the runtime did not end, as
// when it is not running any more, are killed by their cgroup.
func purgeOutside(ctx context.Context, o *settings) error {
	known, err := podsOnDisk(filepath.Join(o.DataDir, "kubelet"))
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
		o.Progress(fmt.Sprintf("the pods' processes are ended, but their records stay in the runtime: %v", removed))
	}
	return nil
}

// podsOnDisk are the uids of the pods that a kubelet keeps files for.
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

// removePods ends and removes the sandboxes of pods, and their containers
// with them.
func removePods(ctx context.Context, endpoint string, uids map[string]bool) error {
	if err := host.RuntimeAnswers(endpoint); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, outsidePatience)
	defer cancel()
	runtime, _, err := cri.Dial(ctx, endpoint, "", outsidePatience)
	if err != nil {
		return err
	}
	sandboxes, err := runtime.ListPodSandbox(ctx, nil)
	if err != nil {
		return fmt.Errorf("list the pods of the runtime at %s: %w", endpoint, err)
	}
	g, ctx := supervise.Together(ctx)
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
