package pod

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/kubelet/plan"
	"github.com/coracle-io/coracle/internal/kubelet/probe"
	"github.com/coracle-io/coracle/internal/kubelet/spec"
	podutil "github.com/coracle-io/coracle/internal/pod"
	"github.com/coracle-io/coracle/internal/supervise"
	"github.com/coracle-io/coracle/internal/timespan"
)

// minimumGrace is what every container gets to end by itself, in seconds.
const minimumGrace = 2

// GracePeriod is how many seconds the pod's containers have to end.
func GracePeriod(pod *v1.Pod, override *int64) int64 {
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
	pod := r.pod
	if w.orphan {
		pod = w.restored(observed)
	}
	w.config.Probes.StopKind(w.uid, probe.Liveness, probe.Startup)
	if len(observed.Running()) > 0 {
		w.report(ctx, pod, observed, false)
	}
	grace := GracePeriod(pod, r.grace)
	work, finish := w.interruptible(ctx, grace)
	defer finish()
	err = w.whileReporting(ctx, pod, func() error { return w.runtime.killPod(work, pod, observed, grace) })
	interrupted := work.Err() != nil
	finish()
	if err != nil {
		if interrupted && ctx.Err() == nil {
			return false, context.Canceled
		}
		return false, err
	}
	w.config.Probes.Forget(w.uid)
	final, err := w.runtime.observe(ctx, pod)
	if err != nil {
		return false, err
	}
	w.setObserved(final)
	if len(final.Running()) > 0 {
		return false, fmt.Errorf("%d containers of the pod still run after they were stopped", len(final.Running()))
	}
	if err := w.config.Volumes.TearDown(w.uid); err != nil {
		return false, err
	}
	w.end()
	w.report(ctx, pod, final, true)
	if err := w.config.CGroups.Remove(w.uid); err != nil {
		klog.FromContext(ctx).V(2).Info("The pod's control group is still in use", "err", err)
	}
	klog.FromContext(ctx).V(2).Info("Pod ended")
	return w.cleanUp(ctx, w.request())
}

// whileReporting kills the pod. What changes meanwhile, such as the readiness of
// a container that still serves, is told at once.
func (w *worker) whileReporting(ctx context.Context, pod *v1.Pod, kill func() error) error {
	var err error
	killed := make(chan struct{})
	supervise.Go(ctx, func() {
		defer close(killed)
		err = supervise.Call(kill)
	})
	defer func() { <-killed }()
	woken := false
	for {
		select {
		case <-killed:
			if woken { // there may be more to do when nothing runs any more
				w.wake()
			}
			return err
		case <-w.woken:
			woken = true
		}
		if observed, err := w.runtime.observe(ctx, pod); err == nil && len(observed.Running()) > 0 {
			w.setObserved(observed)
			w.report(ctx, pod, observed, false)
		}
	}
}

// restored is what is known of a pod that no source has.
func (w *worker) restored(observed *cri.Pod) *v1.Pod {
	pod := cri.RestoredPod(observed)
	pod.UID = w.uid
	return pod
}

// terminated is what is left to do for a pod of which nothing runs: to let the
// API server forget it once it is deleted there.
func (w *worker) terminated(ctx context.Context, r request) (done bool, err error) {
	if done, err := w.cleanUp(ctx, r); done || err != nil {
		return done, err
	}
	shown := w.shown(r.pod)
	if r.pod.DeletionTimestamp == nil || shown == nil || w.config.API.Status.Removing(shown.UID) {
		return false, nil
	}
	w.report(ctx, r.pod, w.lastObserved(), true)
	return false, nil
}

// cleanUp removes the dead containers and logs of a pod that no source has.
func (w *worker) cleanUp(ctx context.Context, r request) (done bool, err error) {
	if !r.removed {
		return false, nil
	}
	observed, err := w.runtime.remove(ctx, w.uid)
	if err != nil {
		return false, err
	}
	pod := r.pod
	if w.orphan && observed.Name != "" {
		pod = w.restored(observed)
	}
	if w.static && w.config.API != nil {
		if mirror := w.peers.mirrorOf(pod); mirror != nil {
			if err := w.config.API.Mirrors.Delete(ctx, mirror); err != nil {
				return false, err
			}
		}
	}
	logs := spec.PodLogDirectory(w.config.Node.PodLogsDir, pod.Namespace, pod.Name, string(w.uid))
	return true, w.config.Files.RemoveAll(logs)
}

// remove removes the pod's dead containers and sandboxes, and returns them.
func (k *kuberuntime) remove(ctx context.Context, uid types.UID) (*cri.Pod, error) {
	observed, err := cri.Observe(ctx, k.Runtime, uid)
	if err != nil {
		return nil, err
	}
	for _, c := range observed.Containers {
		if err := k.Runtime.RemoveContainer(ctx, c.ID); err != nil && !cri.IsNotFound(err) {
			return nil, err
		}
	}
	for _, s := range observed.Sandboxes {
		if err := k.Runtime.RemovePodSandbox(ctx, s.ID); err != nil && !cri.IsNotFound(err) {
			return nil, err
		}
	}
	return observed, nil
}

