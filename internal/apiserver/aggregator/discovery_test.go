package aggregator

import (
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
)

// The resources of a server are truncated.
func TestResourcesAreBounded(t *testing.T) {
	many := &apidiscoveryv2.APIVersionDiscovery{Resources: make([]apidiscoveryv2.APIResourceDiscovery, 20_000)}
	many.Resources[0].Subresources = make([]apidiscoveryv2.APISubresourceDiscovery, 1500)
	many.Resources[1].Subresources = make([]apidiscoveryv2.APISubresourceDiscovery, 2)
	if left := truncate(many); left != 19_000+502 || len(many.Resources) != maxResources || len(many.Resources[0].Subresources) != maxResources || len(many.Resources[1].Subresources) != 0 {
		t.Errorf("%d left out, %d resources", left, len(many.Resources))
	}
	few := &apidiscoveryv2.APIVersionDiscovery{Resources: make([]apidiscoveryv2.APIResourceDiscovery, maxResources)}
	if left := truncate(few); left != 0 || len(few.Resources) != maxResources {
		t.Errorf("%d left out, %d resources", left, len(few.Resources))
	}
}
