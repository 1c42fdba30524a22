package kubelet

import (
	"slices"
	"testing"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// A gate that changes nothing is accepted and named, so that a node starts as before.
func TestGatesWithoutEffect(t *testing.T) {
	k := &kubeletconfig.KubeletConfiguration{FeatureGates: map[string]bool{"H2CContainerProbe": true, "VolumeBindMountOptions": false, "QOSReserved": true, "EmptyDirVolumeMode": true}}
	DefaultConfiguration(k)
	if err := Validate(k); err != nil {
		t.Error(err)
	}
	got, err := Warnings(k)
	want := []string{
		"Setting feature gate QOSReserved=true has no effect: there is no such feature here.",
		"Setting feature gate H2CContainerProbe=true has no effect: this kubelet does not have this feature.",
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
}
