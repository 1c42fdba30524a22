package measured

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestResourceOfKey(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	s := New(nil, nil, "/registry/", map[string]schema.GroupResource{"pods": pods})
	for key, want := range map[string]schema.GroupResource{
		"/registry/pods/default/web":                  pods,
		"/registry/pods/":                             pods,
		"/registry/example.com/widgets/default/first": {Group: "example.com", Resource: "widgets"},
		"/registry/":                                  {},
		"compact_rev_key":                             {},
	} {
		if got := s.resource(s.path(key)); got != want {
			t.Errorf("%s belongs to %v, want %v", key, got, want)
		}
	}
}
