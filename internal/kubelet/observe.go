package kubelet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/logs"
	"github.com/coracle-io/coracle/internal/kubelet/plan"
	"github.com/coracle-io/coracle/internal/kubelet/probe"
	"github.com/coracle-io/coracle/internal/kubelet/status"
	podutil "github.com/coracle-io/coracle/internal/pod"
)

const (
	livenessProbe  = probe.Liveness
	readinessProbe = probe.Readiness
	startupProbe   = probe.Startup
)

// The bounds of a termination message, and of one taken from the log.
const (
	maxMessage    = 4096
	maxLogMessage = 2048
	maxLogLines   = 80
	// maxLogTail is what is read of a log for a message: a whole line of the
	// runtime's, which it cuts at 16 KiB, and what comes before its text.
	maxLogTail = 32 << 10
)

// reference names a pod in events.
func reference(pod *v1.Pod) *v1.ObjectReference {
	ref := &v1.ObjectReference{
		Kind: "Pod", APIVersion: "v1", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
	}
	return ref
}

// containerReference names one container of a pod in events.
func containerReference(pod *v1.Pod, container string) *v1.ObjectReference {
	ref := reference(pod)
	list := "containers"
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == container {
			list = "initContainers"
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if pod.Spec.EphemeralContainers[i].Name == container {
			list = "ephemeralContainers"
		}
	}
	ref.FieldPath = "spec." + list + "{" + container + "}"
	return ref
}

// observe asks the runtime about the pod and reads the termination messages
// of its ended containers.
func (k *Kubelet) observe(ctx context.Context, pod *v1.Pod) (*cri.Pod, error) {
	observed, err := cri.Observe(ctx, k.runtime, pod.UID)
	if err != nil {
		return nil, err
	}
	if observed.Name == "" {
		observed.Name, observed.Namespace = pod.Name, pod.Namespace
	}
	for _, c := range observed.Containers {
		if c.State == cri.Exited {
			k.readMessage(pod, c)
		}
	}
	plan.Discard(pod, observed)
	return observed, nil
}

// readMessage adds to what the runtime says about a container's end what the
// container wrote itself.
func (k *Kubelet) readMessage(pod *v1.Pod, c *cri.Container) {
	declared := podutil.Container(&pod.Spec, c.Name)
	if declared == nil {
		return
	}
	message := k.writtenMessage(pod, c, declared.TerminationMessagePath)
	if message == "" && declared.TerminationMessagePolicy == v1.TerminationMessageFallbackToLogsOnError && c.ExitCode != 0 {
		root, rest := logs.Split(c.LogPath)
		if raw, err := k.config.Files.TailBeneath(root, rest, maxLogTail); err == nil {
			message = lastLines(logs.Text(raw))
		}
	}
	switch {
	case message == "":
	case c.Message == "":
		c.Message = message
	default:
		c.Message += ": " + message
	}
}

// writtenMessage is the end of the termination message. The file is the
// container's, or what a volume has in its place: it counts only if it is
// a regular file in the pod's own folder.
func (k *Kubelet) writtenMessage(pod *v1.Pod, c *cri.Container, path string) string {
	dir := k.volumes.PodDir(pod.UID)
	for _, m := range c.Mounts {
		if path == "" || m.GetContainerPath() != path {
			continue
		}
		rest, ok := files.Beneath(dir, m.GetHostPath())
		if !ok {
			return ""
		}
		raw, err := k.config.Files.TailBeneath(dir, rest, maxMessage)
		switch {
		case err == nil:
			return string(raw)
		case errors.Is(err, fs.ErrNotExist):
			return ""
		}
		return fmt.Sprintf("Error on reading termination log %s: %v", m.GetHostPath(), err)
	}
	return ""
}

// lastLines are the last lines of a log that a termination message may have.
func lastLines(text []byte) string {
	lines := bytes.SplitAfter(text, []byte("\n"))
	if last := len(lines) - 1; len(lines[last]) == 0 {
		lines = lines[:last]
	}
	lines = lines[max(len(lines)-maxLogLines, 0):]
	out := bytes.Join(lines, nil)
	return string(out[max(len(out)-maxLogMessage, 0):])
}

func (w *worker) result(containerID string, kind probe.Kind) plan.Result {
	return w.k.prober.Result(w.uid, containerID, kind)
}

