package server

import (
	"testing"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// Only AlwaysAllow works without an API server.
func TestWithoutAPIServerNoRequestIsAuthorized(t *testing.T) {
	for mode, want := range map[kubeletconfig.KubeletAuthorizationMode]bool{
		kubeletconfig.KubeletAuthorizationModeWebhook: false, kubeletconfig.KubeletAuthorizationModeAlwaysAllow: true, "": false, "Never": false,
	} {
		if authorizer, err := authorize(&kubeletconfig.KubeletAuthorization{Mode: mode}, nil); (err == nil) != want {
			t.Errorf("mode %q: %v, %v", mode, authorizer, err)
		}
	}
}
