package kubelet

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
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/kubelet/cri"
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
	worker        *worker
	pod           *v1.Pod
	observed      *cri.Pod
	node          *spec.Node
	config        *runtimeapi.PodSandboxConfig
	sandboxID     string
	ips           []string
	paths         map[string]string
	userNamespace *runtimeapi.UserNamespace
}

// container creates and starts one container and runs its postStart hook.
func (r *running) container(ctx context.Context, s plan.Start, found *runtimeapi.Image) error {
	k, pod, c := r.worker.k, r.pod, s.Container
	ref := containerReference(pod, c.Name)
	dead := r.observed.Dead(c.Name)
	fail := func(reason string, err error) error {
		if ctx.Err() == nil {
			k.recorder.Eventf(ref, v1.EventTypeWarning, "Failed", "Error: %v", err)
		}
		return &startError{reason: reason, err: err}
	}
	config, err := r.configure(ctx, s, found)
	if err != nil {
		return fail("CreateContainerConfigError", trimmed(err))
	}
	id, err := k.runtime.CreateContainer(ctx, r.sandboxID, config, r.config)
	if err != nil {
		return fail("CreateContainerError", err)
	}
	k.recorder.Event(ref, v1.EventTypeNormal, "Created", "Container created")
	if dead != nil {
		r.worker.backoff.Started(backOffKey(c), dead.FinishedAt, time.Now())
	}
	if err := k.runtime.StartContainer(ctx, id); err != nil {
		failed := fail("RunContainerError", err)
		failed.(*startError).quiet = true
		r.worker.nudge()
		return failed
	}
	k.recorder.Event(ref, v1.EventTypeNormal, "Started", "Container started")
	k.metrics.startedContainers.WithLabelValues([...]string{plan.Regular: "container", plan.Init: "init_container", plan.Ephemeral: "ephemeral_container"}[s.Kind]).Inc()
	k.background.Go(ctx, func() {
		supervise.Contain(ctx, "containers", func() { k.removeOlder(context.WithoutCancel(ctx), r.observed, c.Name, id) })
	})
	if c.Lifecycle == nil || c.Lifecycle.PostStart == nil {
		return nil
	}
	target := probe.Target{Pod: pod, Container: c, ContainerID: id}
	if len(r.ips) > 0 {
		target.IP = r.ips[0]
	}
	if err := k.hook(ctx, c.Lifecycle.PostStart, target); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		k.recorder.Eventf(ref, v1.EventTypeWarning, "FailedPostStartHook", "PostStartHook failed")
		started := &cri.Container{ID: id, Name: c.Name, State: cri.Running}
		if killErr := k.killContainer(ctx, pod, started, gracePeriod(pod, nil), "FailedPostStartHook"); killErr != nil {
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
	k, pod, c := r.worker.k, r.pod, s.Container
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
	env := &spec.Env{PodIPs: r.ips, HostIPs: k.facts.IPs, Allocatable: r.node.Allocatable, File: r.envFile}
	if k.objects != nil {
		env.Objects = k.objects
		if !cache.WaitForCacheSync(ctx.Done(), k.servicesOK) {
			return nil, errors.New("services have not yet been read at least once, cannot construct envvars")
		}
		services, err := k.services.List(labels.Everything())
		if err != nil {
			return nil, err
		}
		env.Services = services
	}
	var err error
	if in.Env, err = env.Environment(ctx, pod, c); err != nil {
		return nil, err
	}
	if in.Mounts, err = k.volumes.Mounts(pod, c, r.paths, in.Env); err != nil {
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
	k, pod := r.worker.k, r.pod
	host := k.config.Files
	var out []*runtimeapi.Mount
	dir := k.volumes.PodDir(pod.UID)
	mounted := func(path string) bool {
		for _, m := range c.VolumeMounts {
			if filepath.Clean(m.MountPath) == path {
				return true
			}
		}
		return false
	}
	if !mounted("/etc/hosts") && (len(r.ips) > 0 || pod.Spec.HostNetwork) {
		hostFile, _ := host.ReadFile("/etc/hosts", maxHostFile)
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
	raw, err := r.worker.k.config.Files.ReadBeneath(root, path, maxEnvFile)
	if errors.Is(err, fs.ErrNotExist) {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	return spec.FromEnvFile(raw, key)
}

// removeOlder removes what is left of earlier instances of a container but
// the newest dead one, whose status and log stay readable.
func (k *Kubelet) removeOlder(ctx context.Context, observed *cri.Pod, name, current string) {
	kept := false
	for _, c := range observed.Containers {
		if c.Name != name || c.ID == current || c.State == cri.Running {
			continue
		}
		if c.State == cri.Exited && !kept {
			kept = true
			continue
		}
		if err := k.runtime.RemoveContainer(ctx, c.ID); err == nil && c.LogPath != "" {
			_ = logs.Remove(c.LogPath)
		}
	}
}
