package pod

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/kubelet/plan"
	"github.com/coracle-io/coracle/internal/kubelet/probe"
	"github.com/coracle-io/coracle/internal/kubelet/spec"
	"github.com/coracle-io/coracle/internal/kubelet/status"
	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/supervise"
	"github.com/coracle-io/coracle/internal/timespan"
)

// minimumGrace is how many seconds every container gets to exit by itself.
const minimumGrace = 2

// GracePeriod returns how many seconds the pod's containers have to exit. override,
// which may be nil, never gives a pod more time than its deletion.
func GracePeriod(pod *v1.Pod, override *int64) int64 {
	deletion := pod.DeletionGracePeriodSeconds
	switch {
	case override != nil && deletion != nil:
		return min(*override, *deletion)
	case override != nil:
		return *override
	case deletion != nil:
		return *deletion
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		return *pod.Spec.TerminationGracePeriodSeconds
	}
	return v1.DefaultTerminationGracePeriodSeconds
}

// terminate ends the pod: its containers, sandboxes, control group and volumes.
// Then it reports the last status, and with it the deletion from the API
// server.
func (w *worker) terminate(ctx context.Context, r request, observed *cri.Pod) (done bool, err error) {
	pod := r.pod
	if w.orphan {
		pod = restored(w.uid, observed)
	}
	w.config.Probes.StopKind(w.uid, probe.Liveness, probe.Startup)
	if len(observed.Running()) > 0 {
		w.report(ctx, pod, observed, false)
	}
	grace := GracePeriod(pod, r.grace)
	work, finish := w.inbox.interruptible(ctx, grace)
	defer finish()
	err = w.whileReporting(ctx, pod, w.inbox.woken, func() error { return w.runtime.killPod(work, pod, observed, grace) })
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
	w.metrics.ended(pod, w.inbox.setObserved(final), final, w.runtime.started)
	if len(final.Running()) > 0 {
		return false, fmt.Errorf("%d containers of the pod still run after they were stopped", len(final.Running()))
	}
	w.removeCGroup(ctx) // what is left in it may use the volumes and devices
	if err := errors.Join(w.config.Volumes.TearDown(ctx, w.uid), w.config.Placement.Unprepare(ctx, w.uid)); err != nil {
		return false, err
	}
	final = lasting(final)
	w.inbox.setObserved(final)
	w.asked = nil
	w.inbox.end() // from now on, the containers may be removed
	w.config.Placement.Release(w.uid)
	w.report(ctx, pod, final, true)
	if w.config.API != nil {
		w.config.API.Objects.Forget(w.uid) // nothing of the pod reads them any more
	}
	klog.FromContext(ctx).V(2).Info("Pod ended")
	return w.cleanUp(ctx, w.inbox.request())
}

// lasting returns what is needed of a pod that has ended: what the status shows of its
// containers.
func lasting(observed *cri.Pod) *cri.Pod {
	names := map[string]bool{}
	for _, c := range observed.Containers {
		names[c.Name] = true
	}
	most := status.MostMessage(len(names))
	out := *observed
	out.Containers = nil
	for _, c := range observed.Containers {
		kept := *c
		kept.Annotations, kept.Mounts, kept.Resources, kept.User = nil, nil, nil, nil
		kept.Message = strings.Clone(c.Message[:min(len(c.Message), most)])
		for _, m := range c.Mounts {
			if m.GetRecursiveReadOnly() {
				kept.Mounts = append(kept.Mounts, &runtimeapi.Mount{ContainerPath: m.GetContainerPath(), RecursiveReadOnly: true})
			}
		}
		out.Containers = append(out.Containers, &kept)
	}
	return &out
}

func (w *worker) removeCGroup(ctx context.Context) {
	if err := w.config.CGroups.End(w.uid); err != nil {
		klog.FromContext(ctx).V(2).Info("The pod's control group is still in use", "err", err)
	}
}

