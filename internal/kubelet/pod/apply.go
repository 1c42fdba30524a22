package pod

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/kubelet/admit"
	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/kubelet/csi"
	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/image"
	"github.com/coracle-io/coracle/internal/kubelet/plan"
	"github.com/coracle-io/coracle/internal/kubelet/spec"
	"github.com/coracle-io/coracle/internal/kubelet/volume"
	"github.com/coracle-io/coracle/internal/supervise"
)

// apply carries out a plan: it kills containers, creates the sandbox while it
// pulls images, and then starts the containers one after another.
func (w *worker) apply(ctx context.Context, pod *v1.Pod, observed *cri.Pod, p *plan.Plan) error {
	w.retries.running(observed, p)
	for name, wait := range p.Waiting {
		if w.retries.backOff(pod, name, wait) {
			w.config.Recorder.Eventf(ContainerReference(pod, name), v1.EventTypeWarning, "BackOff", "Back-off restarting failed container %s in pod %s", name, spec.PodName(pod))
		}
	}
	if p.KillPod && p.CreateSandbox {
		w.config.Recorder.Event(Reference(pod), v1.EventTypeNormal, "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")
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
	if p.CreateSandbox && !w.critical(pod) {
		if err := w.config.room(pod); err != nil {
			w.retries.failedToStart(wholePod)
			return err
		}
	}
	paths, err := w.mount(ctx, pod, observed)
	if err != nil {
		return err
	}
	w.resize(ctx, pod, observed, p)
	if most := plan.MaxEphemeral(&pod.Spec); len(pod.Spec.EphemeralContainers) > most {
		w.config.Recorder.Eventf(Reference(pod), v1.EventTypeWarning, "TooManyContainers", "Ephemeral containers after the first %d are not started: a node runs at most %d containers of a pod", most, plan.MaxContainers)
	}
	if err := w.prepare(ctx, pod, observed, p.CreateSandbox); err != nil {
		return err
	}
	if !p.CreateSandbox && len(p.Start) == 0 {
		return nil
	}
	return w.start(ctx, pod, observed, p, paths)
}

// room returns an error while the kubelet has no memory of its own for another pod.
// The pod waits with its back-off: one that was refused would be created again and
// again by its controller.
func (c *Config) room(pod *v1.Pod) error {
	err := c.Shortage()
	if err == nil {
		return nil
	}
	c.Recorder.Eventf(Reference(pod), v1.EventTypeWarning, "FailedCreatePodSandBox", "Failed to create pod sandbox: the kubelet has no memory for another pod: %v", err)
	return fmt.Errorf("the kubelet has no memory for another pod: %w", err)
}

// A pod without a network looks each networkPeriod whether the runtime has one, as in
// upstream, and tells that it waits each networkTelling: a pod has few events.
const (
	networkPeriod  = time.Second
	networkTelling = 5 * time.Minute
)

// hasNetwork reports whether the runtime has the network that a new sandbox of the pod
// needs. told is when an event last told that it has not.
func (c *Config) hasNetwork(pod *v1.Pod, told *time.Time) bool {
	if pod.Spec.HostNetwork {
		return true
	}
	why := c.NodeStatus.NetworkNotReady()
	if why != "" && time.Since(*told) >= networkTelling {
		*told = time.Now()
		c.Recorder.Eventf(Reference(pod), v1.EventTypeWarning, "NetworkNotReady", "network is not ready: %s", why)
	}
	return why == ""
}

// prepare prepares the devices of the pod's resource claims for a new sandbox. A
// pod that has one was prepared before; it is prepared again only if that is not
// known any more.
func (w *worker) prepare(ctx context.Context, pod *v1.Pod, observed *cri.Pod, create bool) error {
	if !create && (observed.ReadySandbox() == nil || w.config.Placement.Prepared(pod)) {
		return nil
	}
	err := w.config.Placement.Prepare(ctx, pod)
	if err == nil {
		return nil
	}
	if ctx.Err() == nil {
		w.config.Recorder.Eventf(Reference(pod), v1.EventTypeWarning, "FailedPrepareDynamicResources", "Failed to prepare dynamic resources: %v", err)
	}
	w.retries.failedToStart(wholePod)
	return err
}

// mount sets up the pod's volumes and returns their paths. A volume that cannot
// be updated is retried later; containers start with its old content. A pod whose
// volume the node has no room for ends: its controller makes another one elsewhere.
func (w *worker) mount(ctx context.Context, pod *v1.Pod, observed *cri.Pod) (map[string]string, error) {
	failed := func(err error) {
		if ctx.Err() != nil || errors.Is(err, csi.ErrAttaching) {
			return
		}
		reason := "FailedMount"
		if named := new(csi.Failure); errors.As(err, &named) {
			reason = named.Reason()
		}
		w.config.Recorder.Event(Reference(pod), v1.EventTypeWarning, reason, err.Error())
	}
	paths, outdated, err := w.config.Volumes.SetUp(ctx, pod, volume.Facts{PodIPs: ips(observed), HostIPs: w.config.Node.IPs.Now(), Allocatable: w.config.NodeStatus.Allocatable()})
	if errors.Is(err, csi.ErrAttachmentLimit) {
		w.refuse(pod, observed, &admit.Rejection{Reason: "VolumeAttachmentLimitExceeded", Message: csi.ErrAttachmentLimit.Error()})
		w.inbox.wake()
		return nil, err
	}
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
	klog.FromContext(ctx).Error(errors.Join(outdated...), "Volumes of the pod cannot be updated and keep their old content, will try again", "in", w.remountAfter())
	return paths, nil
}

// maxRemount is the longest time between two attempts to update a volume.
const maxRemount = 2 * time.Minute

// remountAfter returns when to retry the volumes that are out of date, 0 if
// none is.
func (w *worker) remountAfter() time.Duration {
	if w.outdated == 0 {
		return 0
	}
	return min(500*time.Millisecond<<min(w.outdated-1, 8), maxRemount)
}

// ips returns the addresses of the ready sandbox.
func ips(observed *cri.Pod) []string {
	if s := observed.ReadySandbox(); s != nil {
		return s.IPs
	}
	return nil
}

// isolate waits until the pod's network policies are enforced. A static pod does
// not depend on that: it may be the API server itself.
func (w *worker) isolate(ctx context.Context, pod *v1.Pod, ips []string) error {
	if w.config.NetworkPolicies == nil || pod.Spec.HostNetwork {
		return nil
	}
	err := w.config.NetworkPolicies.Admit(ctx, pod, w.inbox.static, ips)
	if err == nil || ctx.Err() != nil {
		return err
	}
	if w.inbox.static {
		klog.FromContext(ctx).Error(err, "Starting a static pod that may not be isolated by network policies")
		return nil
	}
	w.config.Recorder.Eventf(Reference(pod), v1.EventTypeWarning, "NetworkNotReady", "Waiting with the start of containers: %v", err)
	return err
}

// start creates the sandbox, pulls the images at the same time, and starts the
// containers of the plan in their order, each once its images are there.
func (w *worker) start(ctx context.Context, pod *v1.Pod, observed *cri.Pod, p *plan.Plan, paths map[string]string) error {
	userNamespace, err := w.config.UserNamespaces.Mapping(pod)
	if err != nil {
		recordSandboxFailure(w.config.Recorder, pod, err)
		return err
	}
	config, err := w.sandboxConfig(pod, p.Attempt, userNamespace)
	if err != nil {
		return err
	}
	group := supervise.NewTasks(ctx)
	defer func() { _ = group.Wait() }()
	pulls := w.runtime.startPulls(ctx, group, pod, p.Start, config)
	id, addresses, err := w.sandbox(ctx, pod, observed, p, config)
	if err != nil {
		w.retries.failedToStart(wholePod)
		return err
	}
	w.retries.started(wholePod)
	if p.CreateSandbox && slices.ContainsFunc(pulls, (*pull).pending) {
		w.inbox.reportNow()
	}
	run := &running{
		config: w.config, runtime: w.runtime, pod: pod, static: w.inbox.static, observed: observed, sandbox: config,
		sandboxID: id, ips: addresses, paths: paths, userNamespace: userNamespace, created: w.retries.created,
	}
	failures, err := w.startContainers(ctx, run, p.Start, pulls)
	if failures > 0 && p.CreateSandbox {
		w.metrics.failedInSandbox(pod)
	}
	if err != nil || !p.CreateSandbox {
		return err
	}
	w.runtime.background.Go(ctx, func() {
		supervise.Contain(ctx, "containers", func() { w.runtime.removeOlderSandboxes(context.WithoutCancel(ctx), observed) })
	})
	return nil
}

// sandboxConfig returns the configuration of the pod's sandbox for the runtime.
func (w *worker) sandboxConfig(pod *v1.Pod, attempt uint32, userNamespace *runtimeapi.UserNamespace) (*runtimeapi.PodSandboxConfig, error) {
	node := w.config.Node
	if path := *node.Configuration.ResolverConfig; path != "" { // it may have changed since the last sandbox
		node.ResolvConf, _ = w.config.Files.ReadFile(path, files.MaxHostFile)
	}
	config, err := spec.Sandbox(pod, &node, attempt, w.config.CGroups.Parent(pod), userNamespace)
	if err != nil {
		recordSandboxFailure(w.config.Recorder, pod, err)
		return nil, err
	}
	for _, warning := range spec.DNSWarnings(pod, &node) {
		w.config.Recorder.Event(Reference(pod), v1.EventTypeWarning, "DNSConfigForming", warning)
	}
	if spec.ClusterDNSMissing(pod, &node) {
		w.config.Recorder.Eventf(Reference(pod), v1.EventTypeWarning, "MissingClusterDNS", "pod: %q. kubelet does not have ClusterDNS IP configured and cannot create Pod using %q policy. Falling back to %q policy.", spec.PodName(pod), pod.Spec.DNSPolicy, v1.DNSDefault)
	}
	return config, nil
}

func recordSandboxFailure(recorder record.EventRecorder, pod *v1.Pod, err error) {
	recorder.Eventf(Reference(pod), v1.EventTypeWarning, "FailedCreatePodSandBox", "Failed to create pod sandbox: %v", err)
}

// sandbox returns the id and the addresses of the pod's sandbox, which it creates
// if the plan says so, once the network policies of the pod are enforced.
func (w *worker) sandbox(ctx context.Context, pod *v1.Pod, observed *cri.Pod, p *plan.Plan, config *runtimeapi.PodSandboxConfig) (id string, addresses []string, err error) {
	id, addresses = p.SandboxID, ips(observed)
	if p.CreateSandbox {
		if id, addresses, err = w.runtime.createSandbox(ctx, pod, observed, config, w.peers.Active()); err != nil {
			return "", nil, err
		}
	}
	return id, addresses, w.isolate(ctx, pod, addresses)
}

// startContainers starts containers one after another, each once its images are
// pulled. After a failure it goes on with the next one. The error leaves out the
// failures that a later sync handles, which failures counts, too: of pulls, and of
// containers that exist.
func (w *worker) startContainers(ctx context.Context, run *running, starts []plan.Start, pulls []*pull) (failures int, err error) {
	var failed []error
	for i, s := range starts {
		kind := typeOf(&run.pod.Spec, s.Container.Name)
		w.metrics.startedContainers.WithLabelValues(kind).Inc()
		found, err := pulls[i].wait()
		if err == nil {
			err = run.container(ctx, s, found)
		}
		if err == nil {
			w.retries.started(s.Container.Name)
			continue
		}
		if ctx.Err() != nil {
			return failures, context.Canceled
		}
		failures++
		w.retries.setCause(s.Container.Name, err)
		var reason *startError
		if waits := new(image.Error); errors.As(err, &waits) {
			w.metrics.failedContainers.WithLabelValues(waits.Reason, kind).Inc()
			w.retries.failedToStart(s.Container.Name)
			continue
		} else if errors.As(err, &reason) {
			w.metrics.failedContainers.WithLabelValues(reason.reason, kind).Inc()
			if reason.deferred {
				continue
			}
		}
		w.retries.failedToStart(s.Container.Name)
		failed = append(failed, err)
	}
	return failures, errors.Join(failed...)
}
