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
	"github.com/coracle-io/coracle/internal/kubelet/status"
	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/timespan"
)

// running returns the pods that run on the runtime, whether or not the kubelet
// knows them.
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

// readTimeout bounds how long a request waits for what the runtime has of a pod. Unlike
// the kubelet's own state, that has containers that have just started.
const readTimeout = 10 * time.Second

// containerID returns the id of a running container of the pod.
func (s *Server) containerID(ctx context.Context, pod *v1.Pod, container string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	observed, err := cri.ObserveContainer(ctx, s.config.Runtime, pod.UID, container)
	if err != nil {
		return "", err
	}
	c := observed.Find(container)
	if c == nil || c.State != cri.Running {
		return "", fmt.Errorf("container not found (%q)", container)
	}
	return c.ID, nil
}

// sandboxID returns the id of the pod's sandbox.
func (s *Server) sandboxID(ctx context.Context, pod *v1.Pod) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	observed, err := cri.ObserveSandboxes(ctx, s.config.Runtime, pod.UID)
	if err != nil {
		return "", err
	}
	sandbox := observed.ReadySandbox()
	if sandbox == nil {
		return "", fmt.Errorf("failed to find sandbox for pod %q", spec.PodName(pod))
	}
	return sandbox.ID, nil
}

// readLogs writes the log of an instance of a container.
func (s *Server) readLogs(ctx context.Context, pod *v1.Pod, container string, o *v1.PodLogOptions, stdout, stderr io.Writer) error {
	if podquery.Container(&pod.Spec, container) == nil && !status.IsReduced(pod) {
		return fmt.Errorf("container %q in pod %q is not available: %w", container, pod.Name, errNotFound)
	}
	c, err := s.instance(ctx, pod, container, o.Previous)
	if err != nil {
		return err
	}
	options := logs.Options{Follow: o.Follow, Timestamps: o.Timestamps, Tail: o.TailLines, Limit: o.LimitBytes, Watches: &s.watches, Running: func(ctx context.Context) (bool, error) {
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

// instance reads from the runtime which instance of a container is logged.
func (s *Server) instance(ctx context.Context, pod *v1.Pod, container string, previous bool) (*cri.Container, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	observed, err := cri.ObserveContainer(ctx, s.config.Runtime, pod.UID, container)
	if err != nil {
		return nil, err
	}
	return logged(pod, observed, container, previous)
}

// logged returns the instance of a container whose log is read: the newest that
// was started, or with previous the one that the status of the pod shows as the
// last that has terminated. That is the newest one while the container waits for
// its restart.
func logged(pod *v1.Pod, observed *cri.Pod, container string, previous bool) (*cri.Container, error) {
	c, waits := observed.Find(container), waiting(pod, container)
	switch {
	case previous:
		if c != nil && (c.State != cri.Exited || waits == nil) {
			c = observed.Previous(c)
		}
		if c == nil {
			return nil, fmt.Errorf("previous terminated container %q in pod %q not found", container, pod.Name)
		}
		return c, nil
	case c != nil && c.State != cri.Created:
		return c, nil
	case observed.Dead(container) != nil:
		return observed.Dead(container), nil
	case waits != nil:
		return nil, fmt.Errorf("container %q in pod %q is waiting to start: %v", container, pod.Name, waitingText(waits))
	}
	return nil, fmt.Errorf("container %q in pod %q is waiting to start - no logs yet", container, pod.Name)
}

// waiting returns why a container of the pod waits, nil if it does not.
func waiting(pod *v1.Pod, container string) *v1.ContainerStateWaiting {
	for _, list := range [][]v1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses} {
		for i := range list {
			if list[i].Name == container {
				return list[i].State.Waiting
			}
		}
	}
	return nil
}

// runs reports whether a container runs. It returns true while the runtime is
// unavailable.
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
