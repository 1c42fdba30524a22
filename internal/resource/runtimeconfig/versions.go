package runtimeconfig

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	admissionv1alpha1 "k8s.io/api/admissionregistration/v1alpha1"
	admissionv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	coordinationv1alpha2 "k8s.io/api/coordination/v1alpha2"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
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
	"github.com/coracle-io/coracle/internal/resource/coordination"
	"github.com/coracle-io/coracle/internal/resource/dynamicresources"
	"github.com/coracle-io/coracle/internal/resource/lifecycle"
	"github.com/coracle-io/coracle/internal/resource/scheduling"
)

// A version is added to a resource that is served by default in another one.
type version struct {
	schema.GroupVersionResource
	of func(r *resource.Resource, gv schema.GroupVersion) resource.Version
}

// versions lists the versions that are off by default. The versions of one
// resource are in order of preference.
func versions() []version {
	return []version{
		{admissionv1beta1.SchemeGroupVersion.WithResource("mutatingadmissionpolicies"), sameLayout[admissionv1beta1.MutatingAdmissionPolicy, admissionv1.MutatingAdmissionPolicy]},
		{admissionv1alpha1.SchemeGroupVersion.WithResource("mutatingadmissionpolicies"), sameLayout[admissionv1alpha1.MutatingAdmissionPolicy, admissionv1.MutatingAdmissionPolicy]},
		{admissionv1beta1.SchemeGroupVersion.WithResource("mutatingadmissionpolicybindings"), sameLayout[admissionv1beta1.MutatingAdmissionPolicyBinding, admissionv1.MutatingAdmissionPolicyBinding]},
		{admissionv1alpha1.SchemeGroupVersion.WithResource("mutatingadmissionpolicybindings"), sameLayout[admissionv1alpha1.MutatingAdmissionPolicyBinding, admissionv1.MutatingAdmissionPolicyBinding]},
		{certificatesv1beta1.SchemeGroupVersion.WithResource("clustertrustbundles"), sameLayout[certificatesv1beta1.ClusterTrustBundle, certificatesv1.ClusterTrustBundle]},
		{certificatesv1beta1.SchemeGroupVersion.WithResource("podcertificaterequests"), convertedJSON[certificatesv1beta1.PodCertificateRequest, certificatesv1.PodCertificateRequest](unchanged, unchanged)},
		{resourcev1beta2.SchemeGroupVersion.WithResource("deviceclasses"), sameLayout[resourcev1beta2.DeviceClass, resourcev1.DeviceClass]},
		{resourcev1beta1.SchemeGroupVersion.WithResource("deviceclasses"), sameLayout[resourcev1beta1.DeviceClass, resourcev1.DeviceClass]},
		{resourcev1beta2.SchemeGroupVersion.WithResource("devicetaintrules"), sameLayout[resourcev1beta2.DeviceTaintRule, resourcev1.DeviceTaintRule]},
		{resourcev1alpha3.SchemeGroupVersion.WithResource("devicetaintrules"), sameLayout[resourcev1alpha3.DeviceTaintRule, resourcev1.DeviceTaintRule]},
		{resourcev1beta2.SchemeGroupVersion.WithResource("resourceclaims"), sameLayout[resourcev1beta2.ResourceClaim, resourcev1.ResourceClaim]},
		{resourcev1beta1.SchemeGroupVersion.WithResource("resourceclaims"), convertedJSON[resourcev1beta1.ResourceClaim, resourcev1.ResourceClaim](nestRequests, flattenRequests, "spec")},
		{resourcev1beta2.SchemeGroupVersion.WithResource("resourceclaimtemplates"), sameLayout[resourcev1beta2.ResourceClaimTemplate, resourcev1.ResourceClaimTemplate]},
		{resourcev1beta1.SchemeGroupVersion.WithResource("resourceclaimtemplates"), convertedJSON[resourcev1beta1.ResourceClaimTemplate, resourcev1.ResourceClaimTemplate](nestRequests, flattenRequests, "spec", "spec")},
		{resourcev1beta2.SchemeGroupVersion.WithResource("resourceslices"), sameLayout[resourcev1beta2.ResourceSlice, resourcev1.ResourceSlice]},
		{resourcev1beta1.SchemeGroupVersion.WithResource("resourceslices"), convertedJSON[resourcev1beta1.ResourceSlice, resourcev1.ResourceSlice](flattenDevices, nestDevices, "spec")},
		{storagemigrationv1beta1.SchemeGroupVersion.WithResource("storageversionmigrations"), sameLayout[storagemigrationv1beta1.StorageVersionMigration, storagemigrationv1.StorageVersionMigration]},
	}
}

// kinds lists the resources without a version that is served by default.
func kinds() []*resource.Resource {
	candidates := coordination.LeaseCandidates()
	candidates.Versions = append(candidates.Versions, sameLayout[coordinationv1alpha2.LeaseCandidate, coordinationv1beta1.LeaseCandidate](candidates, coordinationv1alpha2.SchemeGroupVersion))
	workloads, podGroups := scheduling.Workloads(), scheduling.PodGroups()
	workloads.Versions = append(workloads.Versions, sameLayout[schedulingv1alpha3.Workload, schedulingv1beta1.Workload](workloads, schedulingv1alpha3.SchemeGroupVersion))
	podGroups.Versions = append(podGroups.Versions, sameLayout[schedulingv1alpha3.PodGroup, schedulingv1beta1.PodGroup](podGroups, schedulingv1alpha3.SchemeGroupVersion))
	return []*resource.Resource{
		candidates,
		workloads,
		podGroups,
		scheduling.CompositePodGroups(),
		lifecycle.EvictionRequests(),
		lifecycle.Evictions(),
		dynamicresources.ResourcePoolStatusRequests(),
		apiserverinternal.StorageVersions(),
	}
}

// withVersions returns a copy of r that has the versions that are off by
// default, too.
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
