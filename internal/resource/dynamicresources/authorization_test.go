package dynamicresources_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/yaml"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/dynamicresources"
	"github.com/coracle-io/coracle/internal/resource/resourcetest"
)

// TestStatusRights checks which permissions changes of a claim's status need.
func TestStatusRights(t *testing.T) {
	const (
		results = `devices: {results: [{request: r, driver: d.example, pool: p, device: a}, {request: s, driver: e.example, pool: p, device: b}]}`
		onNode  = `allocation: {` + results + `, nodeSelector: {nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: In, values: [one]}]}]}}`
		reports = `devices: [{driver: d.example, pool: p, device: a, data: {x: 1}}, {driver: e.example, pool: p, device: b}]`
		binding = `status: Forbidden: changing status.allocation or status.reservedFor requires resource="resourceclaims/binding", verb="update" permission: refused`
		driver  = `status.devices: Forbidden: changing status.devices requires resource="resourceclaims/driver", verb="[arbitrary-node:update]" permission: refused`
		local   = `status.devices: Forbidden: changing status.devices requires resource="resourceclaims/driver", verb="[associated-node:update arbitrary-node:update]" permission: refused`
	)
	admin := &user.DefaultInfo{Name: "admin"}
	agent := &user.DefaultInfo{Name: "system:serviceaccount:gpu:agent", Extra: map[string][]string{"authentication.kubernetes.io/node-name": {"one"}}}
	for name, test := range map[string]struct {
		old, next string
		user      user.Info
		rights    []string
		want      []string
	}{
		"no change":               {old: onNode, next: onNode},
		"allocate":                {next: onNode, want: []string{binding}},
		"scheduler":               {next: onNode, rights: []string{"update binding//"}},
		"reserve":                 {old: onNode, next: onNode + `, reservedFor: [{resource: pods, name: p, uid: u}]`, want: []string{binding}},
		"report":                  {old: onNode, next: onNode + ", " + reports, want: []string{driver, driver}},
		"report of one driver":    {old: onNode, next: onNode + ", " + reports, rights: []string{"arbitrary-node:update driver/default/d.example"}, want: []string{driver}},
		"change":                  {old: onNode + ", " + reports, next: onNode + ", " + strings.Replace(reports, "x: 1", "x: 2", 1), want: []string{driver}},
		"remove":                  {old: onNode + ", " + reports, next: onNode, rights: []string{"arbitrary-node:update driver/default/e.example"}, want: []string{driver}},
		"release":                 {old: onNode + ", " + reports, next: "", rights: []string{"update binding//"}},
		"driver on the node":      {old: onNode, next: onNode + ", " + reports, user: agent, rights: []string{"associated-node:update driver/default/d.example"}, want: []string{local}},
		"driver on another node":  {old: strings.Replace(onNode, "[one]", "[two]", 1), next: strings.Replace(onNode, "[one]", "[two]", 1) + ", " + reports, user: agent, rights: []string{"associated-node:update driver/default/d.example"}, want: []string{driver, driver}},
		"the feature is disabled": {next: onNode},
	} {
		t.Run(name, func(t *testing.T) {
			old, next := claimWithStatus(t, test.old), claimWithStatus(t, test.next)
			r := &resource.RequestContext{Namespace: "default", Verb: "update", User: admin, AuthorizePart: func(verb, part, namespace, name string) error {
				if slices.Contains(test.rights, verb+" "+part+"/"+namespace+"/"+name) {
					return nil
				}
				return errors.New("refused")
			}}
			if test.user != nil {
				r.User = test.user
			}
			if name == "the feature is disabled" {
				r.Features = withGates(t, "-DRAResourceClaimGranularStatusAuthorization")
			}
			claims := dynamicresources.ResourceClaims()
			var got []string
			for _, err := range resourcetest.BeforeSubresourceUpdate(claims, claims.Subresource("status"), r, next, old) {
				got = append(got, err.Error())
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("want\n%s\ngot\n%s", strings.Join(test.want, "\n"), strings.Join(got, "\n"))
			}
		})
	}
}

// claimWithStatus returns a stored claim of two devices.
func claimWithStatus(t *testing.T, status string) *resourcev1.ResourceClaim {
	t.Helper()
	c := &resourcev1.ResourceClaim{}
	c.Name, c.Namespace, c.ResourceVersion, c.UID = "c", "default", "1", "u"
	for _, name := range []string{"r", "s"} {
		c.Spec.Devices.Requests = append(c.Spec.Devices.Requests, resourcev1.DeviceRequest{Name: name, Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu"}})
	}
	dynamicresources.ResourceClaims().Hub().Default(c)
	if err := yaml.Unmarshal([]byte("{"+status+"}"), &c.Status); err != nil {
		t.Fatal(err)
	}
	return c
}
