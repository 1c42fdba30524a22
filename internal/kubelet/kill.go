package kubelet

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/kubelet/probe"
	"github.com/coracle-io/coracle/internal/kubelet/spec"
	podutil "github.com/coracle-io/coracle/internal/pod"
	"github.com/coracle-io/coracle/internal/supervise"
	"github.com/coracle-io/coracle/internal/timespan"
)

// minimumGrace is what every container gets to end by itself, in seconds.
const minimumGrace = 2

// gracePeriod is how many seconds the pod's containers have to end.
func gracePeriod(pod *v1.Pod, override *int64) int64 {
	switch {
	case override != nil:
		return *override
	case pod.DeletionGracePeriodSeconds != nil:
		return *pod.DeletionGracePeriodSeconds
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		return *pod.Spec.TerminationGracePeriodSeconds
	}
	return v1.DefaultTerminationGracePeriodSeconds
}

// terminate ends the pod: containers, sandboxes, volumes, cgroup; then the
// last status, and with it the deletion from the API server.
func (w *worker) terminate(ctx context.Context, r request, observed *cri.Pod) (done bool, err error) {
	k, pod := w.k, r.pod
	if w.orphan {
		pod = cri.RestoredPod(observed)
		pod.UID = w.uid
	}
	k.prober.StopKind(w.uid, livenessProbe, startupProbe)
	if len(observed.Running()) > 0 {
		w.report(ctx, pod, observed, false)
	}
	grace := gracePeriod(pod, r.grace)
	work, finish := w.begin(ctx, grace)
	err = k.killPod(work, pod, observed, grace)
	interrupted := work.Err() != nil
	finish()
	if err != nil {
		if interrupted && ctx.Err() == nil {
			return false, context.Canceled
		}
		return false, err
	}
	k.prober.Forget(w.uid)
	final, err := k.observe(ctx, pod)
	if err != nil {
		return false, err
	}
	w.see(final)
	if len(final.Running()) > 0 {
		return false, fmt.Errorf("%d containers of the pod still run after they were stopped", len(final.Running()))
	}
	if err := k.volumes.TearDown(w.uid); err != nil {
		return false, err
	}
	w.mu.Lock()
	w.ended = true
	w.mu.Unlock()
	w.report(ctx, pod, final, true)
	k.releaseGroup(ctx, pod)
	klog.FromContext(ctx).V(2).Info("Pod ended")
	return w.gone(ctx, w.request())
}

// afterEnd is what is left to do for a pod of which nothing runs: to let the
// API server forget it once it is deleted there.
func (w *worker) afterEnd(ctx context.Context, r request) (time.Duration, bool, error) {
	if done, err := w.gone(ctx, r); done || err != nil {
		return 0, done, err
	}
	shown := w.shown(r.pod)
	if r.pod.DeletionTimestamp == nil || shown == nil || w.k.writer.Removing(shown.UID) {
		return 0, false, nil
	}
	w.report(ctx, r.pod, w.seen(), true)
	return 0, false, nil
}

// gone removes the dead containers and logs of a pod that no source has.
func (w *worker) gone(ctx context.Context, r request) (bool, error) {
	if !r.removed {
		return false, nil
	}
	observed, err := cri.Observe(ctx, w.k.runtime, w.uid)
	if err != nil {
		return false, err
	}
	for _, c := range observed.Containers {
		if err := w.k.runtime.RemoveContainer(ctx, c.ID); err != nil && !cri.IsNotFound(err) {
			return false, err
		}
	}
	for _, s := range observed.Sandboxes {
		if err := w.k.runtime.RemovePodSandbox(ctx, s.ID); err != nil && !cri.IsNotFound(err) {
			return false, err
		}
	}
	pod := r.pod
	if w.static && w.k.mirror != nil {
		if mirror := w.k.mirrorOf(pod); mirror != nil {
			if err := w.k.mirror.Delete(ctx, mirror); err != nil {
				return false, err
			}
		}
	}
	logs := spec.PodLogDirectory(w.k.config.Configuration.PodLogsDir, pod.Namespace, pod.Name, string(w.uid))
	return true, w.k.config.Files.RemoveAll(logs)
}

