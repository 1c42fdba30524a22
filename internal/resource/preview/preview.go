// Package preview holds the alpha and beta versions of the API, which are
// served only when --runtime-config asks for them, and decides which versions
// are served.
//
//	--runtime-config=api/beta=true,resource.k8s.io/v1beta1=false,apps/v1/daemonsets=false
//	                 a stage       a version                      a resource of a version
//
// The narrower a key, the more it counts. Objects are stored in the version
// that is served by default if there is one, so that turning a version on or
// off changes nothing that is stored. A kind that belongs to a feature gate is
// served only where that is on, too.
package preview

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	admissionv1alpha1 "k8s.io/api/admissionregistration/v1alpha1"
	admissionv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	storagemigrationv1beta1 "k8s.io/api/storagemigration/v1beta1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/apiserverinternal"
	"github.com/coracle-io/coracle/internal/resource/devices"
	"github.com/coracle-io/coracle/internal/resource/lifecycle"
	"github.com/coracle-io/coracle/internal/resource/scheduling"
)

// version adds one version to a resource that is served by default in another.
type version struct {
	schema.GroupVersionResource
	of func(r *resource.Resource, gv schema.GroupVersion) resource.Version
}

// versions lists the versions that are off by default, by resource from the
// most preferred to the least.
func versions() []version {
	return []version{
		{admissionv1beta1.SchemeGroupVersion.WithResource("mutatingadmissionpolicies"), alike[admissionv1beta1.MutatingAdmissionPolicy, admissionv1.MutatingAdmissionPolicy]},
		{admissionv1alpha1.SchemeGroupVersion.WithResource("mutatingadmissionpolicies"), alike[admissionv1alpha1.MutatingAdmissionPolicy, admissionv1.MutatingAdmissionPolicy]},
		{admissionv1beta1.SchemeGroupVersion.WithResource("mutatingadmissionpolicybindings"), alike[admissionv1beta1.MutatingAdmissionPolicyBinding, admissionv1.MutatingAdmissionPolicyBinding]},
		{admissionv1alpha1.SchemeGroupVersion.WithResource("mutatingadmissionpolicybindings"), alike[admissionv1alpha1.MutatingAdmissionPolicyBinding, admissionv1.MutatingAdmissionPolicyBinding]},
		{certificatesv1beta1.SchemeGroupVersion.WithResource("clustertrustbundles"), alike[certificatesv1beta1.ClusterTrustBundle, certificatesv1.ClusterTrustBundle]},
		{certificatesv1beta1.SchemeGroupVersion.WithResource("podcertificaterequests"), reshaped[certificatesv1beta1.PodCertificateRequest, certificatesv1.PodCertificateRequest](unchanged, unchanged)},
		{resourcev1beta2.SchemeGroupVersion.WithResource("deviceclasses"), alike[resourcev1beta2.DeviceClass, resourcev1.DeviceClass]},
		{resourcev1beta1.SchemeGroupVersion.WithResource("deviceclasses"), alike[resourcev1beta1.DeviceClass, resourcev1.DeviceClass]},
		{resourcev1beta2.SchemeGroupVersion.WithResource("devicetaintrules"), alike[resourcev1beta2.DeviceTaintRule, resourcev1.DeviceTaintRule]},
		{resourcev1alpha3.SchemeGroupVersion.WithResource("devicetaintrules"), alike[resourcev1alpha3.DeviceTaintRule, resourcev1.DeviceTaintRule]},
		{resourcev1beta2.SchemeGroupVersion.WithResource("resourceclaims"), alike[resourcev1beta2.ResourceClaim, resourcev1.ResourceClaim]},
		{resourcev1beta1.SchemeGroupVersion.WithResource("resourceclaims"), reshaped[resourcev1beta1.ResourceClaim, resourcev1.ResourceClaim](nestRequests, flattenRequests, "spec")},
		{resourcev1beta2.SchemeGroupVersion.WithResource("resourceclaimtemplates"), alike[resourcev1beta2.ResourceClaimTemplate, resourcev1.ResourceClaimTemplate]},
		{resourcev1beta1.SchemeGroupVersion.WithResource("resourceclaimtemplates"), reshaped[resourcev1beta1.ResourceClaimTemplate, resourcev1.ResourceClaimTemplate](nestRequests, flattenRequests, "spec", "spec")},
		{resourcev1beta2.SchemeGroupVersion.WithResource("resourceslices"), alike[resourcev1beta2.ResourceSlice, resourcev1.ResourceSlice]},
		{resourcev1beta1.SchemeGroupVersion.WithResource("resourceslices"), reshaped[resourcev1beta1.ResourceSlice, resourcev1.ResourceSlice](flattenDevices, nestDevices, "spec")},
		{storagemigrationv1beta1.SchemeGroupVersion.WithResource("storageversionmigrations"), alike[storagemigrationv1beta1.StorageVersionMigration, storagemigrationv1.StorageVersionMigration]},
	}
}

// kinds lists the resources that have no version that is served by default.
func kinds() []*resource.Resource {
	workloads, podGroups := scheduling.Workloads(), scheduling.PodGroups()
	workloads.Versions = append(workloads.Versions, alike[schedulingv1alpha3.Workload, schedulingv1beta1.Workload](workloads, schedulingv1alpha3.SchemeGroupVersion))
	podGroups.Versions = append(podGroups.Versions, alike[schedulingv1alpha3.PodGroup, schedulingv1beta1.PodGroup](podGroups, schedulingv1alpha3.SchemeGroupVersion))
	return []*resource.Resource{
		leaseCandidates(),
		workloads,
		podGroups,
		scheduling.CompositePodGroups(),
		lifecycle.EvictionRequests(),
		lifecycle.Evictions(),
		devices.ResourcePoolStatusRequests(),
		apiserverinternal.StorageVersions(),
	}
}

// withVersions returns a resource with all its versions, or as it is.
func withVersions(r *resource.Resource) *resource.Resource {
	extended := *r
	extended.Versions = append([]resource.Version(nil), r.Versions...)
	for _, v := range versions() {
		if v.Group == r.Group && v.Resource == r.Plural {
			extended.Versions = append(extended.Versions, v.of(r, v.GroupVersion()))
		}
	}
	return &extended
}
