package why

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/podquery"
)

// containers explains the containers, in the order in which they start. The
// other containers do not start while an init container has not ended.
func (d *diagnosis) containers() {
	for i := range d.pod.Spec.InitContainers {
		c := &d.pod.Spec.InitContainers[i]
		sidecar := podquery.IsSidecar(c)
		s := statusOf(d.pod.Status.InitContainerStatuses, c.Name)
		if s == nil {
			continue
		}
		kind := "init container "
		if sidecar {
			kind = "sidecar container "
		}
		before := len(d.findings)
		d.container(kind+c.Name, c, s, sidecar)
		done := s.State.Terminated != nil && s.State.Terminated.ExitCode == 0 || sidecar && ptr.Deref(s.Started, false)
		if len(d.findings) == before && s.State.Running != nil && !sidecar {
			d.add(Finding{Subject: kind + c.Name, Reason: "Running", Message: fmt.Sprintf("it has been running for %s; the other containers start when it ends", lasting(s.State.Running.StartedAt, d.now)), log: d.logOf(c, false)})
		}
		if !done {
			return
		}
	}
	for i := range d.pod.Spec.Containers {
		c := &d.pod.Spec.Containers[i]
		if s := statusOf(d.pod.Status.ContainerStatuses, c.Name); s != nil {
			d.container("container "+c.Name, c, s, true)
		}
	}
}

func statusOf(statuses []v1.ContainerStatus, name string) *v1.ContainerStatus {
	i := slices.IndexFunc(statuses, func(s v1.ContainerStatus) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &statuses[i]
}

func (d *diagnosis) logOf(c *v1.Container, previous bool) *v1.PodLogOptions {
	return &v1.PodLogOptions{Container: c.Name, Previous: previous}
}

// container explains one container. permanent says that it is to run until the
// pod ends.
func (d *diagnosis) container(subject string, c *v1.Container, s *v1.ContainerStatus, permanent bool) {
	switch state := s.State; {
	case state.Waiting != nil:
		d.waiting(subject, c, s)
	case state.Terminated != nil && (state.Terminated.ExitCode != 0 || permanent && d.pod.Status.Phase == v1.PodRunning):
		f := d.ended(c, s, state.Terminated)
		f.Subject, f.brief, f.log = subject, "", d.logOf(c, false)
		if state.Terminated.ExitCode == 0 && d.pod.Spec.RestartPolicy == v1.RestartPolicyNever {
			f.Message += "; it is not started again, because restartPolicy is Never"
			f.Past = true
		}
		d.add(f)
	case state.Running != nil && permanent && (!s.Ready || !ptr.Deref(s.Started, true)):
		d.probed(subject, c, s)
	case state.Running != nil && s.RestartCount > 0 && s.LastTerminationState.Terminated != nil:
		last := s.LastTerminationState.Terminated
		f := d.ended(c, s, last)
		f.Subject, f.Past, f.log = subject, true, d.logOf(c, true)
		f.Message = fmt.Sprintf("it was restarted %s: the last time %s", restarts(s.RestartCount), f.Message)
		d.add(f)
	}
}

func restarts(n int32) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// waiting explains a container that does not run.
func (d *diagnosis) waiting(subject string, c *v1.Container, s *v1.ContainerStatus) {
	reason, message := s.State.Waiting.Reason, oneLine(s.State.Waiting.Message)
	f := Finding{Subject: subject, Reason: reason, Message: message}
	switch reason {
	case "ContainerCreating", "PodInitializing", "":
		return
	case "CrashLoopBackOff":
		last := s.LastTerminationState.Terminated
		if last == nil {
			break
		}
		f = d.ended(c, s, last)
		f.Subject, f.Reason, f.log = subject, reason, d.logOf(c, true)
		if last.Reason == "OOMKilled" {
			f.Reason = "CrashLoopBackOff, OOMKilled"
		} else if len(f.Remedies) == 0 {
			f.Remedies = []string{fmt.Sprintf("see the whole log: kubectl logs -n %s %s -c %s --previous", d.pod.Namespace, d.pod.Name, c.Name)}
		}
		f.brief = "it ends again and again, " + f.brief
		f.Message = fmt.Sprintf("it ends again and again (restarted %s): %s; the kubelet waits longer each time before the next start", restarts(s.RestartCount), f.Message)
	case "ImagePullBackOff", "ErrImagePull", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed":
		if e := latest(d.events, func(e *v1.Event) bool {
			return e.Reason == "Failed" && strings.HasPrefix(e.Message, "Failed to pull image") && ofContainer(e, c.Name)
		}); e != nil && !strings.Contains(message, ": ") {
			message = oneLine(e.Message)
		}
		f.Message, f.brief = fmt.Sprintf("image %s cannot be pulled: %s", c.Image, message), "image "+c.Image+" cannot be pulled"
		f.Remedies = imageRemedies(d.pod.Spec.NodeName, c, reason, message)
	case "CreateContainerConfigError":
		f.Message = "something that its configuration refers to does not exist: " + message
		f.Remedies = []string{"create what is missing, or mark the reference as optional"}
	case "CreateContainerError", "RunContainerError", "StartError":
		f.Message = "it cannot be started: " + message
		f.Remedies = []string{"see that its command and the mounts exist in image " + c.Image}
	}
	d.add(f)
}

func ofContainer(e *v1.Event, name string) bool {
	return e.InvolvedObject.FieldPath == "" || strings.HasSuffix(e.InvolvedObject.FieldPath, "{"+name+"}")
}

// imageRemedies returns what helps if a node cannot pull the image of a container.
func imageRemedies(node string, c *v1.Container, reason, message string) []string {
	has := func(words ...string) bool {
		lower := strings.ToLower(message)
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(lower, w) })
	}
	local := "load the image on node " + node + " (coracle image load)"
	if c.ImagePullPolicy == v1.PullAlways { // the default for the tag latest
		local = "set imagePullPolicy: IfNotPresent, if node " + node + " has the image or gets it (coracle image load)"
	}
	switch {
	case reason == "ErrImageNeverPull":
		return []string{local, "set imagePullPolicy: IfNotPresent"}
	case reason == "InvalidImageName":
		return []string{"correct the image's name"}
	case has("not found", "manifest unknown", "name unknown", "does not exist"):
		return []string{"correct the name and tag of image " + c.Image, "push the image", local}
	case has("unauthorized", "denied", "authentication", "forbidden", "401", "403"):
		return []string{"give the pod imagePullSecrets for the image's registry", "see that the image exists", local}
	case has("x509", "certificate"):
		return []string{"let the container runtime of node " + node + " trust the registry's certificate", local}
	case has("no such host", "dial tcp", "i/o timeout", "connection refused", "deadline exceeded", "unreachable"):
		return []string{"make the image's registry reachable from node " + node, local}
	}
	return []string{"see the message"}
}

