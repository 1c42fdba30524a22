package kubelet

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/kubelet/cgroup"
	"github.com/coracle-io/coracle/internal/kubelet/evict"
	"github.com/coracle-io/coracle/internal/kubelet/node"
	"github.com/coracle-io/coracle/internal/kubelet/source"
	"github.com/coracle-io/coracle/internal/kubelet/spec"
	"github.com/coracle-io/coracle/internal/kubelet/status"
)

const guardPeriod = 10 * time.Second

// pressures are the node's shortages as last seen.
type pressures struct{ memory, disk, pids bool }

// pressure returns whether memory, disk and processes are short.
func (k *Kubelet) pressure() (memory, disk, pids bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.short.memory, k.short.disk, k.short.pids
}

// guardResources evicts pods when the machine runs short of something, and
// pods that use more disk than they may.
func (k *Kubelet) guardResources(ctx context.Context) {
	log := klog.FromContext(ctx)
	c := &k.config.Configuration
	hard, err := evict.Parse(c.EvictionHard, nil)
	if err != nil {
		log.Error(err, "evictionHard is not usable, nothing will be evicted for it")
	}
	soft, err := evict.Parse(c.EvictionSoft, nonNil(c.EvictionSoftGracePeriod))
	if err != nil {
		log.Error(err, "evictionSoft is not usable, nothing will be evicted for it")
	}
	thresholds := append(hard, soft...)
	state := &evict.State{Transition: c.EvictionPressureTransitionPeriod.Duration}
	ticker := time.NewTicker(guardPeriod)
	defer ticker.Stop()
	for {
		free, err := k.config.Machine.Free()
		if err != nil {
			log.Error(err, "The machine's free resources cannot be read")
		} else {
			now := time.Now()
			due := state.Look(evict.Passed(thresholds, free), now)
			k.setPressure(pressures{
				memory: state.Under(v1.NodeMemoryPressure, now), disk: state.Under(v1.NodeDiskPressure, now), pids: state.Under(v1.NodePIDPressure, now)})
			if due != nil {
				k.relieve(ctx, due, free)
			}
		}
		k.enforceStorage(ctx)
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
	if name == v1.ResourceEphemeralStorage {
		if freed := k.removeImages(ctx, 1<<62); freed > 0 {
			return
		}
	}
	var candidates []evict.Candidate
	for _, w := range k.list() {
		pod, ok := w.occupies()
		critical := pod.Spec.Priority != nil && *pod.Spec.Priority >= 2000000000
		if !ok || critical || source.IsStatic(pod) || pod.DeletionTimestamp != nil {
			continue
		}
		candidates = append(candidates, evict.Candidate{Pod: pod, Used: k.used(pod, name)})
	}
	ranked := evict.Rank(candidates, name)
	if len(ranked) == 0 {
		return
	}
	grace := int64(1)
	if t.Grace > 0 {
		grace = min(gracePeriod(ranked[0].Pod, nil), max(int64(k.config.Configuration.EvictionMaxPodGracePeriod), 1))
	}
	k.evictPod(ranked[0].Pod, evict.Message(t, free), grace)
}

// used is how much the pod uses of a resource now.
func (k *Kubelet) used(pod *v1.Pod, name v1.ResourceName) int64 {
	if name == v1.ResourceMemory {
		usage, err := k.config.Groups.Usage(cgroup.Pod(k.config.Configuration.CgroupRoot, spec.QOSClass(pod), pod.UID))
		if err != nil {
			return 0
		}
		return int64(usage.WorkingSetBytes)
	}
	bytes, inodes, _ := k.config.Files.Usage(k.volumes.PodDir(pod.UID))
	if name == "inodes" {
		return inodes
	}
	return bytes
}

func (k *Kubelet) evictPod(pod *v1.Pod, message string, grace int64) {
	w := k.worker(pod.UID)
	if w == nil {
		return
	}
	k.recorder.Event(reference(pod), v1.EventTypeWarning, "Evicted", message)
	w.evict(status.Cause{Reason: "Evicted", Message: message}, &grace, &v1.PodCondition{
		Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonTerminationByKubelet, Message: message, ObservedGeneration: pod.Generation})
}

// enforceStorage evicts pods whose emptyDir volumes have grown over their limits.
func (k *Kubelet) enforceStorage(context.Context) {
	if !*k.config.Configuration.LocalStorageCapacityIsolation {
		return
	}
	for _, w := range k.list() {
		pod, ok := w.occupies()
		if !ok {
			continue
		}
		for i := range pod.Spec.Volumes {
			vol := &pod.Spec.Volumes[i]
			if vol.EmptyDir == nil || vol.EmptyDir.SizeLimit == nil || vol.EmptyDir.SizeLimit.IsZero() || vol.EmptyDir.Medium == v1.StorageMediumMemory {
				continue
			}
			bytes, _, err := k.config.Files.Usage(k.volumes.EmptyDir(pod.UID, vol.Name))
			if err == nil && bytes > vol.EmptyDir.SizeLimit.Value() {
				k.evictPod(pod, fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ", vol.Name, vol.EmptyDir.SizeLimit.String()), 1)
				break
			}
		}
	}
}
