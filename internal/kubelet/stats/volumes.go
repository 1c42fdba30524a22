package stats

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	events "k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/coracle-io/coracle/internal/kubelet/csi"
	"github.com/coracle-io/coracle/internal/kubelet/node"
	"github.com/coracle-io/coracle/internal/kubelet/pod"
	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Volumes measures persistent volumes and volumes of CSI drivers. It asks CSI
// drivers for the usage of their volumes. It corresponds to upstream's volume stats
// calculator and collector. A driver that does not answer delays no other volume.
type Volumes struct {
	Pods    func() []pod.Observed
	Machine node.Machine
	// Usage returns what the driver of a volume says, or the path of a volume
	// whose file system says it.
	Usage func(ctx context.Context, pod *v1.Pod, vol *v1.Volume) (usage *csi.Usage, path string, err error)
	// Recorder gets an event when a driver says that a volume is not healthy.
	Recorder events.EventRecorder

	mu    sync.Mutex // guards what follows
	known map[volumeKey]*measurement
}

// volumeKey is a volume of a pod by its name.
type volumeKey struct {
	pod  types.UID
	name string
}

// measurement holds the last statistics of a volume and the state of measuring
// it.
type measurement struct {
	busy  bool // it is being measured
	began time.Time
	stats *statsapi.VolumeStats // nil: it could not be measured
	// health is the health that its driver reports, nil if it reports none.
	health *csi.Health
}

const (
	// volumePeriod is the time between two measurements of a volume. It is
	// upstream's.
	volumePeriod = time.Minute
	// volumeLook is how often Run looks for volumes to measure.
	volumeLook = 10 * time.Second
)

// Run measures the volumes of the pods that run, until ctx ends.
func (v *Volumes) Run(ctx context.Context) {
	var group supervise.WaitGroup
	defer group.Wait()
	supervise.Repeat(ctx, volumeLook, func() {
		supervise.Contain(ctx, "volumes", func() { v.measureDue(ctx, &group) })
	})
}

// measureDue begins to measure each volume that is due, and forgets those that
// are gone and not being measured.
func (v *Volumes) measureDue(ctx context.Context, group *supervise.WaitGroup) {
	there := map[volumeKey]*measurement{}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, observed := range v.Pods() {
		if len(observed.Runtime.Running()) == 0 {
			continue
		}
		for i := range observed.Pod.Spec.Volumes {
			vol := &observed.Pod.Spec.Volumes[i]
			if vol.PersistentVolumeClaim == nil && vol.Ephemeral == nil && vol.CSI == nil {
				continue
			}
			key := volumeKey{observed.UID, vol.Name}
			m := v.known[key]
			if m == nil {
				m = &measurement{}
			}
			there[key] = m
			if m.busy || !m.began.IsZero() && time.Since(m.began) < volumePeriod {
				continue
			}
			m.busy, m.began = true, time.Now()
			group.Go(ctx, func() {
				var stats *statsapi.VolumeStats
				var health *csi.Health
				supervise.Contain(ctx, "volumes", func() { stats, health = v.measure(ctx, observed.Pod, vol) })
				v.mu.Lock()
				before := m.health
				m.busy, m.stats, m.health = false, stats, health
				v.mu.Unlock()
				if health != nil && health.Abnormal && (before == nil || *before != *health) {
					v.Recorder.Eventf(pod.Reference(observed.Pod), v1.EventTypeWarning, "VolumeConditionAbnormal", "Volume %s: %s", vol.Name, health.Message)
				}
			})
		}
	}
	for key, m := range v.known {
		if m.busy { // a file system that hangs must not collect measurements
			there[key] = m
		}
	}
	v.known = there
}

// measure measures a volume. It returns nil for what is not known.
func (v *Volumes) measure(ctx context.Context, pod *v1.Pod, vol *v1.Volume) (*statsapi.VolumeStats, *csi.Health) {
	now := metav1.Now()
	usage, path, err := v.Usage(ctx, pod, vol)
	out := &statsapi.VolumeStats{Name: vol.Name, FsStats: statsapi.FsStats{Time: now}}
	if claim, _ := podquery.ClaimName(pod, vol); claim != "" {
		out.PVCRef = &statsapi.PVCReference{Namespace: pod.Namespace, Name: claim}
	}
	if err == nil && path != "" {
		var whole node.FileSystem
		if whole, err = v.fileSystem(ctx, path); err == nil {
			out.FsStats = *fsStats(now, whole)
			return out, nil
		}
	}
	if err != nil && !errors.Is(err, csi.ErrNoUsage) && ctx.Err() == nil {
		klog.FromContext(ctx).V(2).Info("A volume cannot be measured, will try again", "volume", vol.Name, "pod", klog.KObj(pod), "err", err, "in", volumePeriod)
	}
	if usage == nil || usage.Bytes == nil && usage.Inodes == nil && usage.Health == nil {
		return nil, nil
	}
	if b := usage.Bytes; b != nil {
		out.CapacityBytes, out.UsedBytes, out.AvailableBytes = &b.Total, &b.Used, &b.Available
	}
	if n := usage.Inodes; n != nil {
		out.Inodes, out.InodesUsed, out.InodesFree = &n.Total, &n.Used, &n.Available
	}
	return out, usage.Health
}

