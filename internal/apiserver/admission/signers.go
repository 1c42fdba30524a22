package admission

import (
	"context"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// typed returns an object of a write as the hub version's type, which plugins
// see whatever version the client uses. It refuses the write if the object has
// another type, since the plugin cannot check that.
func typed[T runtime.Object](a admission.Attributes, obj runtime.Object) (T, error) {
	known, ok := obj.(T)
	if !ok {
		return known, refused(a, "unexpected type %T", obj)
	}
	return known, nil
}

// mayForSigner reports whether the user may use the verb on the signer, or on
// all signers of its domain.
func mayForSigner(ctx context.Context, z authorizer.UnconditionalAuthorizer, u user.Info, verb, signer string) bool {
	domain, _, _ := strings.Cut(signer, "/")
	for _, name := range []string{signer, domain + "/*"} {
		decision, _, _ := z.Authorize(ctx, authorizer.AttributesRecord{User: u, Verb: verb, Name: name,
			APIGroup: certificatesv1.GroupName, APIVersion: "*", Resource: "signers", ResourceRequest: true})
		if decision == authorizer.DecisionAllow {
			return true
		}
	}
	return false
}
