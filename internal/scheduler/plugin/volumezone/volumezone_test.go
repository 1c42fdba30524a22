package volumezone

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/plugintest"
)

const asking = "{metadata: {namespace: default, name: p}, spec: {volumes: [{name: v, persistentVolumeClaim: {claimName: c}}]}}"

func bound(t *testing.T, volumeLabels string) []runtime.Object {
	return []runtime.Object{
		plugintest.Yaml[v1.PersistentVolumeClaim](t, "{metadata: {namespace: default, name: c}, spec: {volumeName: pv}}"),
		plugintest.Yaml[v1.PersistentVolume](t, "metadata: {name: pv, labels: {"+volumeLabels+"}}"),
	}
}

func TestZones(t *testing.T) {
	for _, test := range []struct {
		name, volume, node string
		fits               bool
	}{
		{"the zone of the node", "topology.kubernetes.io/zone: a", "topology.kubernetes.io/zone: a", true},
		{"another zone", "topology.kubernetes.io/zone: a", "topology.kubernetes.io/zone: b", false},
		{"one of several zones", "topology.kubernetes.io/zone: a__b", "topology.kubernetes.io/zone: b", true},
		{"none of several zones", "topology.kubernetes.io/zone: a__b", "topology.kubernetes.io/zone: c", false},
		{"a list with an empty zone says nothing", "topology.kubernetes.io/zone: a__", "topology.kubernetes.io/zone: c", true},
		{"beta label, stable node", "failure-domain.beta.kubernetes.io/zone: a", "topology.kubernetes.io/zone: a", true},
		{"beta label, stable node of another zone", "failure-domain.beta.kubernetes.io/zone: a", "topology.kubernetes.io/zone: b", false},
		{"stable label, beta node", "topology.kubernetes.io/zone: a", "failure-domain.beta.kubernetes.io/zone: a", false},
		{"both beta", "failure-domain.beta.kubernetes.io/region: r", "failure-domain.beta.kubernetes.io/region: r", true},
		{"zone and region", "topology.kubernetes.io/zone: a, topology.kubernetes.io/region: r", "topology.kubernetes.io/zone: a, topology.kubernetes.io/region: s", false},
		{"a node in a zone, but in no region", "topology.kubernetes.io/region: r", "topology.kubernetes.io/zone: a", false},
		{"a node that is nowhere takes all", "topology.kubernetes.io/zone: a", "", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, h := plugintest.New(t, Factory(), nil, bound(t, test.volume)...)
			snapshot := plugintest.Snapshot([]*v1.Node{plugintest.Yaml[v1.Node](t, "metadata: {name: n1, labels: {"+test.node+"}}")})
			s := plugintest.Filter(t, p, h, plugintest.Yaml[v1.Pod](t, asking), snapshot, "n1")
			if test.fits && !s.IsSuccess() && !s.IsSkip() {
				t.Errorf("rejected: %s", s.Message())
			}
			if !test.fits && (s.Code() != framework.UnschedulableAndUnresolvable || s.Message() != "node(s) had no available volume zone") {
				t.Errorf("%s %q", s.Code(), s.Message())
			}
		})
	}
}

func TestClaimsWithoutVolume(t *testing.T) {
	class := func(mode string) runtime.Object {
		return plugintest.Yaml[storagev1.StorageClass](t, "{metadata: {name: s}, provisioner: x"+mode+"}")
	}
	claim := func(spec string) runtime.Object {
		return plugintest.Yaml[v1.PersistentVolumeClaim](t, "{metadata: {namespace: default, name: c}, spec: {"+spec+"}}")
	}
	for _, test := range []struct {
		name    string
		objects []runtime.Object
		want    string // "" is skip
	}{
		{"no claim", nil, `persistentvolumeclaim "c" not found`},
		{"no class", []runtime.Object{claim("")}, "PersistentVolumeClaim had no pv name and storageClass name"},
		{"a class that is not there", []runtime.Object{claim("storageClassName: s")}, `storageclass.storage.k8s.io "s" not found`},
		{"a class without a mode", []runtime.Object{claim("storageClassName: s"), class("")}, `VolumeBindingMode not set for StorageClass "s"`},
		{"immediate", []runtime.Object{claim("storageClassName: s"), class(", volumeBindingMode: Immediate")}, "PersistentVolume had no name"},
		{"waits for its first consumer", []runtime.Object{claim("storageClassName: s"), class(", volumeBindingMode: WaitForFirstConsumer")}, ""},
		{"a volume that is not there", []runtime.Object{claim("volumeName: pv")}, `persistentvolume "pv" not found`},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, h := plugintest.New(t, Factory(), nil, test.objects...)
			s := plugintest.Filter(t, p, h, plugintest.Yaml[v1.Pod](t, asking), plugintest.Snapshot(nil), "n1")
			want := framework.Skip
			if test.want != "" {
				want = framework.UnschedulableAndUnresolvable
			}
			if s.Code() != want || s.Message() != test.want {
				t.Errorf("%s %q, want %s %q", s.Code(), s.Message(), want, test.want)
			}
		})
	}
}

func TestHints(t *testing.T) {
	p, _ := plugintest.New(t, Factory(), nil)
	asked := plugintest.Yaml[v1.Pod](t, asking)
	claim := func(name string) *v1.PersistentVolumeClaim {
		return plugintest.Yaml[v1.PersistentVolumeClaim](t, "metadata: {namespace: default, name: "+name+"}")
	}
	volume := func(labels string) *v1.PersistentVolume {
		return plugintest.Yaml[v1.PersistentVolume](t, "metadata: {name: pv, labels: {"+labels+"}}")
	}
	class := func(mode string) *storagev1.StorageClass {
		return plugintest.Yaml[storagev1.StorageClass](t, "{metadata: {name: s}, volumeBindingMode: "+mode+"}")
	}
	for _, test := range []struct {
		name     string
		resource framework.EventResource
		action   framework.ActionType
		old, new any
		want     framework.QueueingHint
	}{
		{"the claim changes", framework.PersistentVolumeClaim, framework.UpdateOther, claim("c"), claim("c"), framework.Queue},
		{"another claim changes", framework.PersistentVolumeClaim, framework.UpdateOther, claim("d"), claim("d"), framework.QueueSkip},
		{"a volume comes", framework.PersistentVolume, framework.Add, nil, volume(""), framework.Queue},
		{"a volume moves", framework.PersistentVolume, framework.UpdateOther, volume("topology.kubernetes.io/zone: a"), volume("topology.kubernetes.io/zone: b"), framework.Queue},
		{"a volume gets another label", framework.PersistentVolume, framework.UpdateOther, volume("x: a"), volume("x: b"), framework.QueueSkip},
		{"a class for first consumers comes", framework.StorageClass, framework.Add, nil, class("WaitForFirstConsumer"), framework.Queue},
		{"an immediate class comes", framework.StorageClass, framework.Add, nil, class("Immediate"), framework.QueueSkip},
		{"a node comes", framework.Node, framework.Add, nil, &v1.Node{}, framework.Queue},
	} {
		if got, ok := plugintest.Hint(t, p, asked, test.resource, test.action, test.old, test.new); !ok || got != test.want {
			t.Errorf("%s: %v %t, want %v", test.name, got, ok, test.want)
		}
	}
}
