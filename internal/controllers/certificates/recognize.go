package certificates

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
)

// Identity of kubelets in their certificates.
const (
	nodesGroup = "system:nodes"
	nodePrefix = "system:node:"
)

// parse reads the PEM of a request.
func parse(content []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(content)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	return x509.ParseCertificateRequest(block.Bytes)
}

// fits says why a signer must not sign a request, by the rules of the API's
// documentation of the built-in signers; nil if it may.
func fits(signer string, r *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
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
	case !slices.Equal(r.Subject.Organization, []string{nodesGroup}):
		return errors.New("subject organization is not system:nodes")
	case len(r.DNSNames) > 0:
		return errors.New("DNS subjectAltNames are not allowed")
	case len(r.EmailAddresses) > 0:
		return errors.New("Email subjectAltNames are not allowed")
	case len(r.IPAddresses) > 0:
		return errors.New("IP subjectAltNames are not allowed")
	case len(r.URIs) > 0:
		return errors.New("URI subjectAltNames are not allowed")
	case !strings.HasPrefix(r.Subject.CommonName, nodePrefix):
		return errors.New("subject common name does not begin with system:node:")
	}
	return exactly(usages, certificatesv1.UsageClientAuth)
}

func kubeletServing(r *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
	switch {
	case !slices.Equal(r.Subject.Organization, []string{nodesGroup}):
		return errors.New("subject organization is not system:nodes")
	case len(r.DNSNames)+len(r.IPAddresses) == 0:
		return errors.New("DNS or IP subjectAltName is required")
	case len(r.EmailAddresses) > 0:
		return errors.New("Email subjectAltNames are not allowed")
	case len(r.URIs) > 0:
		return errors.New("URI subjectAltNames are not allowed")
	case !strings.HasPrefix(r.Subject.CommonName, nodePrefix):
		return errors.New("subject common name does not begin with system:node:")
	}
	return exactly(usages, certificatesv1.UsageServerAuth)
}

// exactly requires digital signature and the purpose; key encipherment, which
// only RSA keys can do, may be there or not.
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

// has says whether a request has a condition that is true.
func has(csr *certificatesv1.CertificateSigningRequest, condition certificatesv1.RequestConditionType) bool {
	return slices.ContainsFunc(csr.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
		return c.Type == condition && (c.Status == "" || c.Status == "True")
	})
}
