package runtimeconfig

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/coracle-io/coracle/internal/resource"
)

// TestMetadataInUpdatesOfAStatus checks which metadata an update of the status
// can change.
func TestMetadataInUpdatesOfAStatus(t *testing.T) {
	for plural, want := range map[string]string{
		"compositepodgroups":         "",
		"deployments":                "annotations",
		"evictionrequests":           "",
		"evictions":                  "",
		"podgroups":                  "",
		"replicasets":                "labels annotations",
		"resourceclaims":             "",
		"resourcepoolstatusrequests": "",
		"servicecidrs":               "",
		"storageversions":            "",
	} {
		r := kindOf(t, plural)
		old, changed := r.Hub().New(), r.Hub().New()
		changed.SetLabels(map[string]string{"a": "b"})
		changed.SetAnnotations(map[string]string{"a": "b"})
		r.Subresource("status").PrepareForUpdate(&resource.RequestContext{}, changed, old)
		var got []string
		if len(changed.GetLabels()) > 0 {
			got = append(got, "labels")
		}
		if len(changed.GetAnnotations()) > 0 {
			got = append(got, "annotations")
		}
		if got := strings.Join(got, " "); got != want {
			t.Errorf("%s: %q, want %q", plural, got, want)
		}
	}
}

// TestUnconditionalUpdates checks in which versions of which kinds objects can be
// replaced without a resourceVersion.
func TestUnconditionalUpdates(t *testing.T) {
	for plural, want := range map[string]string{
		"clustertrustbundles":      "",
		"configmaps":               "v1",
		"devicetaintrules":         "v1alpha3 v1beta2",
		"evictionrequests":         "",
		"evictions":                "",
		"podcertificaterequests":   "",
		"podgroups":                "v1alpha3 v1beta1",
		"storageversionmigrations": "",
	} {
		r := kindOf(t, plural)
		var got []string
		for _, v := range r.Versions {
			if r.Strategy.AllowsUnconditionalUpdate(v.Version) {
				got = append(got, v.Version)
			}
		}
		slices.Sort(got)
		if got := strings.Join(got, " "); got != want {
			t.Errorf("%s: %q, want %q", plural, got, want)
		}
	}
}

// TestWarningsOfAStatus checks that an update of a status warns of addresses in
// unusual notations.
func TestWarningsOfAStatus(t *testing.T) {
	const problem = `: IPv6 address "FD00::1" should be in RFC 5952 canonical format ("fd00::1")`
	for _, test := range []struct {
		plural string
		obj    resource.Object
		want   []string
	}{
		{"pods", &corev1.Pod{Status: corev1.PodStatus{
			PodIPs:  []corev1.PodIP{{IP: "10.0.0.1"}, {IP: "FD00::1"}},
			HostIPs: []corev1.HostIP{{IP: "FD00::1"}},
		}}, []string{"status.podIPs[1].ip" + problem, "status.hostIPs[0].ip" + problem}},
		{"services", &corev1.Service{Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{
			Ingress: []corev1.LoadBalancerIngress{{Hostname: "lb.example.com"}, {IP: "FD00::1"}},
		}}}, []string{"status.loadBalancer.ingress[1]" + problem}},
		{"ingresses", &networkingv1.Ingress{Status: networkingv1.IngressStatus{LoadBalancer: networkingv1.IngressLoadBalancerStatus{
			Ingress: []networkingv1.IngressLoadBalancerIngress{{Hostname: "lb.example.com"}, {IP: "FD00::1"}},
		}}}, []string{"status.loadBalancer.ingress[1]" + problem}},
		{"deployments", &appsv1.Deployment{}, nil},
	} {
		r := kindOf(t, test.plural)
		got := resource.UpdateWarnings(r, r.Subresource("status"), &resource.RequestContext{}, test.obj, test.obj)
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.plural, diff)
		}
	}
}