// fileSystem measures the file system at a path. If that hangs, it waits only
// until ctx ends: the kubelet must be able to stop.
func (v *Volumes) fileSystem(ctx context.Context, path string) (node.FileSystem, error) {
	type measured struct {
		node.FileSystem
		err error
	}
	done := make(chan measured, 1)
	supervise.Go(ctx, func() {
		m := measured{err: errors.New("it cannot be measured")}
		defer func() { done <- m }()
		m.FileSystem, m.err = v.Machine.FileSystem(path)
	})
	select {
	case m := <-done:
		return m.FileSystem, m.err
	case <-ctx.Done():
		return node.FileSystem{}, ctx.Err()
	}
}

// of returns the measured volumes of a pod in the order of its specification.
func (v *Volumes) of(pod *v1.Pod) []statsapi.VolumeStats {
	v.mu.Lock()
	defer v.mu.Unlock()
	var out []statsapi.VolumeStats
	for i := range pod.Spec.Volumes {
		if m := v.known[volumeKey{pod.UID, pod.Spec.Volumes[i].Name}]; m != nil && m.stats != nil && (m.stats.CapacityBytes != nil || m.stats.Inodes != nil) {
			out = append(out, *m.stats)
		}
	}
	return out
}

// volumeMetric is a metric of a volume's claim.
type volumeMetric struct {
	desc  *prometheus.Desc
	value func(m *measurement) *uint64
}

func volumeMetrics() []volumeMetric {
	metric := func(name, help string, value func(m *measurement) *uint64) volumeMetric {
		return volumeMetric{prometheus.NewDesc("kubelet_volume_stats_"+name, "[ALPHA] "+help, []string{"namespace", "persistentvolumeclaim"}, nil), value}
	}
	return []volumeMetric{
		metric("capacity_bytes", "Capacity in bytes of the volume", func(m *measurement) *uint64 { return m.stats.CapacityBytes }),
		metric("available_bytes", "Number of available bytes in the volume", func(m *measurement) *uint64 { return m.stats.AvailableBytes }),
		metric("used_bytes", "Number of used bytes in the volume", func(m *measurement) *uint64 { return m.stats.UsedBytes }),
		metric("inodes", "Maximum number of inodes in the volume", func(m *measurement) *uint64 { return m.stats.Inodes }),
		metric("inodes_free", "Number of free inodes in the volume", func(m *measurement) *uint64 { return m.stats.InodesFree }),
		metric("inodes_used", "Number of used inodes in the volume", func(m *measurement) *uint64 { return m.stats.InodesUsed }),
		metric("health_status_abnormal", "Abnormal volume health status. The count is either 1 or 0. 1 indicates the volume is unhealthy, 0 indicates volume is healthy", abnormal),
	}
}

func abnormal(m *measurement) *uint64 {
	switch {
	case m.health == nil:
		return nil
	case m.health.Abnormal:
		return pointer(uint64(1))
	}
	return pointer(uint64(0))
}

// Describe implements prometheus.Collector.
func (v *Volumes) Describe(out chan<- *prometheus.Desc) {
	for _, m := range volumeMetrics() {
		out <- m.desc
	}
}

// Collect implements prometheus.Collector. A claim that several pods have counts
// once.
func (v *Volumes) Collect(out chan<- prometheus.Metric) {
	v.mu.Lock()
	claims := map[statsapi.PVCReference]measurement{}
	for _, m := range v.known {
		if m.stats == nil || m.stats.PVCRef == nil {
			continue
		}
		if other, known := claims[*m.stats.PVCRef]; !known || other.stats.Time.Before(&m.stats.Time) {
			claims[*m.stats.PVCRef] = *m
		}
	}
	v.mu.Unlock()
	all := volumeMetrics()
	for claim, measured := range claims {
		for _, m := range all {
			if value := m.value(&measured); value != nil {
				out <- prometheus.MustNewConstMetric(m.desc, prometheus.GaugeValue, float64(*value), claim.Namespace, claim.Name)
			}
		}
	}
}
