package kubelet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/kubelet/image"
	"github.com/coracle-io/coracle/internal/kubelet/plan"
	"github.com/coracle-io/coracle/internal/kubelet/spec"
	"github.com/coracle-io/coracle/internal/kubelet/status"
	"github.com/coracle-io/coracle/internal/kubelet/volume"
	"github.com/coracle-io/coracle/internal/supervise"
)

// apply carries out a plan: kill, then sandbox and images side by side, then
// the containers one after another.
func (w *worker) apply(ctx context.Context, pod *v1.Pod, observed *cri.Pod, p *plan.Plan) error {
	k := w.k
	for name := range w.waiting {
		if _, still := p.Waiting[name]; !still && observed.Find(name) != nil && observed.Find(name).State == cri.Running {
			delete(w.waiting, name)
		}
	}
	for name, wait := range p.Waiting {
		w.backOff(pod, name, wait)
	}
	if p.KillPod {
		if err := k.killPod(ctx, pod, observed, gracePeriod(pod, nil)); err != nil {
			return err
		}
	}
	if err := w.kills(ctx, pod, observed, p.Kill); err != nil {
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
	k := w.k
	failed := func(err error) {
		if ctx.Err() == nil {
			k.recorder.Event(reference(pod), v1.EventTypeWarning, "FailedMount", err.Error())
		}
	}
	paths, outdated, err := k.volumes.SetUp(ctx, pod, volume.Facts{PodIPs: ips(observed), HostIPs: k.facts.IPs, Allocatable: k.nodeFacts().Allocatable})
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

// backOff notes that a container has to wait before it runs again.
func (w *worker) backOff(pod *v1.Pod, name string, wait plan.Waiting) {
	if _, known := w.waiting[name]; known && w.waiting[name].Reason == "CrashLoopBackOff" {
		return
	}
	w.waiting[name] = status.Cause{
		Reason:  "CrashLoopBackOff",
		Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s", wait.Delay, name, spec.PodName(pod)),
	}
	w.k.recorder.Eventf(containerReference(pod, name), v1.EventTypeWarning, "BackOff", "Back-off restarting failed container %s in pod %s", name, spec.PodName(pod))
}

// kills stops the containers of a plan, all at the same time.
func (w *worker) kills(ctx context.Context, pod *v1.Pod, observed *cri.Pod, kills []plan.Kill) error {
	group, ctx := supervise.Together(ctx)
	for _, kill := range kills {
		c := observed.FindID(kill.ID)
		if c == nil {
			continue
		}
		group.Go(func() error {
			grace := gracePeriod(pod, kill.Grace)
			return w.k.killContainer(ctx, pod, c, grace, kill.Message)
		})
	}
	return group.Wait()
}

// start makes the sandbox, fetches the images meanwhile and starts the
// containers of the plan.
func (w *worker) start(ctx context.Context, pod *v1.Pod, observed *cri.Pod, p *plan.Plan, paths map[string]string) error {
	k := w.k
	node := k.nodeFacts()
	parent := k.cgroups.Parent(pod)
	userNamespace, err := k.userns.Mapping(pod)
	if err != nil {
		return err
	}
	attempt := p.Attempt
	config, err := spec.Sandbox(pod, node, attempt, parent, userNamespace)
	if err != nil {
		k.recorder.Eventf(reference(pod), v1.EventTypeWarning, "FailedCreatePodSandBox", "Failed to create pod sandbox: %v", err)
		return err
	}
	if spec.ClusterDNSMissing(pod, node) {
		k.recorder.Eventf(reference(pod), v1.EventTypeWarning, "MissingClusterDNS", "pod: %q. kubelet does not have ClusterDNS IP configured and cannot create Pod using %q policy. Falling back to %q policy.", spec.PodName(pod), pod.Spec.DNSPolicy, v1.DNSDefault)
	}
	images := make([]*runtimeapi.Image, len(p.Start))
	failures := make([]error, len(p.Start))
	group := supervise.Apart(ctx)
	for i, s := range p.Start {
		group.Go(func() error {
			failures[i] = supervise.Call(func() (err error) {
				images[i], err = w.image(ctx, pod, s.Container, config)
				return err
			})
			return nil
		})
	}
	sandboxID, sandboxIPs := p.SandboxID, ips(observed)
	var sandboxErr error
	if p.CreateSandbox {
		sandboxID, sandboxIPs, sandboxErr = k.createSandbox(ctx, pod, observed, config)
	}
	_ = group.Wait()
	if sandboxErr != nil {
		w.failedToStart(wholePod)
		return sandboxErr
	}
	delete(w.hold, wholePod)
	run := &running{
		worker: w, pod: pod, observed: observed, node: node, config: config, sandboxID: sandboxID, ips: sandboxIPs,
		paths: paths, userNamespace: userNamespace,
	}
	var failed []error
	for i, s := range p.Start {
		err := failures[i]
		if err == nil {
			err = run.container(ctx, s, images[i])
		}
		if err == nil {
			delete(w.waiting, s.Container.Name)
			delete(w.hold, s.Container.Name)
			continue
		}
		if ctx.Err() != nil {
			return context.Canceled
		}
		w.note(s.Container.Name, err)
		var reason *startError
		if waits := new(image.Error); errors.As(err, &waits) {
			w.failedToStart(s.Container.Name)
			continue
		} else if errors.As(err, &reason) && reason.quiet {
			continue
		}
		w.failedToStart(s.Container.Name)
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// note remembers for the status why a container does not run.
func (w *worker) note(name string, err error) {
	var waits *image.Error
	var fails *startError
	switch {
	case errors.As(err, &waits):
		w.waiting[name] = status.Cause{Reason: waits.Reason, Message: waits.Message}
	case errors.As(err, &fails):
		w.waiting[name] = status.Cause{Reason: fails.reason, Message: fails.Error()}
	default:
		w.waiting[name] = status.Cause{Reason: "CreateContainerError", Message: err.Error()}
	}
}

// createSandbox makes the pod's cgroup and sandbox and returns its id and addresses.
func (k *Kubelet) createSandbox(ctx context.Context, pod *v1.Pod, observed *cri.Pod, config *runtimeapi.PodSandboxConfig) (id string, ips []string, err error) {
	fail := func(err error) (string, []string, error) {
		if ctx.Err() == nil {
			k.recorder.Eventf(reference(pod), v1.EventTypeWarning, "FailedCreatePodSandBox", "Failed to create pod sandbox: %v", err)
		}
		return "", nil, fmt.Errorf("create the pod's sandbox: %w", err)
	}
	if err := k.cgroups.ApplyClasses(k.active()); err != nil {
		return fail(err)
	}
	if err := k.cgroups.Apply(pod); err != nil {
		k.recorder.Eventf(reference(pod), v1.EventTypeWarning, "FailedToCreatePodContainer", "unable to ensure pod container exists: %v", err)
		return "", nil, err
	}
	if err := k.config.Files.MkdirAll(config.GetLogDirectory(), 0o755); err != nil {
		return fail(err)
	}
	handler, err := k.runtimeHandler(ctx, pod, observed)
	if err != nil {
		return fail(err)
	}
	// A sandbox that is being made is not abandoned half way: the runtime
	// would keep its network.
	began := time.Now()
	id, err = k.runtime.RunPodSandbox(context.WithoutCancel(ctx), config, handler)
	if err != nil {
		return fail(err)
	}
	response, err := k.runtime.PodSandboxStatus(ctx, id, false)
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
		ips = k.facts.IPs
	}
	return id, ips, nil
}

// runtimeHandler is the handler of the pod's RuntimeClass. The class of a pod
// and the handler of a class never change: the pod's last sandbox knows it,
// also while the API server is away.
func (k *Kubelet) runtimeHandler(ctx context.Context, pod *v1.Pod, observed *cri.Pod) (string, error) {
	if pod.Spec.RuntimeClassName == nil || *pod.Spec.RuntimeClassName == "" || k.config.Client == nil {
		return "", nil
	}
	if len(observed.Sandboxes) > 0 && observed.Sandboxes[0].Handler != "" {
		return observed.Sandboxes[0].Handler, nil
	}
	class, err := k.config.Client.Kubernetes.NodeV1().RuntimeClasses().Get(ctx, *pod.Spec.RuntimeClassName, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("failed to get runtime class %q: %w", *pod.Spec.RuntimeClassName, err)
	}
	return class.Handler, nil
}

// image makes sure of a container's image.
func (w *worker) image(ctx context.Context, pod *v1.Pod, c *v1.Container, config *runtimeapi.PodSandboxConfig) (*runtimeapi.Image, error) {
	k := w.k
	event := func(eventType, reason, message string) {
		k.recorder.Event(containerReference(pod, c.Name), eventType, reason, message)
	}
	credentials := func(name string) []image.Credential {
		var secrets []*v1.Secret
		var missing []string
		for _, ref := range pod.Spec.ImagePullSecrets {
			if k.objects == nil {
				continue
			}
			secret, err := k.objects.Secret(ctx, pod.Namespace, ref.Name)
			if err != nil {
				missing = append(missing, ref.Name)
				continue
			}
			secrets = append(secrets, secret)
		}
		if len(missing) > 0 {
			k.recorder.Eventf(reference(pod), v1.EventTypeWarning, "FailedToRetrieveImagePullSecret",
				"Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed.", strings.Join(missing, ", "))
		}
		return image.Credentials(name, secrets)
	}
	found, err := k.puller.Ensure(ctx, c, string(pod.UID), credentials, config, event)
	if err != nil {
		var waits *image.Error
		if errors.As(err, &waits) {
			event(v1.EventTypeWarning, "Failed", "Error: "+waits.Reason)
		}
		return nil, err
	}
	for _, as := range volumeImages(pod, c) {
		if _, err := k.puller.Ensure(ctx, as, string(pod.UID), credentials, config, event); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// volumeImages are the images that the container mounts as volumes, each in the
// form of a container that runs it.
func volumeImages(pod *v1.Pod, c *v1.Container) (images []*v1.Container) {
	for i := range pod.Spec.Volumes {
		vol := &pod.Spec.Volumes[i]
		if vol.Image != nil && slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return m.Name == vol.Name }) {
			images = append(images, &v1.Container{Name: c.Name, Image: vol.Image.Reference, ImagePullPolicy: vol.Image.PullPolicy})
		}
	}
	return images
}
