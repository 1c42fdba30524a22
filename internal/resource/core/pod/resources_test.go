package pod

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestPageSizesOutOfRange checks names of huge pages whose size takes hours to
// compute with, or overflows to 0.
func TestPageSizesOutOfRange(t *testing.T) {
	for _, size := range []string{"1e900000000", "1e-900000000", "1e2147483647", "1e19", "1e30", "-1", "none", ""} {
		if wholePages(corev1.ResourceName(corev1.ResourceHugePagesPrefix+size), resource.MustParse("1Gi")) {
			t.Errorf("1Gi has whole pages of %q", size)
		}
	}
	if !wholePages("hugepages-2Mi", resource.MustParse("1Gi")) {
		t.Error("1Gi has no whole pages of 2Mi")
	}
}
