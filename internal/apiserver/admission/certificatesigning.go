package admission

import (
	"context"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// certificateSigning restricts issued certificates to users with the verb sign
// on the signer.
type certificateSigning struct {
	onUpdate
	authorizer authorizer.UnconditionalAuthorizer
}

func newCertificateSigning(c *Config) admission.Interface {
	return certificateSigning{authorizer: c.Authorizer}
}

func (p certificateSigning) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if !is(a, certificatesv1.GroupName, "certificatesigningrequests", "status") {
		return nil
	}
	old, err := typed[*certificatesv1.CertificateSigningRequest](a, a.GetOldObject())
	if err != nil {
		return err
	}
	csr, err := typed[*certificatesv1.CertificateSigningRequest](a, a.GetObject())
	if err != nil {
		return err
	}
	if slices.Equal(old.Status.Certificate, csr.Status.Certificate) && equality.Semantic.DeepEqual(old.Status.Conditions, csr.Status.Conditions) {
		return nil
	}
	if !mayForSigner(ctx, p.authorizer, a.GetUserInfo(), "sign", old.Spec.SignerName) {
		return refused(a, "user not permitted to sign requests with signerName %q", old.Spec.SignerName)
	}
	return nil
}
