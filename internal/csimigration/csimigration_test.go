package csimigration

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/scheduler/plugin/plugintest"
)

func TestTranslated(t *testing.T) {
	for _, test := range []struct{ name, source, labels, affinity, want string }{
		{"beta zone", "gcePersistentDisk: {pdName: d}", "", "failure-domain.beta.kubernetes.io/zone, operator: In, values: [a]", "topology.gke.io/zone, operator: In, values: [a]"},
		{"stable zone", "awsElasticBlockStore: {volumeID: v}", "", "topology.kubernetes.io/zone, operator: In, values: [a]", "topology.ebs.csi.aws.com/zone, operator: In, values: [a]"},
		{"beta region", "cinder: {volumeID: v}", "", "failure-domain.beta.kubernetes.io/region, operator: In, values: [r]", "topology.kubernetes.io/region, operator: In, values: [r]"},
		{"the driver's region", "vsphereVolume: {volumePath: v}", "", "topology.kubernetes.io/region, operator: In, values: [r]", "topology.csi.vmware.com/region, operator: In, values: [r]"},
		{"zones of labels", "azureDisk: {diskName: d, diskURI: u}", "topology.kubernetes.io/zone: a__b", "", "topology.disk.csi.azure.com/zone, operator: In, values: [a, b]"},
		{"an affinity is stronger than labels", "gcePersistentDisk: {pdName: d}", "topology.kubernetes.io/zone: b", "topology.kubernetes.io/zone, operator: In, values: [a]", "topology.gke.io/zone, operator: In, values: [a]"},
		{"already the driver's", "gcePersistentDisk: {pdName: d}", "topology.kubernetes.io/zone: b", "topology.gke.io/zone, operator: In, values: [a]", "topology.gke.io/zone, operator: In, values: [a]"},
		{"another label", "gcePersistentDisk: {pdName: d}", "", "disk, operator: Exists", "disk, operator: Exists"},
		{"no topology", "gcePersistentDisk: {pdName: d}", "", "", ""},
		{"a driver without topology", "portworxVolume: {volumeID: v}", "topology.kubernetes.io/zone: b", "", ""},
		{"no in-tree plugin", "csi: {driver: d, volumeHandle: h}", "topology.kubernetes.io/zone: b", "topology.kubernetes.io/zone, operator: Exists", "topology.kubernetes.io/zone, operator: Exists"},
	} {
		t.Run(test.name, func(t *testing.T) {
			affinity := func(key string) string {
				if key == "" {
					return ""
				}
				return ", nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: " + key + "}]}]}}"
			}
			of := func(key string) *v1.PersistentVolume {
				return plugintest.Yaml[v1.PersistentVolume](t, "{metadata: {labels: {"+test.labels+"}}, spec: {"+test.source+affinity(key)+"}}")
			}
			pv := of(test.affinity)
			if diff := cmp.Diff(of(test.want), Translated(pv)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(of(test.affinity), pv); diff != "" {
				t.Errorf("the volume itself was changed (-want +got)\n%s", diff)
			}
		})
	}
}