// whileReporting calls work. While work runs, it reports the status of the pod
// whenever changed receives, such as the readiness of a container that still
// serves, or the address of a pod whose images are being pulled.
func (w *worker) whileReporting(ctx context.Context, pod *v1.Pod, changed <-chan struct{}, work func() error) error {
	var err error
	done := make(chan struct{})
	supervise.Go(ctx, func() {
		defer close(done)
		err = supervise.Call(work)
	})
	defer func() { <-done }()
	woken := false
	for {
		select {
		case <-done:
			if woken { // there may be more to do now
				w.inbox.wake()
			}
			return err
		case <-changed:
			woken = true
		}
		observed, err := w.runtime.observe(ctx, pod)
		if err != nil {
			continue
		}
		if r := w.inbox.request(); len(observed.Running()) > 0 || observed.ReadySandbox() != nil && !r.ending() {
			w.metrics.ended(pod, w.inbox.setObserved(observed), observed, w.runtime.started)
			w.report(ctx, pod, observed, false)
		}
	}
}

// restored returns the pod of an orphan as far as its containers describe it.
func restored(uid types.UID, observed *cri.Pod) *v1.Pod {
	pod := cri.RestoredPod(observed)
	pod.UID = uid
	return pod
}

// terminated handles a pod whose containers have all ended: it has the API
// server delete the pod once deletion was requested there.
func (w *worker) terminated(ctx context.Context, r request) (done bool, err error) {
	if done, err := w.cleanUp(ctx, r); done || err != nil {
		return done, err
	}
	if status.IsReduced(r.pod) {
		w.retries.forget()
	}
	shown := w.shown(r.pod)
	if r.pod.DeletionTimestamp == nil || shown == nil || w.config.API.Status.Removing(shown.UID) {
		return false, nil
	}
	w.report(ctx, r.pod, w.inbox.lastObserved(), true)
	return false, nil
}

// cleanUp removes the dead containers and the logs of a pod that no source has, or
// that was evicted: the node needs the room. The API server has to know first that an
// evicted pod has ended, because the next kubelet would start it again. It reports
// whether the pod is done. The mirror pod of a static pod is removed by housekeeping:
// the next pod of that name may be the API server, and does not wait for its answer.
func (w *worker) cleanUp(ctx context.Context, r request) (done bool, err error) {
	if !r.removed && (r.freed || !r.evicted() || !podquery.IsFinished(r.pod)) {
		return false, nil
	}
	if err := w.free(ctx, r.pod); err != nil {
		return false, err
	}
	w.removeCGroup(ctx) // again: it may have been in use before
	return r.removed, nil
}

// free removes the containers, sandboxes and logs of the pod, which has ended. Its
// status stays what it is.
func (w *worker) free(ctx context.Context, pod *v1.Pod) error {
	w.freeing.Lock()
	defer w.freeing.Unlock()
	observed, err := w.runtime.remove(ctx, w.uid)
	if err != nil {
		return err
	}
	if w.orphan && observed.Name != "" {
		pod = restored(w.uid, observed)
	}
	logs := spec.PodLogDirectory(w.config.Node.Configuration.PodLogsDir, pod.Namespace, pod.Name, string(w.uid))
	if err := w.config.Files.RemoveAll(logs); err != nil {
		return err
	}
	w.inbox.setFreed(&cri.Pod{UID: w.uid, Name: pod.Name, Namespace: pod.Namespace})
	return nil
}

// remove removes the pod's containers and sandboxes and returns what it found.
func (k *kuberuntime) remove(ctx context.Context, uid types.UID) (*cri.Pod, error) {
	observed, err := cri.Observe(ctx, k.config.Runtime, uid)
	if err != nil {
		return nil, err
	}
	for _, c := range observed.Containers {
		if err := k.config.Runtime.RemoveContainer(ctx, c.ID); err != nil && !cri.IsNotFound(err) {
			return nil, err
		}
	}
	for _, s := range observed.Sandboxes {
		if err := k.config.Runtime.RemovePodSandbox(ctx, s.ID); err != nil && !cri.IsNotFound(err) {
			return nil, err
		}
	}
	return observed, nil
}

