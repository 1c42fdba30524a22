package core_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core"
)

func TestServiceWarnings(t *testing.T) {
	for spec, want := range map[string][]string{
		`{clusterIP: None, ports: [{port: 1}]}`: nil,
		`{clusterIP: None, loadBalancerIP: "fd00::0:1", externalIPs: [1.2.3.4], sessionAffinity: ClientIP}`: {
			"spec.externalIPs is deprecated",
			`spec.loadBalancerIP: IPv6 address "fd00::0:1" should be in RFC 5952 canonical format ("fd00::1")`,
			"spec.loadBalancerIP is ignored for headless services",
			"spec.externalIPs is ignored for headless services",
			"spec.SessionAffinity is ignored for headless services",
		},
		`{type: LoadBalancer, loadBalancerSourceRanges: [10.1.2.3/8], externalName: e, trafficDistribution: PreferClose}`: {
			`spec.loadBalancerSourceRanges[0]: CIDR value "10.1.2.3/8" is ambiguous in this context (should be "10.0.0.0/8" or "10.1.2.3/32"?)`,
			`spec.externalName is ignored when spec.type is not "ExternalName"`,
			`spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"`,
		},
	} {
		got := core.Services().Strategy.Warnings(&resource.RequestContext{}, newService(t, spec), nil)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", spec, diff)
		}
	}
}
