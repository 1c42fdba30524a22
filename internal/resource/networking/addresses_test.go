package networking_test

import (
	"strings"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/networking"
	"github.com/coracle-io/coracle/internal/resource/resourcetest"
)

// TestPolicyAddresses checks that CIDRs that parsers read differently are
// refused, unless the stored object has them or the feature is disabled, and
// that there are warnings about non-standard notation.
func TestPolicyAddresses(t *testing.T) {
	loose, err := feature.Parse([]string{"StrictIPCIDRValidation=false"})
	if err != nil {
		t.Fatal(err)
	}
	policy := func(cidr string) *networkingv1.NetworkPolicy {
		p := &networkingv1.NetworkPolicy{}
		p.Name, p.Namespace = "p", "n"
		p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: cidr}}}}}
		networking.NetworkPolicies().Hub().Default(p)
		return p
	}
	for name, test := range map[string]struct {
		cidr, before string
		features     *feature.Set
		want         string
	}{
		"usual":                {cidr: "2001:db8::/32"},
		"unusual":              {cidr: "2001:DB8::/32"},
		"zeros":                {cidr: "010.0.0.0/8", want: "must not have leading 0s"},
		"zeros, loose":         {cidr: "010.0.0.0/8", features: loose},
		"zeros as before":      {cidr: "010.0.0.0/8", before: "010.0.0.0/8"},
		"zeros put in":         {cidr: "010.0.0.0/8", before: "10.0.0.0/8", want: "must not have leading 0s"},
		"beyond the prefix":    {cidr: "10.0.0.1/8", want: "must not have bits set beyond the prefix length"},
		"no range, even loose": {cidr: "10.0.0.0", features: loose, want: "must be a valid CIDR value"},
	} {
		r, request, p := networking.NetworkPolicies(), &resource.RequestContext{Now: time.Unix(0, 0), Features: test.features}, policy(test.cidr)
		var messages []string
		if test.before == "" {
			for _, err := range resourcetest.BeforeCreate(r, request, p) {
				messages = append(messages, err.Error())
			}
		} else {
			old := policy(test.before)
			p.ResourceVersion, old.ResourceVersion = "1", "1"
			for _, err := range resourcetest.BeforeUpdate(r, request, p, old) {
				messages = append(messages, err.Error())
			}
		}
		got := strings.Join(messages, "; ")
		if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
