package component_test

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/coracle-io/coracle/internal/component"
)

func TestIgnoredFlagsSaySoAndAreValidated(t *testing.T) {
	for flag, bad := range map[string]string{
		"delete-collection-workers": "0", "default-watch-cache-size": "-1", "watch-cache-sizes": "pods", "kubelet-timeout": "-1s",
		"kubelet-preferred-address-types": "Nickname", "endpoint-reconciler-type": "master-count",
	} {
		f := component.NewAPIServerFlags()
		set := pflag.NewFlagSet("apiserver", pflag.ContinueOnError)
		f.AddFlags(set)
		if err := set.Parse([]string{"--" + flag + "=" + bad}); err != nil {
			t.Fatal(err)
		}
		if err := f.Validate(); err == nil || !strings.Contains(err.Error(), "--"+flag) {
			t.Errorf("--%s=%s: %v", flag, bad, err)
		}
	}
	set := pflag.NewFlagSet("apiserver", pflag.ContinueOnError)
	component.NewAPIServerFlags().AddFlags(set)
	for _, flag := range []string{"watch-cache", "enable-garbage-collector", "enable-aggregator-routing", "shutdown-send-retry-after"} {
		if f := set.Lookup(flag); f == nil || !strings.HasPrefix(f.Usage, "has no effect: ") {
			t.Errorf("--%s does not say that it has no effect", flag)
		}
	}
}

// kubeadm's manifest of an API server, but for its files.
func TestFlagsOfKubeadm(t *testing.T) {
	s := startWhole(t, "--allow-privileged=true", "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--enable-bootstrap-token-auth=true", "--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname",
		"--requestheader-allowed-names=front-proxy-client", "--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--requestheader-group-headers=X-Remote-Group", "--requestheader-username-headers=X-Remote-User",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local", "--profiling=false", "--endpoint-reconciler-type=lease",
		"--watch-cache-sizes=pods#0,deployments.apps#10", "--runtime-config=", "--storage-backend=etcd3")
	if code, body := s.do(s.admin(), "GET", "/api/v1/namespaces/default", ""); code != 200 {
		t.Errorf("%d %s", code, body)
	}
}
