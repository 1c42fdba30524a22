package pod

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	grpcstatus "google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/logs"
	"github.com/coracle-io/coracle/internal/kubelet/plan"
	"github.com/coracle-io/coracle/internal/kubelet/probe"
	"github.com/coracle-io/coracle/internal/kubelet/spec"
	"github.com/coracle-io/coracle/internal/supervise"
)

// startError is why a container could not be started. Its reason is shown in
// the status of the container.
type startError struct {
	reason   string
	err      error
	deferred bool // a later sync handles it
}

// Error returns what the runtime said, without the code of its answer.
func (e *startError) Error() string { return grpcstatus.Convert(e.err).Message() }
func (e *startError) Unwrap() error { return e.err }

// running is a pod with a sandbox whose containers are to start.
type running struct {
	config        *Config // of the workers
	runtime       *kuberuntime
	pod           *v1.Pod
	static        bool
	observed      *cri.Pod
	sandbox       *runtimeapi.PodSandboxConfig // as the sandbox was created
	sandboxID     string
	ips           []string
	paths         map[string]string
	userNamespace *runtimeapi.UserNamespace
	// created is called after the creation of each container that replaces an
	// earlier instance.
	created func(c *v1.Container, before *cri.Container)
}

// container creates and starts one container and runs its postStart hook.
func (r *running) container(ctx context.Context, s plan.Start, found containerImages) error {
	pod, c := r.pod, s.Container
	ref := ContainerReference(pod, c.Name)
	dead := r.observed.Dead(c.Name)
	fail := func(reason string, err error) error {
		failure := &startError{reason: reason, err: err}
		if ctx.Err() == nil {
			r.config.Recorder.Eventf(ref, v1.EventTypeWarning, "Failed", "Error: %v", failure)
		}
		return failure
	}
	if r.observed.Find(c.Name) == nil {
		s.RestartCount = r.afterLogs(c.Name)
	}
	config, err := r.configure(ctx, s, found)
	if err != nil {
		return fail("CreateContainerConfigError", trimmed(err))
	}
	if left := r.observed.Find(c.Name); left != nil && left.State == cri.Created {
		started, err := r.removeCreated(ctx, left.ID)
		if err != nil {
			return fail("CreateContainerError", err)
		}
		if started {
			return nil
		}
	}
	id, err := r.config.Runtime.CreateContainer(ctx, r.sandboxID, config, r.sandbox)
	r.runtime.metrics.mounted(config, err)
	if err != nil {
		return fail("CreateContainerError", err)
	}
	r.config.Recorder.Event(ref, v1.EventTypeNormal, "Created", "Container created")
	if dead != nil {
		r.created(c, dead)
	}
	if ctx.Err() != nil { // the pod is to end
		return ctx.Err()
	}
	if err := r.config.Runtime.StartContainer(ctx, id); err != nil {
		failed := fail("RunContainerError", err)
		failed.(*startError).deferred = true
		return failed
	}
	r.config.Recorder.Event(ref, v1.EventTypeNormal, "Started", "Container started")
	r.linkLog(ctx, c.Name, id, config.GetLogPath())
	r.runtime.background.Go(ctx, func() {
		supervise.Contain(ctx, "containers", func() { r.runtime.removeOlder(context.WithoutCancel(ctx), r.observed, c.Name, id) })
	})
	if c.Lifecycle == nil || c.Lifecycle.PostStart == nil {
		return nil
	}
	target := probe.Target{Pod: pod, Container: c, ContainerID: id}
	if len(r.ips) > 0 {
		target.IP = r.ips[0]
	}
	if err := r.runtime.hook(ctx, c.Lifecycle.PostStart, target); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.config.Recorder.Eventf(ref, v1.EventTypeWarning, "FailedPostStartHook", "PostStartHook failed")
		started := &cri.Container{ID: id, Name: c.Name, State: cri.Running}
		if killErr := r.runtime.killContainer(ctx, pod, started, target.IP, nil, GracePeriod(pod, nil), "FailedPostStartHook"); killErr != nil {
			err = errors.Join(err, killErr)
		}
		return &startError{reason: "PostStartHookError", err: err, deferred: true}
	}
	return nil
}

// removeCreated removes a container that was not started when the pod was observed: it
// keeps the name of the new instance reserved. started reports that it stays, because
// the runtime has started it since, as the kubelet before this one asked for.
func (r *running) removeCreated(ctx context.Context, id string) (started bool, err error) {
	answer, err := r.config.Runtime.ContainerStatus(ctx, id, false)
	if err == nil {
		if answer.GetStatus().GetState() != runtimeapi.ContainerState_CONTAINER_CREATED {
			return true, nil
		}
		err = r.config.Runtime.RemoveContainer(ctx, id)
	}
	if cri.IsNotFound(err) {
		err = nil
	}
	return false, err
}

