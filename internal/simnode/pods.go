package simnode

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// The commands in place of probes and hooks, which the runtime answers.
const (
	readiness = "simulated readiness"
	success   = "simulated success"
)

// syncFrequency is the interval at which every pod is compared with the runtime.
// The runtime loses no events, so that it is only a precaution.
const syncFrequency = 10 * time.Minute

type watchFunc = func(schema.GroupVersionResource, string, fields.Selector) cache.SharedIndexInformer

// watch returns client.Client.Watch with the pods that can run without a
// machine. A kubelet watches the pods once, when it starts. It is not told of
// those that were deleted while the node was silent. All nodes of a process share
// the Services.
func (n *Node) watch(all watchFunc, shared informers.SharedInformerFactory) watchFunc {
	return func(gvr schema.GroupVersionResource, namespace string, selector fields.Selector) cache.SharedIndexInformer {
		switch gvr {
		case v1.SchemeGroupVersion.WithResource("services"):
			return sharedInformer{shared.Core().V1().Services().Informer()}
		case v1.SchemeGroupVersion.WithResource("pods"):
			n.forgetAll()
			return podInformer{all(gvr, namespace, selector), n}
		}
		return all(gvr, namespace, selector)
	}
}

// sharedInformer is an informer that its factory runs.
type sharedInformer struct{ cache.SharedIndexInformer }

// RunWithContext implements cache.SharedInformer. It waits for the end of ctx.
func (sharedInformer) RunWithContext(ctx context.Context) { <-ctx.Done() }

// SetTransform implements cache.SharedInformer. It always returns an error.
func (sharedInformer) SetTransform(cache.TransformFunc) error {
	return errors.New("cannot transform objects that nodes share")
}

// podInformer notifies handlers of simulated pods. Its store has the pods as
// they are.
type podInformer struct {
	cache.SharedIndexInformer
	node *Node
}

// AddEventHandler implements cache.SharedInformer.
func (i podInformer) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandler(podHandler{i.node, handler})
}

type podHandler struct {
	node    *Node
	handler cache.ResourceEventHandler
}

// OnAdd implements cache.ResourceEventHandler.
func (h podHandler) OnAdd(obj any, initial bool) {
	h.handler.OnAdd(h.node.keep(obj.(*v1.Pod)), initial)
}

// OnUpdate implements cache.ResourceEventHandler.
func (h podHandler) OnUpdate(old, obj any) {
	before, pod := old.(*v1.Pod), obj.(*v1.Pod)
	if before.UID != pod.UID {
		h.node.forget(before)
	}
	h.handler.OnUpdate(old, h.node.keep(pod))
}

// OnDelete implements cache.ResourceEventHandler.
func (h podHandler) OnDelete(obj any) {
	pod := obj
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		pod = unknown.Obj
	}
	h.node.forget(pod.(*v1.Pod))
	h.handler.OnDelete(obj)
}

// keep records a pod of the node and returns its simulated form.
func (n *Node) keep(pod *v1.Pod) *v1.Pod {
	n.mu.Lock()
	n.pods[pod.UID] = pod
	n.mu.Unlock()
	return simulated(pod)
}

func (n *Node) forget(pod *v1.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.pods, pod.UID)
}

func (n *Node) forgetAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.pods)
}

// simulated returns a pod that runs without a machine: probes and hooks over the
// network become commands that the runtime answers, volumes of the machine are
// directories in memory, and no tokens are requested. The node needs no cluster
// DNS. It does not change pod.
func simulated(pod *v1.Pod) *v1.Pod {
	out := *pod
	out.Spec.Volumes = volumes(pod.Spec.Volumes)
	ready := time.Duration(0)
	if p, err := planOf(pod); err == nil {
		ready = p.readyAfter
	}
	out.Spec.InitContainers = containers(pod.Spec.InitContainers, 0)
	out.Spec.Containers = containers(pod.Spec.Containers, ready)
	if out.Spec.DNSPolicy != v1.DNSNone {
		out.Spec.DNSPolicy = v1.DNSDefault // nothing asks
	}
	return &out
}

// volumes replaces what a simulated node does not have.
func volumes(given []v1.Volume) []v1.Volume {
	out := make([]v1.Volume, 0, len(given))
	for _, v := range given {
		switch {
		case v.EmptyDir != nil, v.ConfigMap != nil, v.Secret != nil, v.DownwardAPI != nil, v.Image != nil:
		case v.Projected != nil:
			projected := *v.Projected
			projected.Sources = nil
			for _, source := range v.Projected.Sources {
				if source.ServiceAccountToken == nil && source.PodCertificate == nil {
					projected.Sources = append(projected.Sources, source)
				}
			}
			v.Projected = &projected
		default:
			v.VolumeSource = v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}
		}
		out = append(out, v)
	}
	return out
}

// containers replaces probes and hooks. A container without a readiness probe
// gets one if it is to be ready later than it starts.
func containers(given []v1.Container, readyAfter time.Duration) []v1.Container {
	if readyAfter <= 0 && !slices.ContainsFunc(given, func(c v1.Container) bool {
		return c.LivenessProbe != nil || c.StartupProbe != nil || c.ReadinessProbe != nil || c.Lifecycle != nil
	}) {
		return given
	}
	out := make([]v1.Container, len(given))
	for i, c := range given {
		c.LivenessProbe, c.StartupProbe = command(c.LivenessProbe, success), command(c.StartupProbe, success)
		c.ReadinessProbe = command(c.ReadinessProbe, readiness)
		if c.ReadinessProbe == nil && readyAfter > 0 {
			c.ReadinessProbe = &v1.Probe{
				ProbeHandler:        v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{readiness}}},
				InitialDelaySeconds: int32(min(math.Ceil(readyAfter.Seconds()), math.MaxInt32)), PeriodSeconds: 1, SuccessThreshold: 1, FailureThreshold: 1,
			}
		}
		if c.Lifecycle != nil {
			lifecycle := *c.Lifecycle
			lifecycle.PostStart, lifecycle.PreStop = hook(lifecycle.PostStart), hook(lifecycle.PreStop)
			c.Lifecycle = &lifecycle
		}
		out[i] = c
	}
	return out
}

// command returns a probe that runs a command instead of what it is to do.
func command(probe *v1.Probe, text string) *v1.Probe {
	if probe == nil {
		return nil
	}
	out := *probe
	out.ProbeHandler = v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{text}}}
	return &out
}

// hook returns a hook that succeeds without a network. A sleep hook sleeps.
func hook(h *v1.LifecycleHandler) *v1.LifecycleHandler {
	if h == nil || h.HTTPGet == nil && h.TCPSocket == nil {
		return h
	}
	return &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{success}}}
}
