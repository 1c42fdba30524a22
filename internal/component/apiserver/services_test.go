package apiserver_test

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A server starts with each form of --service-cluster-ip-range that it accepts, and
// its default ServiceCIDR has the ranges in their canonical form.
func TestServiceRangesInOtherForms(t *testing.T) {
	w := startWhole(t, "--service-cluster-ip-range=10.96.0.7/16, fd00:96::/108")
	cidr, err := w.clientset(w.admin()).NetworkingV1().ServiceCIDRs().Get(t.Context(), "kubernetes", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"10.96.0.0/16", "fd00:96::/108"}; !slices.Equal(cidr.Spec.CIDRs, want) {
		t.Errorf("ranges %q, want %q", cidr.Spec.CIDRs, want)
	}
}