// linkLog makes the link to the log of a started container. The link is relative: a
// collector may have both directories mounted in another place. A container runs without
// one, too. Links without logs are removed by housekeeping.
func (r *running) linkLog(ctx context.Context, container, id, log string) {
	root, disk := r.config.Node.Configuration.PodLogsDir, r.config.Files
	target := filepath.Join(r.sandbox.GetLogDirectory(), log)
	if _, err := disk.Stat(target); err != nil {
		return // the runtime writes it elsewhere
	}
	links := spec.LogLinkDirectory(root)
	target, err := filepath.Rel(links, target)
	if err == nil {
		err = disk.MkdirAll(links, 0o755)
	}
	if err == nil {
		err = disk.Symlink(target, spec.LogLink(root, r.pod, container, id))
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		klog.FromContext(ctx).Error(err, "Linking the log of a container failed, collectors of logs may not find it", "container", container)
	}
}

// afterLogs returns the restart count of a container of which the runtime has no
// instance: 0, or one more than that of the newest log. The new instance would write
// to the log of an earlier one that the runtime has lost.
func (r *running) afterLogs(container string) int {
	names, _ := r.config.Files.ReadDir(filepath.Join(r.sandbox.GetLogDirectory(), container)) // there is none before the first instance
	next := 0
	for _, name := range names {
		number, _, isLog := strings.Cut(name, ".log")
		if n, err := strconv.Atoi(number); isLog && err == nil {
			next = max(next, n+1)
		}
	}
	return next
}

// trimmed removes the prefix of spec.ErrConfig from an error that users see.
func trimmed(err error) error {
	if text, ok := strings.CutPrefix(err.Error(), spec.ErrConfig.Error()+": "); ok {
		return errors.New(text)
	}
	return err
}

// configure returns the configuration of the container for the runtime.
func (r *running) configure(ctx context.Context, s plan.Start, found containerImages) (*runtimeapi.ContainerConfig, error) {
	pod, c := r.pod, s.Container
	in := &spec.Instance{RestartCount: s.RestartCount, Round: r.observed.Round, Image: found.own.GetId(), ImageUser: found.own.GetUsername(), UserNamespace: r.userNamespace}
	if in.Image == "" {
		in.Image = c.Image
	}
	if uid := found.own.GetUid(); uid != nil {
		in.ImageUID = &uid.Value
	}
	if err := spec.VerifyNonRoot(pod, c, in.ImageUID, in.ImageUser); err != nil {
		return nil, err
	}
	env := &spec.Env{PodIPs: r.ips, HostIPs: r.config.Node.IPs.Now(), Allocatable: r.config.NodeStatus.Allocatable(), File: r.envFile}
	var err error
	if r.config.API != nil {
		env.Objects = r.config.API.Objects
		// A static pod does not wait: it may be the API server itself.
		if env.Services, err = r.config.API.Services(ctx, pod.Namespace, !r.static); err != nil {
			return nil, err
		}
	}
	if in.Env, err = env.Environment(ctx, pod, c); err != nil {
		return nil, err
	}
	if in.Mounts, err = r.config.Volumes.Mounts(pod, c, r.paths, in.Env); err != nil {
		return nil, err
	}
	found.name(in.Mounts)
	if err := r.recursive(ctx, c, in.Mounts); err != nil {
		return nil, fmt.Errorf("failed to resolve recursive read-only mode: %w", err)
	}
	if in.Devices, err = r.config.Volumes.Devices(pod, c, r.paths); err != nil {
		return nil, err
	}
	in.Groups = r.config.Volumes.Groups(pod)
	extra, err := r.ownMounts(c)
	if err != nil {
		return nil, err
	}
	in.Mounts = append(in.Mounts, extra...)
	if r.userNamespace != nil {
		for _, m := range in.Mounts {
			m.UidMappings, m.GidMappings = r.userNamespace.GetUids(), r.userNamespace.GetGids()
		}
	}
	if s.Kind == plan.Ephemeral {
		for i := range pod.Spec.EphemeralContainers {
			e := &pod.Spec.EphemeralContainers[i]
			if e.Name != c.Name || e.TargetContainerName == "" {
				continue
			}
			target := r.observed.Find(e.TargetContainerName)
			if target == nil || target.State != cri.Running {
				return nil, fmt.Errorf("unable to find target container %s", e.TargetContainerName)
			}
			in.Target = target.ID
		}
	}
	config, err := spec.ContainerConfig(pod, c, &r.config.Node, in)
	if err != nil {
		return nil, err
	}
	return config, r.config.Placement.Configure(ctx, pod, c, config)
}

