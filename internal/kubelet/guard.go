package kubelet

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/coracle-io/coracle/internal/kubelet/evict"
	"github.com/coracle-io/coracle/internal/kubelet/node"
	"github.com/coracle-io/coracle/internal/kubelet/status"
	podutil "github.com/coracle-io/coracle/internal/pod"
	"github.com/coracle-io/coracle/internal/supervise"
)

const guardPeriod = 10 * time.Second

// pressures are the node's shortages as last seen.
type pressures struct{ memory, disk, pids bool }

// conditions are the node's conditions that these shortages make.
func (p pressures) conditions() (out []v1.NodeConditionType) {
	for _, c := range []struct {
		short     bool
		condition v1.NodeConditionType
	}{{p.memory, v1.NodeMemoryPressure}, {p.disk, v1.NodeDiskPressure}, {p.pids, v1.NodePIDPressure}} {
		if c.short {
			out = append(out, c.condition)
		}
	}
	return out
}

func (k *Kubelet) pressure() pressures {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.short
}

// thresholds are what must be left of the machine's resources.
func thresholds(c *kubeletconfig.KubeletConfiguration) ([]evict.Threshold, error) {
	hard, err := evict.Parse(c.EvictionHard, nil)
	if err != nil {
		return nil, fmt.Errorf("--eviction-hard: %w", err)
	}
	soft, err := evict.Parse(c.EvictionSoft, nonNil(c.EvictionSoftGracePeriod))
	if err != nil {
		return nil, fmt.Errorf("--eviction-soft and --eviction-soft-grace-period: %w", err)
	}
	all, err := evict.Reclaim(append(hard, soft...), c.EvictionMinimumReclaim)
	if err != nil {
		return nil, fmt.Errorf("evictionMinimumReclaim: %w", err)
	}
	return all, nil
}

// guardResources evicts pods when the machine runs short of something.
func (k *Kubelet) guardResources(ctx context.Context) {
	log := klog.FromContext(ctx)
	c := &k.config.Configuration
	thresholds, _ := thresholds(c) // Validate has checked them
	state := &evict.State{Transition: c.EvictionPressureTransitionPeriod.Duration}
	ticker := time.NewTicker(guardPeriod)
	defer ticker.Stop()
	for {
		free, err := k.config.Machine.Free()
		if err != nil {
			log.Error(err, "The machine's free resources cannot be read")
		} else {
			now := time.Now()
			due := state.Look(state.Passed(thresholds, free), now)
			k.setPressure(pressures{
				memory: state.Under(v1.NodeMemoryPressure, now), disk: state.Under(v1.NodeDiskPressure, now), pids: state.Under(v1.NodePIDPressure, now)})
			if due != nil {
				supervise.Contain(ctx, "evictions", func() { k.relieve(ctx, due, free) })
			}
		}
		if err := k.cgroups.ApplyClasses(k.active()); err != nil {
			log.Error(err, "The control groups of the service classes cannot be set, will try again")
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// guardStorage evicts pods that use more disk than they may. Counting what
// pods have made can take long, so that it is apart from what cannot wait.
func (k *Kubelet) guardStorage(ctx context.Context) {
	ticker := time.NewTicker(guardPeriod)
	defer ticker.Stop()
	for {
		supervise.Contain(ctx, "storage", func() { k.enforceStorage(ctx) })
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func nonNil(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

func (k *Kubelet) setPressure(p pressures) {
	k.mu.Lock()
	changed := k.short != p
	k.short = p
	k.mu.Unlock()
	if changed {
		k.node.Update()
	}
}

// relieve frees what is short: images first where disk is, else one pod.
func (k *Kubelet) relieve(ctx context.Context, t *evict.Threshold, free node.Free) {
	name := evict.Resource(t.Signal)
	k.recorder.Eventf(node.Reference(k.config.NodeName), v1.EventTypeWarning, "EvictionThresholdMet", "Attempting to reclaim %s", name)
	if name == v1.ResourceEphemeralStorage || name == evict.Inodes {
		if freed := k.removeImages(ctx, 1<<62); freed > 0 {
			return
		}
	}
	uses := k.uses(ctx)
	var candidates []evict.Candidate
	for _, w := range k.list() {
		pod, ok := w.occupies()
		if !ok || w.critical(pod) || pod.DeletionTimestamp != nil {
			continue
		}
		candidates = append(candidates, uses.candidate(pod, name))
	}
	ranked := evict.Rank(candidates, name)
	if len(ranked) == 0 {
		return
	}
	grace := int64(1)
	if t.Grace > 0 {
		grace = min(gracePeriod(ranked[0].Pod, nil), max(int64(k.config.Configuration.EvictionMaxPodGracePeriod), 1))
	}
	message, annotations := evict.Message(t, free, ranked[0])
	k.evictPod(ranked[0].Pod, t.Signal, message, annotations, grace)
}

// critical says whether the pod stays whatever the node is short of.
func (w *worker) critical(pod *v1.Pod) bool { return w.static || podutil.IsCritical(pod) }

func (k *Kubelet) evictPod(pod *v1.Pod, signal, message string, annotations map[string]string, grace int64) {
	w := k.worker(pod.UID)
	if w == nil {
		return
	}
	k.metrics.evictions.WithLabelValues(signal).Inc()
	k.recorder.AnnotatedEventf(reference(pod), annotations, v1.EventTypeWarning, "Evicted", "%s", message)
	w.evict(status.Cause{Reason: "Evicted", Message: message}, &grace, &v1.PodCondition{
		Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonTerminationByKubelet, Message: message, ObservedGeneration: pod.Generation})
}

// enforceStorage evicts pods that take up more of the disk than their limits
// or those of their volumes allow.
func (k *Kubelet) enforceStorage(ctx context.Context) {
	if !*k.config.Configuration.LocalStorageCapacityIsolation {
		return
	}
	var uses *uses
	for _, w := range k.list() {
		pod, ok := w.occupies()
		if !ok || w.critical(pod) || pod.DeletionTimestamp != nil || !evict.Limited(pod) {
			continue
		}
		if uses == nil {
			uses = k.uses(ctx)
		}
		if signal, message := evict.Exceeds(pod, uses.disk(pod)); message != "" {
			k.evictPod(pod, signal, message, nil, 1)
		}
	}
}
