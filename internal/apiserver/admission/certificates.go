package admission

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/coracle-io/coracle/internal/apiserver/authz/rbac"
)

// typed is an object of a write as the type in which plugins see it: that of
// the hub version, whatever version the client speaks. A check that meets
// another type does not know what it looks at, and refuses.
func typed[T runtime.Object](a admission.Attributes, obj runtime.Object) (T, error) {
	known, ok := obj.(T)
	if !ok {
		return known, refused(a, "unexpected type %T", obj)
	}
	return known, nil
}

// mayForSigner asks whether the user may do verb with the signer, by its name
// or for all of its domain.
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

// certificateApproval lets those approve who may approve for the signer.
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

// certificateSigning lets those put a certificate into the status who may sign
// for the signer.
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

// clusterTrustBundleAttest lets those publish trust for a signer who may attest for it.
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
	if bundle.Spec.SignerName == "" || a.GetOldObject() != nil && rbac.OnlyForCollector(bundle, a.GetOldObject()) {
		return nil
	}
	if !mayForSigner(ctx, p.authorizer, a.GetUserInfo(), "attest", bundle.Spec.SignerName) {
		return refused(a, "user not permitted to attest for signerName %q", bundle.Spec.SignerName)
	}
	return nil
}

// certificateSubjectRestriction keeps system:masters out of certificates for clients.
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
	request, err := parseRequest(csr.Spec.Request)
	if err != nil {
		return refused(a, "failed to parse CSR: %v", err)
	}
	if slices.Contains(request.Subject.Organization, user.SystemPrivilegedGroup) {
		return refused(a, "use of %s signer with system:masters group is not allowed", certificatesv1.KubeAPIServerClientSignerName)
	}
	return nil
}

func parseRequest(content []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(content)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, fmt.Errorf("PEM block type must be CERTIFICATE REQUEST")
	}
	return x509.ParseCertificateRequest(block.Bytes)
}