// ownMounts returns the kubelet's own mounts: /etc/hosts and the termination
// message.
func (r *running) ownMounts(c *v1.Container) ([]*runtimeapi.Mount, error) {
	pod, host := r.pod, r.config.Files
	var out []*runtimeapi.Mount
	dir := r.config.Volumes.PodDir(pod.UID)
	mounted := func(path string) bool {
		for _, m := range c.VolumeMounts {
			if filepath.Clean(m.MountPath) == path {
				return true
			}
		}
		return false
	}
	if !mounted("/etc/hosts") && (len(r.ips) > 0 || pod.Spec.HostNetwork) {
		hostFile, _ := host.ReadFile("/etc/hosts", files.MaxHostFile)
		content, err := spec.HostsFile(pod, r.ips, r.config.Node.Configuration.ClusterDomain, hostFile)
		if err != nil {
			return nil, err
		}
		if err := host.MkdirAll(dir, 0o750); err != nil {
			return nil, err
		}
		path := filepath.Join(dir, "etc-hosts")
		if err := host.WriteFile(path, content, 0o644); err != nil {
			return nil, err
		}
		readOnly := c.SecurityContext != nil && c.SecurityContext.ReadOnlyRootFilesystem != nil && *c.SecurityContext.ReadOnlyRootFilesystem
		out = append(out, &runtimeapi.Mount{ContainerPath: "/etc/hosts", HostPath: path, Readonly: readOnly})
	}
	if c.TerminationMessagePath != "" && !mounted(c.TerminationMessagePath) {
		folder := filepath.Join(dir, "containers", c.Name)
		if err := host.MkdirAll(folder, 0o750); err != nil {
			return nil, err
		}
		r.removeMessages(folder, c.Name)
		var id [4]byte
		_, _ = rand.Read(id[:])
		path := filepath.Join(folder, hex.EncodeToString(id[:]))
		if err := host.WriteFile(path, nil, 0o666); err != nil {
			return nil, err
		}
		out = append(out, &runtimeapi.Mount{ContainerPath: c.TerminationMessagePath, HostPath: path})
	}
	return out, nil
}

// removeMessages removes the files for the termination messages of those
// instances of a container that the runtime no longer has.
func (r *running) removeMessages(folder, container string) {
	kept := map[string]bool{}
	for _, c := range r.observed.Containers {
		if c.Name == container && len(c.Mounts) == 0 {
			return // which file it has is unknown
		}
		for _, m := range c.Mounts {
			kept[m.GetHostPath()] = true
		}
	}
	names, err := r.config.Files.ReadDir(folder)
	if err != nil {
		return
	}
	for _, name := range names {
		if path := filepath.Join(folder, name); !kept[path] {
			_ = r.config.Files.Remove(path) // the next start tries again
		}
	}
}

// maxEnvFile is the maximum size of an environment file, in bytes.
const maxEnvFile = 64 << 10

