package pod

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

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

// startError is why a container could not be started, with the reason that
// its status shows.
type startError struct {
	reason string
	err    error
	quiet  bool // a later look at the pod will deal with it
}

func (e *startError) Error() string { return e.err.Error() }
func (e *startError) Unwrap() error { return e.err }

// running is a pod whose sandbox is there and whose containers are to start.
type running struct {
	*kuberuntime
	pod           *v1.Pod
	observed      *cri.Pod
	node          *spec.Node
	config        *runtimeapi.PodSandboxConfig
	sandboxID     string
	ips           []string
	paths         map[string]string
	userNamespace *runtimeapi.UserNamespace
	// created is told of each container that has been created after another.
	created func(c *v1.Container, before *cri.Container)
}

// container creates and starts one container and runs its postStart hook.
func (r *running) container(ctx context.Context, s plan.Start, found *runtimeapi.Image) error {
	pod, c := r.pod, s.Container
	ref := ContainerReference(pod, c.Name)
	dead := r.observed.Dead(c.Name)
	fail := func(reason string, err error) error {
		if ctx.Err() == nil {
			r.Recorder.Eventf(ref, v1.EventTypeWarning, "Failed", "Error: %v", err)
		}
		return &startError{reason: reason, err: err}
	}
	config, err := r.configure(ctx, s, found)
	if err != nil {
		return fail("CreateContainerConfigError", trimmed(err))
	}
	id, err := r.Runtime.CreateContainer(ctx, r.sandboxID, config, r.config)
	if err != nil {
		return fail("CreateContainerError", err)
	}
	r.Recorder.Event(ref, v1.EventTypeNormal, "Created", "Container created")
	if dead != nil {
		r.created(c, dead)
	}
	if err := r.Runtime.StartContainer(ctx, id); err != nil {
		failed := fail("RunContainerError", err)
		failed.(*startError).quiet = true
		return failed
	}
	r.Recorder.Event(ref, v1.EventTypeNormal, "Started", "Container started")
	r.metrics.startedContainers.WithLabelValues([...]string{plan.Regular: "container", plan.Init: "init_container", plan.Ephemeral: "ephemeral_container"}[s.Kind]).Inc()
	r.background.Go(ctx, func() {
		supervise.Contain(ctx, "containers", func() { r.removeOlder(context.WithoutCancel(ctx), r.observed, c.Name, id) })
	})
	if c.Lifecycle == nil || c.Lifecycle.PostStart == nil {
		return nil
	}
	target := probe.Target{Pod: pod, Container: c, ContainerID: id}
	if len(r.ips) > 0 {
		target.IP = r.ips[0]
	}
	if err := r.hook(ctx, c.Lifecycle.PostStart, target); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.Recorder.Eventf(ref, v1.EventTypeWarning, "FailedPostStartHook", "PostStartHook failed")
		started := &cri.Container{ID: id, Name: c.Name, State: cri.Running}
		if killErr := r.killContainer(ctx, pod, started, target.IP, nil, GracePeriod(pod, nil), "FailedPostStartHook"); killErr != nil {
			err = errors.Join(err, killErr)
		}
		return &startError{reason: "PostStartHookError", err: err, quiet: true}
	}
	return nil
}

// trimmed takes the marker off an error that is shown to users.
func trimmed(err error) error {
	if text, ok := strings.CutPrefix(err.Error(), spec.ErrConfig.Error()+": "); ok {
		return errors.New(text)
	}
	return err
}

// configure is the container's configuration for the runtime.
func (r *running) configure(ctx context.Context, s plan.Start, found *runtimeapi.Image) (*runtimeapi.ContainerConfig, error) {
	pod, c := r.pod, s.Container
	in := &spec.Instance{RestartCount: s.RestartCount, Round: r.observed.Round, Image: found.GetId(), ImageUser: found.GetUsername(), UserNamespace: r.userNamespace}
	if in.Image == "" {
		in.Image = c.Image
	}
	if uid := found.GetUid(); uid != nil {
		in.ImageUID = &uid.Value
	}
	if err := spec.VerifyNonRoot(pod, c, in.ImageUID, in.ImageUser); err != nil {
		return nil, err
	}
	env := &spec.Env{PodIPs: r.ips, HostIPs: r.node.IPs, Allocatable: r.node.Allocatable, File: r.envFile}
	var err error
	if r.API != nil {
		env.Objects = r.API.Objects
		if env.Services, err = r.API.Services(ctx); err != nil {
			return nil, err
		}
	}
	if in.Env, err = env.Environment(ctx, pod, c); err != nil {
		return nil, err
	}
	if in.Mounts, err = r.Volumes.Mounts(pod, c, r.paths, in.Env); err != nil {
		return nil, err
	}
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
	return spec.ContainerConfig(pod, c, r.node, in), nil
}

