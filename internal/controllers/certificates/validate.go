package certificates

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/coracle-io/coracle/internal/pki"
)

// validateForSigner returns an error if a built-in signer must not sign a request,
// according to the API documentation of the signer.
func validateForSigner(signer string, r *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
	switch signer {
	case certificatesv1.KubeAPIServerClientSignerName:
		return clientUsages(usages)
	case certificatesv1.KubeAPIServerClientKubeletSignerName:
		return kubeletClient(r, usages)
	case certificatesv1.KubeletServingSignerName:
		return kubeletServing(r, usages)
	}
	return nil
}

func clientUsages(usages []certificatesv1.KeyUsage) error {
	if !slices.Contains(usages, certificatesv1.UsageClientAuth) {
		return fmt.Errorf("usages did not include %q", certificatesv1.UsageClientAuth)
	}
	return within(usages, certificatesv1.UsageClientAuth)
}

func kubeletClient(r *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
	switch {
	case !slices.Equal(r.Subject.Organization, []string{user.NodesGroup}):
		return errors.New("subject organization is not system:nodes")
	case len(r.DNSNames) > 0:
		return errors.New("DNS subjectAltNames are not allowed")
	case len(r.EmailAddresses) > 0:
		return errors.New("Email subjectAltNames are not allowed")
	case len(r.IPAddresses) > 0:
		return errors.New("IP subjectAltNames are not allowed")
	case len(r.URIs) > 0:
		return errors.New("URI subjectAltNames are not allowed")
	case !strings.HasPrefix(r.Subject.CommonName, pki.NodePrefix):
		return errors.New("subject common name does not begin with system:node:")
	}
	return exactly(usages, certificatesv1.UsageClientAuth)
}

func kubeletServing(r *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
	switch {
	case !slices.Equal(r.Subject.Organization, []string{user.NodesGroup}):
		return errors.New("subject organization is not system:nodes")
	case len(r.DNSNames)+len(r.IPAddresses) == 0:
		return errors.New("DNS or IP subjectAltName is required")
	case len(r.EmailAddresses) > 0:
		return errors.New("Email subjectAltNames are not allowed")
	case len(r.URIs) > 0:
		return errors.New("URI subjectAltNames are not allowed")
	case !strings.HasPrefix(r.Subject.CommonName, pki.NodePrefix):
		return errors.New("subject common name does not begin with system:node:")
	}
	return exactly(usages, certificatesv1.UsageServerAuth)
}

// exactly requires the usage "digital signature" and the purpose. It also allows
// "key encipherment", which only RSA keys support.
func exactly(usages []certificatesv1.KeyUsage, purpose certificatesv1.KeyUsage) error {
	if err := within(usages, purpose); err != nil {
		return err
	}
	for _, u := range []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, purpose} {
		if !slices.Contains(usages, u) {
			return fmt.Errorf("usages did not include %q", u)
		}
	}
	return nil
}

func within(usages []certificatesv1.KeyUsage, purpose certificatesv1.KeyUsage) error {
	allowed := []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, purpose}
	for _, u := range usages {
		if !slices.Contains(allowed, u) {
			return fmt.Errorf("usage %q is not allowed; allowed are %q", u, allowed)
		}
	}
	return nil
}

// has reports whether a condition of a request is true.
func has(csr *certificatesv1.CertificateSigningRequest, condition certificatesv1.RequestConditionType) bool {
	return slices.ContainsFunc(csr.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
		return c.Type == condition && (c.Status == "" || c.Status == "True")
	})
}