// ended explains how a container ended.
func (d *diagnosis) ended(c *v1.Container, s *v1.ContainerStatus, t *v1.ContainerStateTerminated) Finding {
	exit := fmt.Sprintf("with exit code %d%s", t.ExitCode, meaning(t))
	f := Finding{Reason: t.Reason, Message: "it ended " + ago(t.FinishedAt, d.now) + " " + exit, brief: exit}
	liveness := latest(d.events, func(e *v1.Event) bool {
		return e.Reason == "Unhealthy" && (strings.HasPrefix(e.Message, "Liveness probe failed") || strings.HasPrefix(e.Message, "Startup probe failed")) && ofContainer(e, c.Name) &&
			!lastSeen(e).Before(t.StartedAt.Add(-time.Second)) // else it is about an earlier start
	})
	switch {
	case t.Reason == "OOMKilled":
		f.brief = "killed because it used too much memory"
		if limit, ok := c.Resources.Limits[v1.ResourceMemory]; ok {
			f.Message = fmt.Sprintf("it was killed %s because it used more memory than its limit of %s", ago(t.FinishedAt, d.now), limit.String())
			f.Remedies = []string{"raise resources.limits.memory of container " + c.Name, "let the program use less memory"}
		} else {
			f.Message = fmt.Sprintf("it was killed %s because the node had no memory left; it has no memory limit", ago(t.FinishedAt, d.now))
			f.Remedies = []string{"request as much memory as container " + c.Name + " needs", "let the program use less memory"}
		}
	case liveness != nil && killed(t, s):
		f.Message += "; the kubelet ended it because: " + oneLine(liveness.Message) + " (" + times(liveness, d.now) + ")"
		f.brief = "ended by the kubelet because its probe fails"
		f.Remedies = []string{"see why the probe fails", "give the probe more time (timeoutSeconds, failureThreshold, or a startupProbe)"}
	case t.ExitCode == 0 && d.pod.Spec.RestartPolicy == v1.RestartPolicyAlways:
		f.Remedies = []string{"run a program that does not end", "run it as a Job"}
	case t.ExitCode == 126 || t.ExitCode == 127 || t.Reason == "StartError" || t.Reason == "ContainerCannotRun":
		f.Remedies = []string{"correct the command of container " + c.Name + ", or use an image that has it"}
	}
	if message := oneLine(t.Message); message != "" {
		f.Message += ": " + message
	}
	return f
}

