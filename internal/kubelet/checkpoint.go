package kubelet

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/kubelet/server"
	podutil "github.com/coracle-io/coracle/internal/pod"
)

// Checkpoint implements server.Backend: archives are files of root's alone in
// the kubelet's folder. The runtime needs CRIU for it.
func (b backend) Checkpoint(ctx context.Context, pod *v1.Pod, container string, timeout int64) (string, error) {
	if podutil.Container(&pod.Spec, container) == nil {
		return "", server.ErrNotFound
	}
	id, err := b.ContainerID(pod, container)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(b.k.config.RootDirectory, "checkpoints")
	if err := b.k.config.Files.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	path := filepath.Join(dir, fmt.Sprintf("checkpoint-%s_%s-%s-%s.tar", pod.Name, pod.Namespace, container, time.Now().Format(time.RFC3339)))
	return path, b.k.runtime.CheckpointContainer(ctx, &runtimeapi.CheckpointContainerRequest{ContainerId: id, Location: path, Timeout: timeout})
}