// killContainers stops the containers of a plan, all at the same time.
func (k *kuberuntime) killContainers(ctx context.Context, pod *v1.Pod, observed *cri.Pod, kills []plan.Kill) error {
	group, ctx := supervise.Together(ctx)
	for _, kill := range kills {
		c := observed.FindID(kill.ID)
		if c == nil {
			continue
		}
		group.Go(func() error {
			return k.killContainer(ctx, pod, c, podIP(pod, observed, k.Node.IPs), nil, GracePeriod(pod, kill.Grace), kill.Message)
		})
	}
	return group.Wait()
}

// killPod stops the pod's containers and then its sandboxes. The preStop hooks
// of all run at once; sidecars are told to end after the others, the last one
// first.
func (k *kuberuntime) killPod(ctx context.Context, pod *v1.Pod, observed *cri.Pod, grace int64) error {
	sidecars := map[string]bool{}
	for i := range pod.Spec.InitContainers {
		if podutil.IsSidecar(&pod.Spec.InitContainers[i]) {
			sidecars[pod.Spec.InitContainers[i].Name] = true
		}
	}
	ip := podIP(pod, observed, k.Node.IPs)
	group, regular := supervise.Apart(ctx), supervise.Apart(ctx)
	for _, c := range observed.Running() {
		if !sidecars[c.Name] {
			regular.Go(func() error { return k.killContainer(ctx, pod, c, ip, nil, grace, "") })
		}
	}
	ended := make(chan struct{}) // the regular containers
	group.Go(func() error {
		defer close(ended)
		return regular.Wait()
	})
	turn := ended
	for i := len(pod.Spec.InitContainers) - 1; i >= 0; i-- {
		for _, c := range observed.Running() {
			if c.Name != pod.Spec.InitContainers[i].Name || !sidecars[c.Name] {
				continue
			}
			own, next := turn, make(chan struct{})
			group.Go(func() error {
				defer close(next)
				return k.killContainer(ctx, pod, c, ip, own, grace, "")
			})
			turn = next
		}
	}
	if err := group.Wait(); err != nil {
		return err
	}
	sandboxes := supervise.Apart(ctx)
	for _, s := range observed.Sandboxes {
		if s.Ready || len(s.IPs) > 0 {
			sandboxes.Go(func() error {
				if err := k.Runtime.StopPodSandbox(ctx, s.ID); err != nil && !cri.IsNotFound(err) {
					if ctx.Err() == nil {
						k.Recorder.Eventf(Reference(pod), v1.EventTypeWarning, "FailedKillPod", "error killing pod: failed to \"KillPodSandbox\" for %q with KillPodSandboxError: %q", pod.UID, err)
					}
					return fmt.Errorf("stop sandbox %s: %w", s.ID, err)
				}
				return nil
			})
		}
	}
	return sandboxes.Wait()
}

// killContainer runs the preStop hook, against the pod's ip, waits for the
// container's turn (nil: now) and stops it, all within grace seconds; what is
// left of them is the time between SIGTERM and SIGKILL.
func (k *kuberuntime) killContainer(ctx context.Context, pod *v1.Pod, c *cri.Container, ip string, turn <-chan struct{}, grace int64, message string) error {
	if message == "" {
		message = "Stopping container " + c.Name
	}
	k.Recorder.Event(ContainerReference(pod, c.Name), v1.EventTypeNormal, "Killing", message)
	began, whole := time.Now(), grace
	declared := podutil.Container(&pod.Spec, c.Name)
	if grace > 0 && declared != nil && declared.Lifecycle != nil && declared.Lifecycle.PreStop != nil {
		hookCtx, cancel := context.WithTimeout(ctx, timespan.Seconds(grace))
		target := probe.Target{Pod: pod, Container: declared, ContainerID: c.ID, IP: ip}
		if err := k.hook(hookCtx, declared.Lifecycle.PreStop, target); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "The preStop hook failed", "container", c.Name)
			k.Recorder.Event(ContainerReference(pod, c.Name), v1.EventTypeWarning, "FailedPreStopHook", "PreStopHook failed")
		}
		cancel()
		grace = whole - int64(time.Since(began).Seconds())
	}
	if turn != nil {
		over := time.NewTimer(timespan.Seconds(max(grace, 0)))
		defer over.Stop()
		select {
		case <-turn:
		case <-over.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		grace = whole - int64(time.Since(began).Seconds())
	}
	// The runtime makes a time.Duration of it.
	left := int64(timespan.Seconds(max(grace, minimumGrace)) / time.Second)
	if err := k.Runtime.StopContainer(ctx, c.ID, left); err != nil && !cri.IsNotFound(err) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("stop container %s: %w", c.Name, err)
	}
	klog.FromContext(ctx).V(3).Info("Stopped container", "container", c.Name, "took", time.Since(began))
	return nil
}
