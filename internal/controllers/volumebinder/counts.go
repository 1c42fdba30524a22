package volumebinder

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"
)

// counts counts volumes and claims when it is asked, with upstream's names. Volumes are
// counted by their class, and all of them by their plugin and mode; claims by their
// namespace and classes.
type counts struct {
	claims  corelisters.PersistentVolumeClaimLister
	volumes corelisters.PersistentVolumeLister

	total, boundVolumes, unboundVolumes, boundClaims, unboundClaims *prometheus.Desc
}

func newCounts(claims corelisters.PersistentVolumeClaimLister, volumes corelisters.PersistentVolumeLister) *counts {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("pv_collector_"+name, "[ALPHA] Gauge measuring "+help, labels, nil)
	}
	const class, attributes = "storage_class", "volume_attributes_class"
	return &counts{
		claims: claims, volumes: volumes,
		total:          desc("total_pv_count", "total number of persistent volumes", "plugin_name", "volume_mode"),
		boundVolumes:   desc("bound_pv_count", "number of persistent volume currently bound", class),
		unboundVolumes: desc("unbound_pv_count", "number of persistent volume currently unbound", class),
		boundClaims:    desc("bound_pvc_count", "number of persistent volume claim currently bound", "namespace", class, attributes),
		unboundClaims:  desc("unbound_pvc_count", "number of persistent volume claim currently unbound", "namespace", class, attributes),
	}
}

// Describe implements prometheus.Collector.
func (c *counts) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.total, c.boundVolumes, c.unboundVolumes, c.boundClaims, c.unboundClaims} {
		out <- d
	}
}

// series is a metric and the values of its labels.
type series struct {
	desc   *prometheus.Desc
	labels [3]string
	n      int // of the labels
}

// Collect implements prometheus.Collector.
func (c *counts) Collect(out chan<- prometheus.Metric) {
	number := map[series]int{}
	add := func(d *prometheus.Desc, values ...string) {
		s := series{desc: d, n: len(values)}
		for i, value := range values { // the annotation with a claim's class may have any bytes, which would panic below
			s.labels[i] = strings.ToValidUTF8(value, "\uFFFD")
		}
		number[s]++
	}
	volumes, _ := c.volumes.List(labels.Everything()) // a cache gives no errors
	for _, v := range volumes {
		add(c.total, plugin(v), string(ptr.Deref(v.Spec.VolumeMode, v1.PersistentVolumeFilesystem)))
		d := c.unboundVolumes
		if v.Status.Phase == v1.VolumeBound {
			d = c.boundVolumes
		}
		add(d, v.Spec.StorageClassName)
	}
	claims, _ := c.claims.List(labels.Everything())
	for _, claim := range claims {
		d := c.unboundClaims
		if claim.Status.Phase == v1.ClaimBound {
			d = c.boundClaims
		}
		add(d, claim.Namespace, volume.GetPersistentVolumeClaimClass(claim), ptr.Deref(claim.Spec.VolumeAttributesClassName, ""))
	}
	for s, n := range number {
		out <- prometheus.MustNewConstMetric(s.desc, prometheus.GaugeValue, float64(n), s.labels[:s.n]...)
	}
}

// plugin returns the name of the plugin of a volume.
func plugin(v *v1.PersistentVolume) string {
	switch s := &v.Spec; {
	case s.CSI != nil:
		return inTree + "csi:" + s.CSI.Driver
	case s.HostPath != nil:
		return inTree + "host-path"
	case s.Local != nil:
		return inTree + "local-volume"
	case s.NFS != nil:
		return inTree + "nfs"
	}
	return "N/A"
}
