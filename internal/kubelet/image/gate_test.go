package image

import (
	"strings"
	"testing"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/coracle-io/coracle/internal/feature"
)

// TestPullRecordsByGate checks that the gate of pull records follows AllBeta, as
// other gates do.
func TestPullRecordsByGate(t *testing.T) {
	for gates, want := range map[string]bool{
		"": true, "AllBeta=false": false, "AllBeta=false KubeletEnsureSecretPulledImages=true": true, "KubeletEnsureSecretPulledImages=false": false,
	} {
		features, err := feature.Parse(strings.Fields(gates))
		if err != nil {
			t.Fatal(err)
		}
		serial, qps := true, int32(0)
		m := New(Config{Features: features, Configuration: &kubeletconfig.KubeletConfiguration{SerializeImagePulls: &serial, RegistryPullQPS: &qps}})
		if got := m.Records != nil; got != want {
			t.Errorf("%q: records %v, want %v", gates, got, want)
		}
	}
}
