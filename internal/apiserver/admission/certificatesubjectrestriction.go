package admission

import (
	"context"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/coracle-io/coracle/internal/resource/certificates"
)

// certificateSubjectRestriction refuses requests for client certificates of the
// group system:masters.
type certificateSubjectRestriction struct{ onCreate }

func (certificateSubjectRestriction) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if !is(a, certificatesv1.GroupName, "certificatesigningrequests", "") {
		return nil
	}
	csr, err := typed[*certificatesv1.CertificateSigningRequest](a, a.GetObject())
	if err != nil {
		return err
	}
	if csr.Spec.SignerName != certificatesv1.KubeAPIServerClientSignerName {
		return nil
	}
	request, err := certificates.ParseRequest(csr.Spec.Request)
	if err != nil {
		return refused(a, "failed to parse CSR: %v", err)
	}
	if slices.Contains(request.Subject.Organization, user.SystemPrivilegedGroup) {
		return refused(a, "use of %s signer with system:masters group is not allowed", certificatesv1.KubeAPIServerClientSignerName)
	}
	return nil
}
