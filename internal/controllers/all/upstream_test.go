package all_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/coracle-io/coracle/internal/controllers/all"
)

// upstream are the names of the controllers of kube-controller-manager 1.37.
const upstream = `
	bootstrap-signer-controller certificatesigningrequest-approving-controller
	cloud-node-lifecycle-controller node-route-controller service-lb-controller
	certificatesigningrequest-cleaner-controller certificatesigningrequest-signing-controller
	clusterrole-aggregation-controller cronjob-controller daemonset-controller deployment-controller
	device-taint-eviction-controller disruption-controller endpoints-controller endpointslice-controller
	endpointslice-mirroring-controller ephemeral-volume-controller garbage-collector-controller
	horizontal-pod-autoscaler-controller job-controller
	kube-apiserver-serving-clustertrustbundle-publisher-controller legacy-serviceaccount-token-cleaner-controller
	namespace-controller node-ipam-controller node-lifecycle-controller persistentvolume-attach-detach-controller
	persistentvolume-binder-controller persistentvolume-expander-controller persistentvolume-protection-controller
	persistentvolumeclaim-protection-controller pod-garbage-collector-controller
	podcertificaterequest-cleaner-controller podgroup-protection-controller replicaset-controller
	replicationcontroller-controller resourceclaim-controller resourcepoolstatusrequest-controller
	resourcequota-controller root-ca-certificate-publisher-controller selinux-warning-controller
	service-cidr-controller serviceaccount-controller serviceaccount-token-controller statefulset-controller
	storage-version-migrator-controller storageversion-garbage-collector-controller taint-eviction-controller
	token-cleaner-controller ttl-after-finished-controller ttl-controller
	validatingadmissionpolicy-status-controller volumeattributesclass-protection-controller`

// Command lines for upstream may name all of its controllers.
func TestNamesAreUpstreams(t *testing.T) {
	want := strings.Fields(upstream)
	o := all.DefaultOptions()
	var got []string
	for _, d := range all.Controllers(&o) {
		got = append(got, d.Name)
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
