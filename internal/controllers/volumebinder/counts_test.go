package volumebinder

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

func TestCounts(t *testing.T) {
	claims := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	volumes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	add := func(to cache.Indexer, o any) {
		if err := to.Add(o); err != nil {
			t.Fatal(err)
		}
	}
	volumeOf := func(name string, phase v1.PersistentVolumePhase, source v1.PersistentVolumeSource) {
		add(volumes, &v1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PersistentVolumeSpec{StorageClassName: "standard", PersistentVolumeSource: source},
			Status: v1.PersistentVolumeStatus{Phase: phase},
		})
	}
	local := v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{}}
	volumeOf("a", v1.VolumeBound, local)
	volumeOf("b", v1.VolumeReleased, local)
	volumeOf("c", v1.VolumeBound, v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: "d.test"}})
	for name, phase := range map[string]v1.PersistentVolumeClaimPhase{"a": v1.ClaimBound, "b": v1.ClaimPending} {
		add(claims, &v1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name}, Spec: v1.PersistentVolumeClaimSpec{StorageClassName: new("standard")},
			Status: v1.PersistentVolumeClaimStatus{Phase: phase},
		})
	}
	add(claims, &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{ // a client that writes protobuf can
		Namespace: "web", Name: "bytes", Annotations: map[string]string{v1.BetaStorageClassAnnotation: "\xff"},
	}})
	c := newCounts(corelisters.NewPersistentVolumeClaimLister(claims), corelisters.NewPersistentVolumeLister(volumes))
	const want = `
# HELP pv_collector_bound_pv_count [ALPHA] Gauge measuring number of persistent volume currently bound
# TYPE pv_collector_bound_pv_count gauge
pv_collector_bound_pv_count{storage_class="standard"} 2
# HELP pv_collector_bound_pvc_count [ALPHA] Gauge measuring number of persistent volume claim currently bound
# TYPE pv_collector_bound_pvc_count gauge
pv_collector_bound_pvc_count{namespace="web",storage_class="standard",volume_attributes_class=""} 1
# HELP pv_collector_total_pv_count [ALPHA] Gauge measuring total number of persistent volumes
# TYPE pv_collector_total_pv_count gauge
pv_collector_total_pv_count{plugin_name="kubernetes.io/csi:d.test",volume_mode="Filesystem"} 1
pv_collector_total_pv_count{plugin_name="kubernetes.io/local-volume",volume_mode="Filesystem"} 2
# HELP pv_collector_unbound_pv_count [ALPHA] Gauge measuring number of persistent volume currently unbound
# TYPE pv_collector_unbound_pv_count gauge
pv_collector_unbound_pv_count{storage_class="standard"} 1
# HELP pv_collector_unbound_pvc_count [ALPHA] Gauge measuring number of persistent volume claim currently unbound
# TYPE pv_collector_unbound_pvc_count gauge
pv_collector_unbound_pvc_count{namespace="web",storage_class="standard",volume_attributes_class=""} 1
pv_collector_unbound_pvc_count{namespace="web",storage_class="` + "\uFFFD" + `",volume_attributes_class=""} 1
`
	if err := testutil.CollectAndCompare(c, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
