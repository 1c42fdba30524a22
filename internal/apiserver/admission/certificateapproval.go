package admission

import (
	"context"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// certificateApproval restricts approvals to users with the verb approve on the
// signer.
type certificateApproval struct {
	onUpdate
	authorizer authorizer.UnconditionalAuthorizer
}

func newCertificateApproval(c *Config) admission.Interface {
	return certificateApproval{authorizer: c.Authorizer}
}

func (p certificateApproval) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if !is(a, certificatesv1.GroupName, "certificatesigningrequests", "approval") {
		return nil
	}
	csr, err := typed[*certificatesv1.CertificateSigningRequest](a, a.GetOldObject())
	if err != nil {
		return err
	}
	if !mayForSigner(ctx, p.authorizer, a.GetUserInfo(), "approve", csr.Spec.SignerName) {
		return refused(a, "user not permitted to approve requests with signerName %q", csr.Spec.SignerName)
	}
	return nil
}