// killContainers stops the containers of a plan concurrently.
func (k *kuberuntime) killContainers(ctx context.Context, pod *v1.Pod, observed *cri.Pod, kills []plan.Kill) error {
	group, ctx := supervise.WithContext(ctx)
	for _, kill := range kills {
		c := observed.FindID(kill.ID)
		if c == nil {
			continue
		}
		group.Go(func() error {
			return k.killContainer(ctx, pod, c, podIP(pod, observed, k.config.Node.IPs.Now()), nil, GracePeriod(pod, kill.Grace), kill.Message)
		})
	}
	return group.Wait()
}

// killPod stops the pod's containers and then its sandboxes. All preStop hooks
// run at once. Sidecars get their stop signals after the regular containers
// have ended, the last sidecar first.
func (k *kuberuntime) killPod(ctx context.Context, pod *v1.Pod, observed *cri.Pod, grace int64) error {
	sidecars := map[string]bool{}
	for i := range pod.Spec.InitContainers {
		if podquery.IsSidecar(&pod.Spec.InitContainers[i]) {
			sidecars[pod.Spec.InitContainers[i].Name] = true
		}
	}
	ip := podIP(pod, observed, k.config.Node.IPs.Now())
	group, regular := supervise.NewTasks(ctx), supervise.NewTasks(ctx)
	for _, c := range observed.Running() {
		if !sidecars[c.Name] {
			regular.Go(func() error { return k.killContainer(ctx, pod, c, ip, nil, grace, "") })
		}
	}
	ended := make(chan struct{}) // closed when the regular containers have ended
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
	sandboxes := supervise.NewTasks(ctx)
	for _, s := range observed.Sandboxes {
		// Also one that has ended, because the runtime has not released its
		// address.
		sandboxes.Go(func() error {
			if err := k.config.Runtime.StopPodSandbox(ctx, s.ID); err != nil && !cri.IsNotFound(err) {
				if ctx.Err() == nil {
					k.config.Recorder.Eventf(Reference(pod), v1.EventTypeWarning, "FailedKillPod", "error killing pod: failed to \"KillPodSandbox\" for %q with KillPodSandboxError: %q", pod.UID, err)
				}
				return fmt.Errorf("stop sandbox %s: %w", s.ID, err)
			}
			return nil
		})
	}
	return sandboxes.Wait()
}

// killContainer runs the preStop hook, for which ip is the pod's address, waits
// until turn is closed, unless it is nil, and stops the container, all within
// grace seconds. The rest of the grace period is the time between SIGTERM and
// SIGKILL.
func (k *kuberuntime) killContainer(ctx context.Context, pod *v1.Pod, c *cri.Container, ip string, turn <-chan struct{}, grace int64, message string) error {
	if message == "" {
		message = "Stopping container " + c.Name
	}
	k.config.Recorder.Event(ContainerReference(pod, c.Name), v1.EventTypeNormal, "Killing", message)
	began, whole := time.Now(), grace
	declared := podquery.Container(&pod.Spec, c.Name)
	if grace > 0 && declared != nil && declared.Lifecycle != nil && declared.Lifecycle.PreStop != nil {
		hookCtx, cancel := context.WithTimeout(ctx, timespan.Seconds(grace))
		target := probe.Target{Pod: pod, Container: declared, ContainerID: c.ID, IP: ip}
		if err := k.hook(hookCtx, declared.Lifecycle.PreStop, target); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "The preStop hook failed", "container", c.Name)
			k.config.Recorder.Event(ContainerReference(pod, c.Name), v1.EventTypeWarning, "FailedPreStopHook", "PreStopHook failed")
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
	// The runtime converts the seconds to a time.Duration.
	left := int64(timespan.Seconds(max(grace, minimumGrace)) / time.Second)
	if err := k.config.Runtime.StopContainer(ctx, c.ID, left); err != nil && !cri.IsNotFound(err) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("stop container %s: %w", c.Name, err)
	}
	klog.FromContext(ctx).V(3).Info("Stopped container", "container", c.Name, "took", time.Since(began))
	return nil
}
