// Package all lists the controllers that the controller manager runs.
package all

import (
	"slices"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controllers/attachdetach"
	"github.com/coracle-io/coracle/internal/controllers/bootstrap"
	"github.com/coracle-io/coracle/internal/controllers/certificates"
	"github.com/coracle-io/coracle/internal/controllers/cloud"
	"github.com/coracle-io/coracle/internal/controllers/clusterroleaggregation"
	"github.com/coracle-io/coracle/internal/controllers/cronjob"
	"github.com/coracle-io/coracle/internal/controllers/daemonset"
	"github.com/coracle-io/coracle/internal/controllers/deployment"
	"github.com/coracle-io/coracle/internal/controllers/devicetainteviction"
	"github.com/coracle-io/coracle/internal/controllers/disruption"
	"github.com/coracle-io/coracle/internal/controllers/endpoints"
	"github.com/coracle-io/coracle/internal/controllers/endpointslice"
	"github.com/coracle-io/coracle/internal/controllers/endpointslicemirroring"
	"github.com/coracle-io/coracle/internal/controllers/ephemeralvolume"
	"github.com/coracle-io/coracle/internal/controllers/garbagecollector"
	"github.com/coracle-io/coracle/internal/controllers/job"
	"github.com/coracle-io/coracle/internal/controllers/legacytokencleaner"
	"github.com/coracle-io/coracle/internal/controllers/namespace"
	"github.com/coracle-io/coracle/internal/controllers/nodeipam"
	"github.com/coracle-io/coracle/internal/controllers/nodelifecycle"
	"github.com/coracle-io/coracle/internal/controllers/podautoscaler"
	"github.com/coracle-io/coracle/internal/controllers/podgc"
	"github.com/coracle-io/coracle/internal/controllers/podgroupprotection"
	"github.com/coracle-io/coracle/internal/controllers/policystatus"
	"github.com/coracle-io/coracle/internal/controllers/poolstatus"
	"github.com/coracle-io/coracle/internal/controllers/replicaset"
	"github.com/coracle-io/coracle/internal/controllers/replication"
	"github.com/coracle-io/coracle/internal/controllers/resourceclaim"
	"github.com/coracle-io/coracle/internal/controllers/resourcequota"
	"github.com/coracle-io/coracle/internal/controllers/rootca"
	"github.com/coracle-io/coracle/internal/controllers/selinuxwarning"
	"github.com/coracle-io/coracle/internal/controllers/serviceaccount"
	"github.com/coracle-io/coracle/internal/controllers/serviceaccounttoken"
	"github.com/coracle-io/coracle/internal/controllers/servicecidr"
	"github.com/coracle-io/coracle/internal/controllers/servicelb"
	"github.com/coracle-io/coracle/internal/controllers/statefulset"
	"github.com/coracle-io/coracle/internal/controllers/storagemigration"
	"github.com/coracle-io/coracle/internal/controllers/storageversiongc"
	"github.com/coracle-io/coracle/internal/controllers/tainteviction"
	"github.com/coracle-io/coracle/internal/controllers/ttl"
	"github.com/coracle-io/coracle/internal/controllers/ttlafterfinished"
	"github.com/coracle-io/coracle/internal/controllers/volumebinder"
	"github.com/coracle-io/coracle/internal/controllers/volumeexpand"
	"github.com/coracle-io/coracle/internal/controllers/volumeprotection"
)

// Options holds the controller options that a program can set. All other options
// are set by flags only; see controller.Descriptor.
type Options struct {
	NodeIPAM             nodeipam.Options
	ServiceAccountTokens serviceaccounttoken.Options
	Signing              certificates.SigningOptions
	ServiceLB            servicelb.Options
}

// DefaultOptions returns upstream's defaults.
func DefaultOptions() Options {
	return Options{ServiceAccountTokens: serviceaccounttoken.DefaultOptions(), Signing: certificates.DefaultSigningOptions()}
}

// Controllers returns all controllers; those that others wait for come first.
// They use o, and their flags set its fields.
func Controllers(o *Options) []controller.Descriptor {
	return slices.Concat([]controller.Descriptor{
		serviceaccount.Descriptor(),
		serviceaccounttoken.Descriptor(&o.ServiceAccountTokens),
		rootca.Descriptor(),
		nodeipam.Descriptor(&o.NodeIPAM),
		nodelifecycle.Descriptor(),
		tainteviction.Descriptor(),
		ttl.Descriptor(),
		devicetainteviction.Descriptor(),
		replicaset.Descriptor(),
		replication.Descriptor(),
		deployment.Descriptor(),
		statefulset.Descriptor(),
		daemonset.Descriptor(),
		job.Descriptor(),
		cronjob.Descriptor(),
		ttlafterfinished.Descriptor(),
		bootstrap.Signer(),
		bootstrap.TokenCleaner(),
		legacytokencleaner.Descriptor(),
		clusterroleaggregation.Descriptor(),
		certificates.Approving(),
		certificates.Signing(&o.Signing),
		certificates.Cleaning(),
		certificates.PodCleaning(),
		certificates.Publishing(),
		disruption.Descriptor(),
		podautoscaler.Descriptor(),
		volumebinder.Descriptor(),
		volumeexpand.Descriptor(),
		attachdetach.Descriptor(),
		ephemeralvolume.Descriptor(),
		resourceclaim.Descriptor(),
		poolstatus.Descriptor(),
		volumeprotection.Claims(),
		volumeprotection.Volumes(),
		volumeprotection.Classes(),
		endpoints.Descriptor(),
		endpointslice.Descriptor(),
		endpointslicemirroring.Descriptor(),
		servicecidr.Descriptor(),
		servicelb.Descriptor(&o.ServiceLB),
		selinuxwarning.Descriptor(),
		podgc.Descriptor(),
		podgroupprotection.Descriptor(),
		resourcequota.Descriptor(),
		policystatus.Descriptor(),
		storagemigration.Descriptor(),
		storageversiongc.Descriptor(),
		namespace.Descriptor(),
		garbagecollector.Descriptor(),
	}, cloud.Descriptors())
}
