package dynamicresources_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/dynamicresources"
	"github.com/coracle-io/coracle/internal/resource/resourcetest"
)

// TestConstraintsOfDerivedAttributes checks that a constraint for the same
// request must compare a derived attribute.
func TestConstraintsOfDerivedAttributes(t *testing.T) {
	const derived = `deviceClassName: c, derivedAttributes: [{name: x.example/n, expression: "device.driver"}]`
	const spec = `{devices: {requests: [{name: a, exactly: {` + derived + `}},
  {name: f, firstAvailable: [{name: one, ` + derived + `}, {name: two, ` + derived + `}]}],
  constraints: [{matchAttribute: x.example/n, requests: %s}]}}`
	const p = "spec.devices.requests"
	const whole, one, two = p + "[0].exactly", p + "[1].firstAvailable[0]", p + "[1].firstAvailable[1]"
	for requests, want := range map[string][]string{
		"[]":      nil,
		"[a, f]":  nil,
		"[a]":     {one, two},
		"[f]":     {whole},
		"[f/one]": {whole, two},
	} {
		c := &resourcev1.ResourceClaim{}
		c.Name, c.Namespace = "c", "n"
		if err := yaml.Unmarshal(fmt.Appendf(nil, spec, requests), &c.Spec); err != nil {
			t.Fatal(err)
		}
		r := dynamicresources.ResourceClaims()
		r.Hub().Default(c)
		request := &resource.RequestContext{Now: time.Unix(0, 0), Features: withGates(t, "DRADerivedAttributes")}
		var got []string
		for _, err := range resourcetest.BeforeCreate(r, request, c) {
			got = append(got, err.Field)
		}
		for i := range want {
			want[i] += ".derivedAttributes[0].name"
		}
		if !slices.Equal(got, want) {
			t.Errorf("constraint for %s: errors at %q, want %q", requests, got, want)
		}
	}
}
