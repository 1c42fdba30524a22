package apiserver_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/component/apiserver"
)

func TestIgnoredFlagsSaySoAndAreValidated(t *testing.T) {
	for flag, bad := range map[string]string{
		"delete-collection-workers": "0", "default-watch-cache-size": "-1", "watch-cache-sizes": "pods", "kubelet-timeout": "-1s",
		"kubelet-preferred-address-types": "Nickname", "endpoint-reconciler-type": "master-count",
	} {
		if err := commandLine(t, "--"+flag+"="+bad).Validate(); err == nil || !strings.Contains(err.Error(), "--"+flag) {
			t.Errorf("--%s=%s: %v", flag, bad, err)
		}
	}
	set := pflag.NewFlagSet("apiserver", pflag.ContinueOnError)
	apiserver.NewOptions().AddFlags(set)
	for _, flag := range []string{"watch-cache", "enable-aggregator-routing", "shutdown-send-retry-after"} {
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

func TestProfilingOff(t *testing.T) {
	for flag, want := range map[string]int{"--profiling=true": http.StatusOK, "--profiling=false": http.StatusNotFound} {
		s := startWhole(t, flag)
		if code, _ := s.do(s.admin(), "GET", "/debug/pprof/cmdline", ""); code != want {
			t.Errorf("%s: %d, want %d", flag, code, want)
		}
		if want == http.StatusOK {
			want = http.StatusBadRequest // for what is no level
		}
		if code, body := s.do(s.admin(), "PUT", "/debug/flags/v", "high"); code != want || want == http.StatusBadRequest && !strings.Contains(body, `parsing "high": invalid syntax`) {
			t.Errorf("%s: the log level: %d %s, want %d", flag, code, body, want)
		}
		if _, body := s.do(s.admin(), "GET", "/", ""); !strings.Contains(body, `"/metrics"`) || strings.Contains(body, "/debug/") {
			t.Errorf("%s: the index is %s", flag, body)
		}
	}
}

func TestLogsHandler(t *testing.T) {
	for flag, want := range map[string]int{"--enable-logs-handler=true": http.StatusOK, "--enable-logs-handler=false": http.StatusNotFound} {
		s := startWhole(t, flag)
		if code, _ := s.do(s.admin(), "GET", "/logs/", ""); code != want {
			t.Errorf("%s: %d, want %d", flag, code, want)
		}
	}
}

// Others keep the endpoints of the Service, which is there nevertheless.
func TestEndpointReconcilerNone(t *testing.T) {
	s := startWhole(t, "--endpoint-reconciler-type=none", "--advertise-address=192.0.2.1")
	admin := s.clientset(s.admin())
	eventually(t, "the Service", func() bool {
		_, err := admin.CoreV1().Services("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
		return err == nil
	})
	// The server's identity is renewed after the endpoints would have been made.
	eventually(t, "the identity", func() bool {
		leases, err := admin.CoordinationV1().Leases("kube-system").List(t.Context(), metav1.ListOptions{})
		return err == nil && len(leases.Items) > 0
	})
	slices, err := admin.DiscoveryV1().EndpointSlices("default").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(slices.Items) > 0 {
		t.Errorf("%v, %+v", err, slices)
	}
}
