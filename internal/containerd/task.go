package containerd

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/klog/v2"
)

// taskTimeout bounds the deletion of a task.
const taskTimeout = 30 * time.Second

// DeleteTask kills the processes of a container and deletes its task, which is
// what containerd runs of a container. It is no error if there is no task.
//
// The CRI has no call for this: when the start of a container is interrupted,
// because the kubelet or a shim is killed, containerd's CRI may note that the
// container has exited although its task exists. It then neither stops nor
// removes the container.
func (r *Runtime) DeleteTask(ctx context.Context, containerID string) error {
	ctx, cancel := context.WithTimeout(ctx, taskTimeout)
	defer cancel()
	klog.FromContext(ctx).Info("Deleting the task of a container that containerd takes for exited", "containerID", containerID)
	output, err := r.ctr(ctx, "tasks", "delete", "--force", containerID).CombinedOutput()
	if text := strings.TrimSpace(string(output)); err != nil && !strings.Contains(text, "not found") {
		return fmt.Errorf("deleting the task of container %s: %w: %s", containerID, err, text)
	}
	return nil
}