// ownMounts are the kubelet's own: /etc/hosts and the termination message.
func (r *running) ownMounts(c *v1.Container) ([]*runtimeapi.Mount, error) {
	pod, host := r.pod, r.Files
	var out []*runtimeapi.Mount
	dir := r.Volumes.PodDir(pod.UID)
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
		content, err := spec.HostsFile(pod, r.ips, r.node.ClusterDomain, hostFile)
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

// maxEnvFile bounds an environment file, from which variables are taken one
// by one.
const maxEnvFile = 64 << 10

// envFile reads a variable from a file in a volume that the pod's earlier
// containers could write to (KEP-3721). Links in it do not lead out of it.
func (r *running) envFile(volume, path, key string) (string, bool, error) {
	root, ok := r.paths[volume]
	if !ok || root == "" {
		return "", false, fmt.Errorf("volume %s is not mounted", volume)
	}
	if !filepath.IsLocal(path) {
		return "", false, fmt.Errorf("path %s leaves the volume", path)
	}
	raw, err := r.Files.ReadBeneath(root, path, maxEnvFile)
	if errors.Is(err, fs.ErrNotExist) {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	return spec.FromEnvFile(raw, key)
}

// createSandbox makes the pod's cgroup and sandbox and returns its id and addresses.
func (k *kuberuntime) createSandbox(ctx context.Context, pod *v1.Pod, observed *cri.Pod, config *runtimeapi.PodSandboxConfig, running []*v1.Pod) (id string, ips []string, err error) {
	fail := func(err error) (string, []string, error) {
		if ctx.Err() == nil {
			k.Recorder.Eventf(Reference(pod), v1.EventTypeWarning, "FailedCreatePodSandBox", "Failed to create pod sandbox: %v", err)
		}
		return "", nil, fmt.Errorf("create the pod's sandbox: %w", err)
	}
	if err := k.CGroups.ApplyClasses(running); err != nil {
		return fail(err)
	}
	if err := k.CGroups.Apply(pod); err != nil {
		k.Recorder.Eventf(Reference(pod), v1.EventTypeWarning, "FailedToCreatePodContainer", "unable to ensure pod container exists: %v", err)
		return "", nil, err
	}
	if err := k.Files.MkdirAll(config.GetLogDirectory(), 0o755); err != nil {
		return fail(err)
	}
	handler, err := k.runtimeHandler(ctx, pod, observed)
	if err != nil {
		return fail(err)
	}
	// A sandbox that is being made is not abandoned half way: the runtime
	// would keep its network.
	began := time.Now()
	id, err = k.Runtime.RunPodSandbox(context.WithoutCancel(ctx), config, handler)
	if err != nil {
		return fail(err)
	}
	response, err := k.Runtime.PodSandboxStatus(ctx, id, false)
	if err != nil {
		return fail(err)
	}
	k.metrics.startedPods.Inc()
	klog.FromContext(ctx).V(3).Info("Created sandbox", "sandbox", id, "took", time.Since(began))
	if ip := response.GetStatus().GetNetwork().GetIp(); ip != "" {
		ips = append(ips, ip)
		for _, more := range response.GetStatus().GetNetwork().GetAdditionalIps() {
			ips = append(ips, more.GetIp())
		}
	}
	if pod.Spec.HostNetwork {
		ips = k.Node.IPs
	}
	return id, ips, nil
}

// runtimeHandler is the handler of the pod's RuntimeClass. The class of a pod
// and the handler of a class never change: the pod's last sandbox knows it,
// also while the API server is away.
func (k *kuberuntime) runtimeHandler(ctx context.Context, pod *v1.Pod, observed *cri.Pod) (string, error) {
	if pod.Spec.RuntimeClassName == nil || *pod.Spec.RuntimeClassName == "" || k.API == nil {
		return "", nil
	}
	if len(observed.Sandboxes) > 0 && observed.Sandboxes[0].Handler != "" {
		return observed.Sandboxes[0].Handler, nil
	}
	return k.API.RuntimeHandler(ctx, *pod.Spec.RuntimeClassName)
}

// removeOlder removes what is left of earlier instances of a container but
// the newest dead one, whose status and log stay readable.
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
		if err := k.Runtime.RemoveContainer(ctx, c.ID); err == nil && c.LogPath != "" {
			_ = logs.Remove(c.LogPath)
		}
	}
}
