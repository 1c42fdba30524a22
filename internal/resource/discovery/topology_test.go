package discovery

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// TestDropTopology checks that clients cannot write the deprecated topology,
// and that the name of the node moves to its field.
func TestDropTopology(t *testing.T) {
	slice := func(address string) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{address}, DeprecatedTopology: map[string]string{corev1.LabelHostname: "n"},
		}}}
	}
	created := slice("10.0.0.1")
	dropTopology(created, nil)
	if e := created.Endpoints[0]; e.DeprecatedTopology != nil || e.NodeName != nil {
		t.Errorf("created: %+v", e)
	}
	old := slice("10.0.0.1")
	same, changed := slice("10.0.0.1"), slice("10.0.0.2")
	dropTopology(same, old)
	if e := same.Endpoints[0]; e.DeprecatedTopology == nil {
		t.Errorf("unchanged: %+v", e)
	}
	dropTopology(changed, old)
	if e := changed.Endpoints[0]; e.DeprecatedTopology != nil || e.NodeName == nil || *e.NodeName != "n" {
		t.Errorf("changed: %+v", e)
	}
}
