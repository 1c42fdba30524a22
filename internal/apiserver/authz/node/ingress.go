package node

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/coracle-io/coracle/internal/pki"
)

// readsTLSSecrets reports whether the ingress controller lists or watches the Secrets of
// the type kubernetes.io/tls. RBAC cannot say that: a role for the Secrets that Ingresses
// name would be one for all.
func readsTLSSecrets(a authorizer.Attributes) bool {
	if a.GetUser() == nil || a.GetUser().GetName() != pki.Ingress().CommonName {
		return false
	}
	return a.IsResourceRequest() && a.GetAPIGroup() == "" && a.GetResource() == "secrets" && a.GetSubresource() == "" && a.GetName() == "" &&
		(a.GetVerb() == "list" || a.GetVerb() == "watch") && selects(a, "type", string(corev1.SecretTypeTLS))
}
