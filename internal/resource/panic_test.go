package resource_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/resource"
)

// TestStoredValueThatPanics checks that a stored value on which the functions
// of its kind panic is skipped like any other unreadable value. It must not
// end the process that reads all values, which would happen again at each
// start.
func TestStoredValueThatPanics(t *testing.T) {
	r := resource.Define(resource.Definition[corev1.ConfigMap, *corev1.ConfigMap]{
		GroupVersion: corev1.SchemeGroupVersion, Names: resource.Names{Kind: "ConfigMap", Plural: "configmaps"},
		Default: func(m *corev1.ConfigMap) { m.Data["a"] = m.Data["b"] }})
	_, err := resource.DecodeStored(r, []byte(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"x"}}`), 7)
	if err == nil || !strings.Contains(err.Error(), "decode stored configmaps: panic in ") || !strings.Contains(err.Error(), "TestStoredValueThatPanics") {
		t.Error(err)
	}
}
