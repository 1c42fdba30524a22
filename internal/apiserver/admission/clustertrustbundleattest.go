package admission

import (
	"context"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/coracle-io/coracle/internal/apiserver/authz/rbac"
)

// clusterTrustBundleAttest restricts trust bundles to users with the verb
// attest on the signer.
type clusterTrustBundleAttest struct {
	onWrite
	authorizer authorizer.UnconditionalAuthorizer
}

func newClusterTrustBundleAttest(c *Config) admission.Interface {
	return clusterTrustBundleAttest{authorizer: c.Authorizer}
}

func (p clusterTrustBundleAttest) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if !is(a, certificatesv1.GroupName, "clustertrustbundles", "") {
		return nil
	}
	bundle, err := typed[*certificatesv1.ClusterTrustBundle](a, a.GetObject())
	if err != nil {
		return err
	}
	if bundle.Spec.SignerName == "" || a.GetOldObject() != nil && rbac.IsOnlyMutatingGCFields(bundle, a.GetOldObject()) {
		return nil
	}
	if !mayForSigner(ctx, p.authorizer, a.GetUserInfo(), "attest", bundle.Spec.SignerName) {
		return refused(a, "user not permitted to attest for signerName %q", bundle.Spec.SignerName)
	}
	return nil
}
