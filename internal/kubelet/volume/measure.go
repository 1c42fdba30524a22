package volume

import (
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/csivolume"
	"github.com/coracle-io/coracle/internal/kubelet/csi"
	"github.com/coracle-io/coracle/internal/nativehistogram"
)

// Operations measures how volumes are mounted and unmounted, by upstream's name.
type Operations struct{ duration *prometheus.HistogramVec }

// NewOperations returns the metric, and registers it with r.
func NewOperations(r prometheus.Registerer) *Operations {
	o := &Operations{nativehistogram.NewVec(prometheus.HistogramOpts{
		Name: "storage_operation_duration_seconds", Help: "[ALPHA] Storage operation duration",
		Buckets: []float64{0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600},
	}, []string{"volume_plugin", "operation_name", "status", "migrated"})}
	r.MustRegister(o.duration)
	return o
}

// Names of operations.
const (
	mounting   = "volume_mount"
	unmounting = "volume_unmount"
)

// observe records the end of an operation that began at a time. A nil Operations
// records nothing.
func (o *Operations) observe(plugin, operation string, began time.Time, err error) {
	if o == nil {
		return
	}
	status := "success"
	if err != nil {
		status = "fail-unknown"
	}
	o.duration.WithLabelValues(plugin, operation, status, "false").Observe(time.Since(began).Seconds())
}

// Unmounted records that a driver was asked to unmount a volume.
func (v *Manager) Unmounted(driver string, began time.Time, err error) {
	v.Operations.observe(ofDriver(v.CSI, driver), unmounting, began, err)
}

const pluginPrefix = "kubernetes.io/"

// ofDriver returns upstream's name of a CSI driver's plugin. Pods can name any
// driver: those that the kubelet does not know have one name.
func ofDriver(volumes *csi.Volumes, driver string) string {
	if volumes == nil || !volumes.Drivers().Has(driver) {
		return csivolume.PluginName
	}
	return csivolume.PluginName + ":" + driver
}

// pluginName returns upstream's name of the plugin of a volume. A claim whose volume
// is not known yet has the plugin kubernetes.io/persistent-claim: pv is nil.
func pluginName(vol *v1.Volume, pv *v1.PersistentVolume, volumes *csi.Volumes) string {
	switch {
	case vol.CSI != nil:
		return ofDriver(volumes, vol.CSI.Driver)
	case vol.PersistentVolumeClaim == nil && vol.Ephemeral == nil, pv == nil:
		return pluginPrefix + plugin(vol)
	case pv.Spec.CSI != nil:
		return ofDriver(volumes, pv.Spec.CSI.Driver)
	case pv.Spec.Local != nil:
		return pluginPrefix + "local-volume"
	}
	return pluginPrefix + "host-path"
}

// pluginAt returns upstream's name of the plugin whose volume is mounted at a point
// below a pod's directory, "" for other mounts.
func pluginAt(podDir, point string) string {
	volume, ok := strings.CutPrefix(point, filepath.Join(podDir, "volumes", "kubernetes.io~"))
	if !ok {
		return ""
	}
	name, _, _ := strings.Cut(volume, "/")
	return pluginPrefix + name
}

// Counts counts the volumes of pods when it is asked, by upstream's name: those that
// the pods need, and those of them that are mounted.
type Counts struct {
	Volumes *Manager
	Pods    func() []*v1.Pod // that have not ended
}

func totalVolumes() *prometheus.Desc {
	return prometheus.NewDesc("volume_manager_total_volumes", "[ALPHA] Number of volumes in Volume Manager", []string{"plugin_name", "state"}, nil)
}

// Describe implements prometheus.Collector.
func (c *Counts) Describe(out chan<- *prometheus.Desc) { out <- totalVolumes() }

// Collect implements prometheus.Collector.
func (c *Counts) Collect(out chan<- prometheus.Metric) {
	wanted, mounted := map[string]int{}, map[string]int{} // by plugin
	for _, pod := range c.Pods() {
		used := usedVolumes(pod)
		for i := range pod.Spec.Volumes {
			vol := &pod.Spec.Volumes[i]
			if vol.Image != nil || !used[vol.Name] { // the runtime mounts images
				continue
			}
			name := pluginName(vol, c.Volumes.resolved(pod.UID, vol), c.Volumes.CSI)
			wanted[name]++
			if c.Volumes.mounted(pod, vol) != "" {
				mounted[name]++
			}
		}
	}
	for state, numbers := range map[string]map[string]int{"desired_state_of_world": wanted, "actual_state_of_world": mounted} {
		for name, n := range numbers {
			out <- prometheus.MustNewConstMetric(totalVolumes(), prometheus.GaugeValue, float64(n), name, state)
		}
	}
}
