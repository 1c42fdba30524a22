package pod

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
	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Bounds of a termination message, in bytes and lines.
const (
	maxMessage    = 4096
	maxLogMessage = 2048
	maxLogLines   = 80
	// maxLogTail is how much of a log is read for a message: more than a whole
	// line, which runtimes cut at 16 KiB.
	maxLogTail = 32 << 10
)

// Reference returns the reference to a pod that events use.
func Reference(pod *v1.Pod) *v1.ObjectReference {
	ref := &v1.ObjectReference{
		Kind: "Pod", APIVersion: "v1", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
	}
	return ref
}

// ContainerReference returns the reference to a container of a pod that events
// use.
func ContainerReference(pod *v1.Pod, container string) *v1.ObjectReference {
	ref := Reference(pod)
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

// kuberuntime executes the decisions of workers on the container runtime. It is
// upstream's kuberuntime manager.
type kuberuntime struct {
	config     *Config
	metrics    *metrics
	started    time.Time           // when this kubelet started
	background supervise.WaitGroup // clean-up after containers
}

// observe reads the state of the pod from the runtime, and the termination
// messages of its exited containers.
func (k *kuberuntime) observe(ctx context.Context, pod *v1.Pod) (*cri.Pod, error) {
	observed, err := cri.Observe(ctx, k.config.Runtime, pod.UID)
	if err != nil {
		return nil, err
	}
	if observed.Name == "" {
		observed.Name, observed.Namespace = pod.Name, pod.Namespace
	}
	for _, s := range observed.Sandboxes {
		s.IPs = ordered(s.IPs, k.config.Node.IPs.Now())
	}
	for _, c := range observed.Containers {
		if c.State == cri.Exited {
			k.readMessage(pod, c)
		}
	}
	plan.Discard(pod, observed)
	return observed, nil
}

// ordered returns the addresses of a sandbox as the pod's status has them: the first
// one of each family, and first that of the family of the node's primary address.
func ordered(ips, node []string) (out []string) {
	isIPv6 := func(ip string) bool { return strings.Contains(ip, ":") }
	primary := len(node) > 0 && isIPv6(node[0])
	for _, family := range []bool{primary, !primary} {
		if i := slices.IndexFunc(ips, func(ip string) bool { return isIPv6(ip) == family }); i >= 0 {
			out = append(out, ips[i])
		}
	}
	return out
}

// readMessage adds the termination message that the container wrote to the
// runtime's own message.
func (k *kuberuntime) readMessage(pod *v1.Pod, c *cri.Container) {
	declared := podquery.Container(&pod.Spec, c.Name)
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

// writtenMessage returns the end of the termination message file. The container
// or a volume may have replaced the file. It is read only if it is a regular
// file in the directory of the pod.
func (k *kuberuntime) writtenMessage(pod *v1.Pod, c *cri.Container, path string) string {
	dir := k.config.Volumes.PodDir(pod.UID)
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

// lastLines returns the end of a log within the bounds of a termination
// message.
func lastLines(text []byte) string {
	lines := bytes.SplitAfter(text, []byte("\n"))
	if last := len(lines) - 1; len(lines[last]) == 0 {
		lines = lines[:last]
	}
	lines = lines[max(len(lines)-maxLogLines, 0):]
	out := bytes.Join(lines, nil)
	return string(out[max(len(out)-maxLogMessage, 0):])
}

func (w *worker) probeResult(containerID string, kind probe.Kind) plan.Result {
	return w.config.Probes.Result(w.uid, containerID, kind)
}

// probe makes the probe manager probe the containers that run now.
func (w *worker) probe(pod *v1.Pod, observed *cri.Pod) {
	ip := podIP(pod, observed, w.config.Node.IPs.Now())
	if ip == "" {
		return
	}
	var running []probe.Instance
	for _, c := range observed.Containers {
		declared := podquery.Container(&pod.Spec, c.Name)
		if c.State == cri.Running && declared != nil {
			running = append(running, probe.Instance{Container: declared, ID: c.ID, StartedAt: c.StartedAt})
		}
	}
	previous := w.previous(pod)
	w.config.Probes.Sync(pod, ip, running, func(name string) (started, ready bool) {
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

// adopted reports whether a status belongs to the newest instance of its container,
// and an earlier kubelet started that. The API server may not have been told of an
// instance that replaced the one of the status.
func (w *worker) adopted(observed *cri.Pod, st *v1.ContainerStatus) bool {
	c := observed.Find(st.Name)
	return c != nil && strings.HasSuffix(st.ContainerID, "://"+c.ID) && c.StartedAt.Before(w.runtime.started)
}

// podIP returns the primary address of the pod, "" if it has none.
func podIP(pod *v1.Pod, observed *cri.Pod, hostIPs []string) string {
	if pod.Spec.HostNetwork {
		return hostIPs[0]
	}
	if all := ips(observed); len(all) > 0 {
		return all[0]
	}
	return ""
}