// releaseGroup removes the pod's cgroup. What is left of one in use is for
// the next housekeeping.
func (k *Kubelet) releaseGroup(ctx context.Context, pod *v1.Pod) {
	if err := k.cgroups.Remove(pod.UID); err != nil {
		klog.FromContext(ctx).V(2).Info("The pod's control group is still in use", "err", err)
	}
}

// killPod stops the pod's containers, sidecars after the others and in
// reverse order, and then its sandboxes.
func (k *Kubelet) killPod(ctx context.Context, pod *v1.Pod, observed *cri.Pod, grace int64) error {
	sidecars := map[string]bool{}
	for i := range pod.Spec.InitContainers {
		if podutil.IsSidecar(&pod.Spec.InitContainers[i]) {
			sidecars[pod.Spec.InitContainers[i].Name] = true
		}
	}
	began := time.Now()
	group := supervise.Apart(ctx)
	for _, c := range observed.Running() {
		if !sidecars[c.Name] {
			group.Go(func() error { return k.killContainer(ctx, pod, c, grace, "") })
		}
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for i := len(pod.Spec.InitContainers) - 1; i >= 0; i-- {
		for _, c := range observed.Running() {
			if c.Name != pod.Spec.InitContainers[i].Name || !sidecars[c.Name] {
				continue
			}
			left := grace - int64(time.Since(began).Seconds())
			if err := k.killContainer(ctx, pod, c, left, ""); err != nil {
				return err
			}
		}
	}
	sandboxes := supervise.Apart(ctx)
	for _, s := range observed.Sandboxes {
		if s.Ready || len(s.IPs) > 0 {
			sandboxes.Go(func() error {
				if err := k.runtime.StopPodSandbox(ctx, s.ID); err != nil && !cri.IsNotFound(err) {
					if ctx.Err() == nil {
						k.recorder.Eventf(reference(pod), v1.EventTypeWarning, "FailedKillPod", "error killing pod: failed to \"KillPodSandbox\" for %q with KillPodSandboxError: %q", pod.UID, err)
					}
					return fmt.Errorf("stop sandbox %s: %w", s.ID, err)
				}
				return nil
			})
		}
	}
	return sandboxes.Wait()
}

// killContainer runs the preStop hook and stops the container, all within
// grace seconds; what is left of them is the time between SIGTERM and SIGKILL.
func (k *Kubelet) killContainer(ctx context.Context, pod *v1.Pod, c *cri.Container, grace int64, message string) error {
	if message == "" {
		message = "Stopping container " + c.Name
	}
	k.recorder.Event(containerReference(pod, c.Name), v1.EventTypeNormal, "Killing", message)
	began := time.Now()
	declared := podutil.Container(&pod.Spec, c.Name)
	if grace > 0 && declared != nil && declared.Lifecycle != nil && declared.Lifecycle.PreStop != nil {
		hookCtx, cancel := context.WithTimeout(ctx, timespan.Seconds(grace))
		target := probe.Target{Pod: pod, Container: declared, ContainerID: c.ID}
		if w := k.worker(pod.UID); w != nil {
			if seen := w.seen(); seen != nil {
				target.IP = w.podIP(pod, seen)
			}
		}
		if err := k.hook(hookCtx, declared.Lifecycle.PreStop, target); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "The preStop hook failed", "container", c.Name)
			k.recorder.Event(containerReference(pod, c.Name), v1.EventTypeWarning, "FailedPreStopHook", "PreStopHook failed")
		}
		cancel()
		grace -= int64(time.Since(began).Seconds())
	}
	// The runtime makes a time.Duration of it.
	left := int64(timespan.Seconds(max(grace, minimumGrace)) / time.Second)
	if err := k.runtime.StopContainer(ctx, c.ID, left); err != nil && !cri.IsNotFound(err) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("stop container %s: %w", c.Name, err)
	}
	klog.FromContext(ctx).V(3).Info("Stopped container", "container", c.Name, "took", time.Since(began))
	return nil
}
