package node

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/coracle-io/coracle/internal/apiserver/objects/objectstest"
)

// The ingress controller reads the Secrets of TLS together, and no others.
func TestIngressReadsSecretsOfTLSAlone(t *testing.T) {
	controller := &user.DefaultInfo{Name: "system:coracle:ingress", Groups: []string{"system:authenticated"}}
	selecting := func(verb, selector string) authorizer.AttributesRecord {
		a := authorizer.AttributesRecord{User: controller, Verb: verb, Resource: "secrets", ResourceRequest: true}
		a.FieldSelectorRequirements = fields.ParseSelectorOrDie(selector).Requirements()
		return a
	}
	with := func(a authorizer.AttributesRecord, change func(*authorizer.AttributesRecord)) authorizer.AttributesRecord {
		change(&a)
		return a
	}
	const ofTLS = "type=kubernetes.io/tls"
	z := New(objectstest.NewMemory(), nil)
	for what, test := range map[string]struct {
		authorizer.AttributesRecord
		allowed bool
	}{
		"list":                {selecting("list", ofTLS), true},
		"watch":               {selecting("watch", ofTLS), true},
		"of one namespace":    {with(selecting("list", ofTLS), func(a *authorizer.AttributesRecord) { a.Namespace = "web" }), true},
		"all":                 {selecting("list", ""), false},
		"of another type":     {selecting("list", "type=Opaque"), false},
		"of all other types":  {selecting("list", "type!=kubernetes.io/tls"), false},
		"one by name":         {with(selecting("get", ofTLS), func(a *authorizer.AttributesRecord) { a.Name = "a" }), false},
		"list of one by name": {with(selecting("list", ofTLS), func(a *authorizer.AttributesRecord) { a.Name = "a" }), false},
		"delete":              {selecting("deletecollection", ofTLS), false},
		"config maps":         {with(selecting("list", ofTLS), func(a *authorizer.AttributesRecord) { a.Resource = "configmaps" }), false},
		"another user":        {with(selecting("list", ofTLS), func(a *authorizer.AttributesRecord) { a.User = &user.DefaultInfo{Name: "x"} }), false},
	} {
		decision, _, err := z.Authorize(context.Background(), test.AttributesRecord)
		if err != nil || (decision == authorizer.DecisionAllow) != test.allowed {
			t.Errorf("%s: %v, %v, want allowed to be %v", what, decision, err, test.allowed)
		}
	}
}
