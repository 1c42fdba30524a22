package kinds

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
)

// lists is the discovery of a server.
type lists struct {
	discovery.DiscoveryInterface
	resources []*metav1.APIResourceList
}

func (l lists) ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	return nil, l.resources, nil
}

// A malformed group version, which an aggregated API may announce, does not hide the other resources.
// Subresources are left out.
func TestServed(t *testing.T) {
	served, err := Served(lists{resources: []*metav1.APIResourceList{
		{GroupVersion: "too//many/slashes", APIResources: []metav1.APIResource{{Name: "bars", Kind: "Bar"}}},
		{GroupVersion: "apps/v1", APIResources: []metav1.APIResource{{Name: "deployments", Kind: "Deployment"}, {Name: "deployments/scale", Kind: "Scale"}}},
	}})
	if got := fmt.Sprint(len(served), err); got != "1 <nil>" || served[0].Resource.Resource != "deployments" {
		t.Errorf("served %v, %v", served, err)
	}
}
