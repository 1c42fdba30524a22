package resourceclaim

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
	"k8s.io/client-go/tools/cache"
)

// Claims are counted by what they were made from, and whether they have devices.
func TestExistingClaimsAreCounted(t *testing.T) {
	claims := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	add := func(name string, change func(c *resourceapi.ResourceClaim)) {
		c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name, Annotations: map[string]string{}}}
		change(c)
		if err := claims.Add(c); err != nil {
			t.Fatal(err)
		}
	}
	add("a", func(c *resourceapi.ResourceClaim) { c.Annotations["resource.kubernetes.io/pod-claim-name"] = "gpu" })
	add("b", func(c *resourceapi.ResourceClaim) { c.Annotations["resource.kubernetes.io/pod-claim-name"] = "gpu" })
	add("c", func(c *resourceapi.ResourceClaim) {
		c.Annotations["resource.kubernetes.io/extended-resource-claim"] = "true"
		c.Status.Allocation = &resourceapi.AllocationResult{}
	})
	add("d", func(c *resourceapi.ResourceClaim) {
		c.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Exactly: &resourceapi.ExactDeviceRequest{AdminAccess: new(true)}}}
	})
	const want = `
# HELP dynamic_resource_allocation_resource_claims [ALPHA] Number of ResourceClaims, categorized by allocation status, admin access, and source. Source can be 'resource_claim_template' (created from a template), 'extended_resource' (extended resources), or empty (manually created by a user).
# TYPE dynamic_resource_allocation_resource_claims gauge
dynamic_resource_allocation_resource_claims{admin_access="false",allocated="false",source="resource_claim_template"} 2
dynamic_resource_allocation_resource_claims{admin_access="false",allocated="true",source="extended_resource"} 1
dynamic_resource_allocation_resource_claims{admin_access="true",allocated="false",source=""} 1
`
	if err := testutil.CollectAndCompare(newExisting(resourcelisters.NewResourceClaimLister(claims)), strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
