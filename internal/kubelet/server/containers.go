package server

import (
	"context"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/kubelet/logs"
	"github.com/coracle-io/coracle/internal/kubelet/spec"
	podutil "github.com/coracle-io/coracle/internal/pod"
	"github.com/coracle-io/coracle/internal/timespan"
)

// running are the pods that the runtime has, whoever knows of them.
func (s *Server) running(ctx context.Context) ([]*v1.Pod, error) {
	found, err := cri.List(ctx, s.config.Runtime)
	if err != nil {
		return nil, err
	}
	var out []*v1.Pod
	for uid, summary := range found {
		if !summary.Running() {
			continue
		}
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: summary.Name, Namespace: summary.Namespace, UID: uid}}
		if observed, err := cri.Observe(ctx, s.config.Runtime, uid); err == nil {
			for _, c := range observed.Running() {
				pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: c.Name, Image: c.Image})
			}
		}
		out = append(out, pod)
	}
	return out, nil
}

// observe asks the runtime anew, so that a container that has just started is found.
func (s *Server) observe(pod *v1.Pod) (*cri.Pod, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return cri.Observe(ctx, s.config.Runtime, pod.UID)
}

// containerID is the id of a container that runs in the pod.
func (s *Server) containerID(pod *v1.Pod, container string) (string, error) {
	observed, err := s.observe(pod)
	if err != nil {
		return "", err
	}
	c := observed.Find(container)
	if c == nil || c.State != cri.Running {
		return "", fmt.Errorf("container not found (%q)", container)
	}
	return c.ID, nil
}

// sandboxID is the id of the pod's sandbox.
func (s *Server) sandboxID(pod *v1.Pod) (string, error) {
	observed, err := s.observe(pod)
	if err != nil {
		return "", err
	}
	sandbox := observed.ReadySandbox()
	if sandbox == nil {
		return "", fmt.Errorf("failed to find sandbox for pod %q", spec.PodName(pod))
	}
	return sandbox.ID, nil
}

// readLogs writes the log of a container, the last one by that name or the one
// before it.
func (s *Server) readLogs(ctx context.Context, pod *v1.Pod, container string, o *v1.PodLogOptions, stdout, stderr io.Writer) error {
	if podutil.Container(&pod.Spec, container) == nil {
		return fmt.Errorf("container %q in pod %q is not available: %w", container, pod.Name, errNotFound)
	}
	observed, err := s.observe(pod)
	if err != nil {
		return err
	}
	c := observed.Find(container)
	if c != nil && o.Previous {
		if c = observed.Previous(c); c == nil {
			return fmt.Errorf("previous terminated container %q in pod %q not found", container, pod.Name)
		}
	}
	if c == nil || c.State == cri.Created {
		for _, list := range [][]v1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses} {
			for _, st := range list {
				if st.Name == container && st.State.Waiting != nil {
					return fmt.Errorf("container %q in pod %q is waiting to start: %v", container, pod.Name, waitingText(st.State.Waiting))
				}
			}
		}
		return fmt.Errorf("container %q in pod %q is waiting to start - no logs yet", container, pod.Name)
	}
	options := logs.Options{Follow: o.Follow, Timestamps: o.Timestamps, Tail: o.TailLines, Limit: o.LimitBytes, Running: func(ctx context.Context) (bool, error) {
		return s.runs(ctx, c.ID)
	}}
	if o.SinceSeconds != nil {
		options.Since = time.Now().Add(-timespan.Seconds(*o.SinceSeconds))
	}
	if o.SinceTime != nil {
		options.Since = o.SinceTime.Time
	}
	return logs.Read(ctx, c.LogPath, options, stdout, stderr)
}

// runs asks the runtime whether a container runs. While the runtime does
// not answer, it is taken to.
func (s *Server) runs(ctx context.Context, id string) (bool, error) {
	answer, err := s.config.Runtime.ContainerStatus(ctx, id, false)
	if grpcstatus.Code(err) == codes.Unavailable {
		return true, nil
	}
	return answer.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING, err
}

func waitingText(w *v1.ContainerStateWaiting) string {
	switch w.Reason {
	case "ErrImagePull":
		return "image can't be pulled"
	case "ImagePullBackOff":
		return "trying and failing to pull image"
	}
	return w.Reason
}