// killed reports whether the kubelet may have ended a container.
func killed(t *v1.ContainerStateTerminated, s *v1.ContainerStatus) bool {
	return s.RestartCount > 0 || t.ExitCode == 128+int32(unix.SIGKILL) || t.ExitCode == 128+int32(unix.SIGTERM)
}

// meaning says what an exit code means beyond the number.
func meaning(t *v1.ContainerStateTerminated) string {
	const signaled = 128
	code := t.ExitCode
	switch {
	case code == 0:
		return " (success)"
	case code == 126:
		return " (the command cannot be executed)"
	case code == 127:
		return " (the command was not found)"
	case t.Reason == "StartError" || t.Reason == "ContainerCannotRun":
		return " (it could not be started)"
	case code > signaled && code < signaled+65:
		if name := unix.SignalName(syscall.Signal(code - signaled)); name != "" {
			return " (" + name + ")"
		}
	}
	return ""
}

// probed explains a running container that is not ready.
func (d *diagnosis) probed(subject string, c *v1.Container, s *v1.ContainerStatus) {
	kind, probe, reason := "Readiness", c.ReadinessProbe, "NotReady"
	if !ptr.Deref(s.Started, true) {
		kind, probe, reason = "Startup", c.StartupProbe, "NotStarted"
	}
	running := fmt.Sprintf("it has been running for %s", lasting(s.State.Running.StartedAt, d.now))
	f := Finding{Subject: subject, Reason: reason, Message: running + " and is not ready"}
	e := latest(d.events, func(e *v1.Event) bool {
		return e.Reason == "Unhealthy" && strings.HasPrefix(e.Message, kind+" probe") && ofContainer(e, c.Name) && !lastSeen(e).Before(s.State.Running.StartedAt.Add(-time.Second))
	})
	name := strings.ToLower(kind) + " probe"
	switch {
	case e != nil:
		f.brief = "its " + name + " fails"
		f.Message = fmt.Sprintf("%s, and its %s fails: %s (%s)", running, name, strings.TrimPrefix(oneLine(e.Message), kind+" probe failed: "), times(e, d.now))
		f.Remedies = []string{"see why the program does not answer the probe", "correct the " + name + ": " + described(probe)}
		f.log = d.logOf(c, false)
	case probe != nil:
		f.Message = fmt.Sprintf("%s, and its %s (%s) has not succeeded yet", running, name, described(probe))
	}
	if s.RestartCount > 0 {
		f.Message += fmt.Sprintf("; it was restarted %s", restarts(s.RestartCount))
		if last := s.LastTerminationState.Terminated; last != nil {
			f.Message += ", the last time because " + strings.Replace(d.ended(c, s, last).Message, "it ended", "it had ended", 1)
		}
	}
	d.add(f)
}

// described describes the request of a probe.
func described(p *v1.Probe) string {
	switch {
	case p == nil:
		return "none"
	case p.HTTPGet != nil:
		return fmt.Sprintf("GET %s on port %s", p.HTTPGet.Path, p.HTTPGet.Port.String())
	case p.TCPSocket != nil:
		return "a connection to port " + p.TCPSocket.Port.String()
	case p.GRPC != nil:
		return fmt.Sprintf("gRPC health on port %d", p.GRPC.Port)
	case p.Exec != nil:
		return oneLine(strings.Join(p.Exec.Command, " "))
	}
	return "none"
}