// envFile reads a variable from a file in a volume that earlier containers of
// the pod could write to (KEP-3721). Links do not lead out of the volume.
func (r *running) envFile(volume, path, key string) (string, bool, error) {
	root, ok := r.paths[volume]
	if !ok || root == "" {
		return "", false, fmt.Errorf("volume %s is not mounted", volume)
	}
	if !filepath.IsLocal(path) {
		return "", false, fmt.Errorf("path %s leaves the volume", path)
	}
	raw, err := r.config.Files.ReadBeneath(root, path, maxEnvFile)
	if errors.Is(err, fs.ErrNotExist) {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	return spec.FromEnvFile(raw, key)
}

// createSandbox creates the pod's control group and sandbox. It returns the id
// and the addresses of the sandbox.
func (k *kuberuntime) createSandbox(ctx context.Context, pod *v1.Pod, observed *cri.Pod, config *runtimeapi.PodSandboxConfig, running []*v1.Pod) (id string, ips []string, err error) {
	defer func() { k.metrics.started(pod, err != nil && ctx.Err() == nil) }()
	fail := func(err error) (string, []string, error) {
		if ctx.Err() == nil {
			k.config.Recorder.Eventf(Reference(pod), v1.EventTypeWarning, "FailedCreatePodSandBox", "Failed to create pod sandbox: %v", err)
		}
		return "", nil, fmt.Errorf("create the pod's sandbox: %w", err)
	}
	if err := k.config.CGroups.ApplyClasses(running); err != nil {
		return fail(err)
	}
	if len(observed.Sandboxes) > 0 {
		// A runtime that has lost containers has not removed their groups.
		if err := k.config.CGroups.Remove(pod.UID); err != nil {
			klog.FromContext(ctx).V(2).Info("The control group of the pod's former sandbox is still in use", "err", err)
		}
	}
	if err := k.config.CGroups.Apply(pod); err != nil {
		k.config.Recorder.Eventf(Reference(pod), v1.EventTypeWarning, "FailedCreatePodContainer", "unable to ensure pod container exists: %v", err)
		return "", nil, err
	}
	if err := k.config.Files.MkdirAll(config.GetLogDirectory(), 0o755); err != nil {
		return fail(err)
	}
	if err := k.config.Files.ReplaceUnsynced(filepath.Join(config.GetLogDirectory(), logOwner), []byte(k.config.Node.RootDirectory), 0o644); err != nil {
		return fail(err)
	}
	handler, err := k.runtimeHandler(ctx, pod, observed)
	if err != nil {
		return fail(err)
	}
	if err := k.checkUserNamespace(ctx, pod, handler); err != nil {
		return fail(err)
	}
	began := time.Now()
	id, err = k.config.Runtime.RunPodSandbox(ctx, config, handler)
	k.metrics.sandboxDuration.WithLabelValues(handler).Observe(time.Since(began).Seconds())
	if err != nil {
		k.metrics.sandboxErrors.WithLabelValues(handler).Inc()
		return fail(err)
	}
	response, err := k.config.Runtime.PodSandboxStatus(ctx, id, false)
	if err != nil {
		return fail(err)
	}
	klog.FromContext(ctx).V(3).Info("Created sandbox", "sandbox", id, "took", time.Since(began))
	if ip := response.GetStatus().GetNetwork().GetIp(); ip != "" {
		ips = append(ips, ip)
		for _, more := range response.GetStatus().GetNetwork().GetAdditionalIps() {
			ips = append(ips, more.GetIp())
		}
	}
	ips = ordered(ips, k.config.Node.IPs.Now())
	if pod.Spec.HostNetwork {
		ips = k.config.Node.IPs.Now()
	}
	return id, ips, nil
}

// runtimeHandler returns the handler of the pod's RuntimeClass. The class of a
// pod and the handler of a class are immutable, so the pod's last sandbox has
// it, also while the API server is not reachable.
func (k *kuberuntime) runtimeHandler(ctx context.Context, pod *v1.Pod, observed *cri.Pod) (string, error) {
	if pod.Spec.RuntimeClassName == nil || *pod.Spec.RuntimeClassName == "" || k.config.API == nil {
		return "", nil
	}
	if len(observed.Sandboxes) > 0 && observed.Sandboxes[0].Handler != "" {
		return observed.Sandboxes[0].Handler, nil
	}
	return k.config.API.RuntimeHandler(ctx, *pod.Spec.RuntimeClassName)
}

// removeOlder removes the earlier instances of a container except the newest
// exited one, whose status and log stay available.
func (k *kuberuntime) removeOlder(ctx context.Context, observed *cri.Pod, name, current string) {
	kept := false
	for _, c := range observed.Containers {
		if c.Name != name || c.ID == current || c.State == cri.Running {
			continue
		}
		if c.State == cri.Exited && !kept {
			kept = true
			continue
		}
		if err := k.config.Runtime.RemoveContainer(ctx, c.ID); err == nil && c.LogPath != "" {
			_ = logs.Remove(c.LogPath)
		}
	}
}

// removeOlderSandboxes removes the earlier sandboxes of a pod that has a new one,
// except those with the newest exited instance of a container.
func (k *kuberuntime) removeOlderSandboxes(ctx context.Context, observed *cri.Pod) {
	inUse := map[string]bool{}
	for _, c := range observed.Containers {
		if c.State != cri.Exited || c == observed.Dead(c.Name) {
			inUse[c.SandboxID] = true
		}
	}
	for _, s := range observed.Sandboxes {
		if s.Ready || inUse[s.ID] {
			continue
		}
		if err := k.config.Runtime.RemovePodSandbox(ctx, s.ID); err != nil && !cri.IsNotFound(err) {
			klog.FromContext(ctx).V(2).Info("Removing an earlier sandbox failed, the garbage collector will try again", "sandbox", s.ID, "err", err)
		}
	}
}
