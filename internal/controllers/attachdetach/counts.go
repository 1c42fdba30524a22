package attachdetach

import (
	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/coracle-io/coracle/internal/controller/pods"
	"github.com/coracle-io/coracle/internal/csivolume"
)

// The metrics of volumes that are counted when they are asked for, with upstream's names.
var (
	totalVolumes = prometheus.NewDesc("attachdetach_controller_total_volumes", "[ALPHA] Number of volumes in A/D Controller",
		[]string{"plugin_name", "state"}, nil)
	volumesInUse = prometheus.NewDesc("storage_count_attachable_volumes_in_use", "[ALPHA] Measure number of volumes in use",
		[]string{"node", "volume_plugin"}, nil)
)

// Describe implements prometheus.Collector.
func (c *attacher) Describe(out chan<- *prometheus.Desc) {
	out <- totalVolumes
	out <- volumesInUse
}

// Collect implements prometheus.Collector. A volume counts once for each node that needs it
// (desired) or that it is attached to (actual). It is in use as often as pods on nodes have it,
// attached or not.
func (c *attacher) Collect(out chan<- prometheus.Metric) {
	type series struct {
		desc   *prometheus.Desc
		labels [2]string
	}
	number := map[series]int{}
	plugin := func(driver string) string { return csivolume.PluginName + ":" + driver }
	nodes, _ := c.nodes.List(labels.Everything()) // a cache gives no errors
	for _, node := range nodes {
		if !managed(node) {
			continue
		}
		running, _ := pods.OnNode(c.pods, node.Name)
		needed, _ := c.desired(node, running)
		for _, v := range needed {
			number[series{totalVolumes, [2]string{plugin(v.driver), "desired_state_of_world"}}]++
		}
	}
	for _, o := range c.pods.GetIndexer().List() {
		p, ok := o.(*v1.Pod)
		if !ok || p.Spec.NodeName == "" {
			continue
		}
		for i := range p.Spec.Volumes {
			if driver := c.driverOf(p, &p.Spec.Volumes[i]); driver != "" {
				number[series{volumesInUse, [2]string{p.Spec.NodeName, plugin(driver)}}]++
			}
		}
	}
	for _, o := range c.attachments.GetIndexer().List() {
		if a, ok := o.(*storagev1.VolumeAttachment); ok && a.Status.Attached && csivolume.IsAttachmentName(a.Name) {
			number[series{totalVolumes, [2]string{plugin(a.Spec.Attacher), "actual_state_of_world"}}]++
		}
	}
	for s, n := range number {
		out <- prometheus.MustNewConstMetric(s.desc, prometheus.GaugeValue, float64(n), s.labels[:]...)
	}
}

// driverOf returns the CSI driver of a pod's volume, "" if it has none or is not known.
func (c *attacher) driverOf(p *v1.Pod, vol *v1.Volume) string {
	if vol.CSI != nil {
		return vol.CSI.Driver
	}
	if pv, err := c.volumeOf(p, vol); err == nil && pv != nil && pv.Spec.CSI != nil {
		return pv.Spec.CSI.Driver
	}
	return ""
}

// managed reports whether this controller attaches the volumes of a node.
func managed(node *v1.Node) bool {
	return node.Annotations[csivolume.ControllerManagedAttachAnnotation] == "true"
}