// probes makes the prober probe the containers that run now.
func (w *worker) probes(pod *v1.Pod, observed *cri.Pod) {
	ip := w.podIP(pod, observed)
	if ip == "" {
		return
	}
	var running []probe.Instance
	for _, c := range observed.Containers {
		declared := podutil.Container(&pod.Spec, c.Name)
		if c.State == cri.Running && declared != nil {
			running = append(running, probe.Instance{Container: declared, ID: c.ID, StartedAt: c.StartedAt})
		}
	}
	previous := w.previous(pod)
	w.k.prober.Sync(pod, ip, running, func(name string) (started, ready bool) {
		for _, list := range [][]v1.ContainerStatus{previous.ContainerStatuses, previous.InitContainerStatuses} {
			for i := range list {
				if list[i].Name == name && w.adopted(observed, &list[i]) {
					return list[i].Started != nil && *list[i].Started, list[i].Ready
				}
			}
		}
		return false, false
	})
}

// adopted says whether a status is of a container that a kubelet before this
// one started and that still is there.
func (w *worker) adopted(observed *cri.Pod, st *v1.ContainerStatus) bool {
	return slices.ContainsFunc(observed.Containers, func(c *cri.Container) bool {
		return c.Name == st.Name && strings.HasSuffix(st.ContainerID, "://"+c.ID) && c.StartedAt.Before(w.k.started)
	})
}

func (w *worker) podIP(pod *v1.Pod, observed *cri.Pod) string {
	if pod.Spec.HostNetwork {
		return w.k.facts.IPs[0]
	}
	if s := observed.ReadySandbox(); s != nil && len(s.IPs) > 0 {
		return s.IPs[0]
	}
	return ""
}

// shown is the object whose status the API server keeps for the pod: its
// mirror for a static pod. Nil if there is none.
func (w *worker) shown(pod *v1.Pod) *v1.Pod {
	if w.orphan || w.k.writer == nil {
		return nil
	}
	if w.static {
		return w.k.mirrorOf(pod)
	}
	return pod
}

// previous is the last status known of the pod.
func (w *worker) previous(pod *v1.Pod) v1.PodStatus {
	shown := w.shown(pod)
	if shown == nil {
		return pod.Status
	}
	if last, ok := w.k.writer.Last(shown.UID); ok {
		return status.WithForeign(last, shown.Status)
	}
	return shown.Status
}

// report works out the pod's status and has it written, unless showRunning
// wants to wait.
func (w *worker) report(ctx context.Context, pod *v1.Pod, observed *cri.Pod, ended bool) v1.PodStatus {
	w.mu.Lock()
	failed, target, removed := w.failed, w.target, w.removed
	w.mu.Unlock()
	if !ended {
		failed = nil
	}
	conditions := append([]v1.PodCondition{}, w.resizing...)
	if target != nil {
		conditions = append(conditions, *target)
	}
	now, previous := time.Now(), w.previous(pod)
	st := status.Generate(status.Input{
		Pod: pod, Previous: previous, Observed: observed, Now: now, HostIPs: w.k.facts.IPs, Runtime: w.k.runtimeName,
		Waiting: w.waiting, Failed: failed, Rejected: w.rejected, Ended: ended, Conditions: conditions,
		Ready: func(c *v1.Container, running *cri.Container) bool {
			return c.ReadinessProbe == nil || w.result(running.ID, readinessProbe) == plan.Success
		},
		Started: func(c *v1.Container, running *cri.Container) bool {
			return c.StartupProbe == nil || w.result(running.ID, startupProbe) == plan.Success
		},
	})
	if w.static {
		w.mu.Lock()
		w.pod.Status = st
		w.mu.Unlock()
	}
	if w.showFrom = showRunning(pod, previous.Phase, st.Phase, observed, now); !w.showFrom.IsZero() {
		return st
	}
	if before := w.previous(pod); before.Phase != v1.PodRunning && st.Phase == v1.PodRunning && st.StartTime != nil {
		w.k.metrics.podStart.Observe(time.Since(st.StartTime.Time).Seconds())
	}
	if shown := w.shown(pod); shown != nil && !removed {
		remove := ended && pod.DeletionTimestamp != nil && !w.static
		w.k.writer.Set(ctx, shown, st, remove)
	}
	return st
}
