package kubelet

import (
	"testing"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// Whoever may do everything was said to, by whoever set the kubelet up.
func TestWithoutAPIServerNobodyIsAuthorized(t *testing.T) {
	for mode, want := range map[kubeletconfig.KubeletAuthorizationMode]bool{
		kubeletconfig.KubeletAuthorizationModeWebhook: false, kubeletconfig.KubeletAuthorizationModeAlwaysAllow: true, "": false, "Never": false,
	} {
		k := &Kubelet{}
		k.config.Configuration.Authorization.Mode = mode
		if authorizer, err := k.authorizer(); (err == nil) != want {
			t.Errorf("mode %q: %v, %v", mode, authorizer, err)
		}
	}
}
