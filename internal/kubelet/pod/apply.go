package pod

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/kubelet/image"
	"github.com/coracle-io/coracle/internal/kubelet/plan"
	"github.com/coracle-io/coracle/internal/kubelet/spec"
	"github.com/coracle-io/coracle/internal/kubelet/volume"
	"github.com/coracle-io/coracle/internal/supervise"
)

// apply carries out a plan: kill, then sandbox and images side by side, then
// the containers one after another.
func (w *worker) apply(ctx context.Context, pod *v1.Pod, observed *cri.Pod, p *plan.Plan) error {
	w.retries.runs(observed, p)
	for name, wait := range p.Waiting {
		if w.retries.backOff(pod, name, wait) {
			w.config.Recorder.Eventf(ContainerReference(pod, name), v1.EventTypeWarning, "BackOff", "Back-off restarting failed container %s in pod %s", name, spec.PodName(pod))
		}
	}
	if p.KillPod {
		if err := w.runtime.killPod(ctx, pod, observed, GracePeriod(pod, nil)); err != nil {
			return err
		}
	}
	if err := w.runtime.killContainers(ctx, pod, observed, p.Kill); err != nil {
		return err
	}
	if p.KillPod && !p.CreateSandbox {
		return nil
	}
	paths, err := w.mount(ctx, pod, observed)
	if err != nil {
		return err
	}
	w.resize(ctx, pod, observed)
	if !p.CreateSandbox && len(p.Start) == 0 {
		return nil
	}
	return w.start(ctx, pod, observed, p, paths)
}

// mount sets up the pod's volumes. One that cannot be brought up to date is
// tried again later; the pod's containers start with what it has.
func (w *worker) mount(ctx context.Context, pod *v1.Pod, observed *cri.Pod) (map[string]string, error) {
	failed := func(err error) {
		if ctx.Err() == nil {
			w.config.Recorder.Event(Reference(pod), v1.EventTypeWarning, "FailedMount", err.Error())
		}
	}
	node := w.config.node()
	paths, outdated, err := w.config.Volumes.SetUp(ctx, pod, volume.Facts{PodIPs: ips(observed), HostIPs: node.IPs, Allocatable: node.Allocatable})
	if err != nil {
		failed(err)
		return nil, err
	}
	for _, err := range outdated {
		failed(err)
	}
	if len(outdated) == 0 {
		w.outdated = 0
		return paths, nil
	}
	w.outdated++
	klog.FromContext(ctx).Error(errors.Join(outdated...), "Volumes of the pod cannot be brought up to date and stay as they are, will try again", "in", w.remountAfter())
	return paths, nil
}

// maxRemount is how long at most a volume that cannot be brought up to date
// waits for the next attempt.
const maxRemount = 2 * time.Minute

// remountAfter is when the volumes that are out of date are tried again; 0 if
// none is.
func (w *worker) remountAfter() time.Duration {
	if w.outdated == 0 {
		return 0
	}
	return min(500*time.Millisecond<<min(w.outdated-1, 8), maxRemount)
}

func ips(observed *cri.Pod) []string {
	if s := observed.ReadySandbox(); s != nil {
		return s.IPs
	}
	return nil
}

// start makes the sandbox, fetches the images meanwhile and starts the
// containers of the plan.
func (w *worker) start(ctx context.Context, pod *v1.Pod, observed *cri.Pod, p *plan.Plan, paths map[string]string) error {
	node, recorder := w.config.node(), w.config.Recorder
	userNamespace, err := w.config.UserNamespaces.Mapping(pod)
	if err != nil {
		return err
	}
	config, err := spec.Sandbox(pod, node, p.Attempt, w.config.CGroups.Parent(pod), userNamespace)
	if err != nil {
		recorder.Eventf(Reference(pod), v1.EventTypeWarning, "FailedCreatePodSandBox", "Failed to create pod sandbox: %v", err)
		return err
	}
	if spec.ClusterDNSMissing(pod, node) {
		recorder.Eventf(Reference(pod), v1.EventTypeWarning, "MissingClusterDNS", "pod: %q. kubelet does not have ClusterDNS IP configured and cannot create Pod using %q policy. Falling back to %q policy.", spec.PodName(pod), pod.Spec.DNSPolicy, v1.DNSDefault)
	}
	images := make([]*runtimeapi.Image, len(p.Start))
	failures := make([]error, len(p.Start))
	group := supervise.Apart(ctx)
	for i, s := range p.Start {
		group.Go(func() error {
			failures[i] = supervise.Call(func() (err error) {
				images[i], err = w.runtime.pullImages(ctx, pod, s.Container, config)
				return err
			})
			return nil
		})
	}
	sandboxID, sandboxIPs := p.SandboxID, ips(observed)
	var sandboxErr error
	if p.CreateSandbox {
		sandboxID, sandboxIPs, sandboxErr = w.runtime.createSandbox(ctx, pod, observed, config, w.peers.Active())
	}
	_ = group.Wait()
	if sandboxErr != nil {
		w.retries.failedToStart(wholePod)
		return sandboxErr
	}
	w.retries.started(wholePod)
	run := &running{
		kuberuntime: w.runtime, pod: pod, observed: observed, node: node, config: config, sandboxID: sandboxID, ips: sandboxIPs,
		paths: paths, userNamespace: userNamespace, created: w.retries.created,
	}
	var failed []error
	for i, s := range p.Start {
		err := failures[i]
		if err == nil {
			err = run.container(ctx, s, images[i])
		}
		if err == nil {
			w.retries.started(s.Container.Name)
			continue
		}
		if ctx.Err() != nil {
			return context.Canceled
		}
		w.retries.note(s.Container.Name, err)
		var reason *startError
		if waits := new(image.Error); errors.As(err, &waits) {
			w.retries.failedToStart(s.Container.Name)
			continue
		} else if errors.As(err, &reason) && reason.quiet {
			continue
		}
		w.retries.failedToStart(s.Container.Name)
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}
