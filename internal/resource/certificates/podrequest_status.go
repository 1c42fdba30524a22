package certificates

import (
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/mail"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

const (
	issued = certificatesv1.PodCertificateRequestConditionTypeIssued
	denied = certificatesv1.PodCertificateRequestConditionTypeDenied
	failed = certificatesv1.PodCertificateRequestConditionTypeFailed
)

// maxCertificateChain is the maximum size of a chain in bytes.
const maxCertificateChain = 100 << 10

// validatePodRequestStatus requires that the user may sign for the request's
// signer.
func validatePodRequestStatus(r *resource.RequestContext, c, old *certificatesv1.PodCertificateRequest) field.ErrorList {
	if errs := validatePodRequestEnd(r, c, old); len(errs) > 0 {
		return errs
	}
	signer := old.Spec.SignerName
	if equality.Semantic.DeepEqual(c.Status, old.Status) || maySign(r, signer) {
		return nil
	}
	name := ""
	if r.User != nil {
		name = r.User.GetName()
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec", "signerName"), fmt.Sprintf(`User %q is not permitted to "sign" for signer %q`, name, signer))}
}

// maySign reports whether the user may sign for a signer, by its name or for
// all of its domain.
func maySign(r *resource.RequestContext, signer string) bool {
	domain, _, _ := strings.Cut(signer, "/")
	return r.Authorized != nil && slices.ContainsFunc([]string{signer, domain + "/*"}, func(name string) bool {
		return r.Authorized("sign", certificatesv1.GroupName, "signers", name)
	})
}

// validatePodRequestEnd allows a request to end once: with a certificate that
// fits the request, or with a refusal.
func validatePodRequestEnd(r *resource.RequestContext, c, old *certificatesv1.PodCertificateRequest) field.ErrorList {
	p, s := field.NewPath("status"), &c.Status
	if errs := validateOutcome(p.Child("conditions"), s.Conditions); len(errs) > 0 {
		return errs
	}
	has := func(s *certificatesv1.PodCertificateRequestStatus, t string) bool {
		return meta.IsStatusConditionTrue(s.Conditions, t)
	}
	refuse := func(detail string) field.ErrorList {
		return field.ErrorList{field.Invalid(p, field.OmitValueType{}, detail)}
	}
	same := equality.Semantic.DeepEqual(*s, old.Status)
	switch {
	case has(&old.Status, issued) || has(&old.Status, denied) || has(&old.Status, failed):
		if !same {
			return refuse("immutable after PodCertificateRequest is issued, denied, or failed")
		}
		return nil
	case has(s, denied) || has(s, failed):
		if !equality.Semantic.DeepEqual(*s, certificatesv1.PodCertificateRequestStatus{Conditions: s.Conditions}) {
			return refuse("non-condition status fields must be empty when denying or failing the PodCertificateRequest")
		}
		return nil
	case has(s, issued):
		return validateIssued(p, c, r.Now)
	case !same:
		return refuse(`status is immutable unless transitioning to "Issued", "Denied", or "Failed"`)
	default:
		return nil
	}
}

// validateOutcome requires at most one condition, with status True.
func validateOutcome(p *field.Path, conditions []metav1.Condition) field.ErrorList {
	var errs field.ErrorList
	known := 0
	for i, c := range conditions {
		at := p.Child(fmt.Sprintf("[%d]", i))
		if problems := validators.OneOf(at.Child("type"), c.Type, issued, denied, failed); len(problems) > 0 {
			errs = append(errs, problems...)
			continue
		}
		if known++; known > 1 {
			errs = append(errs, field.Invalid(at.Child("type"), c.Type, `There may be at most one condition with type "Issued", "Denied", or "Failed"`))
		}
		errs = append(errs, validators.OneOf(at.Child("status"), c.Status, metav1.ConditionTrue)...)
	}
	return append(errs, metav1validation.ValidateConditions(conditions, p)...)
}

// validateIssued requires a certificate for the requested key, and status
// fields that repeat the certificate's times.
func validateIssued(p *field.Path, c *certificatesv1.PodCertificateRequest, now time.Time) field.ErrorList {
	s, chain := &c.Status, p.Child("certificateChain")
	leaf, rest, errs := parseLeaf(chain, s.CertificateChain)
	if leaf == nil {
		return errs
	}
	request, err := x509.ParseCertificateRequest(c.Spec.StubPKCS10Request)
	if err != nil {
		return append(errs, field.Invalid(field.NewPath("spec", "stubPKCS10Request"), field.OmitValueType{}, notPKCS10))
	}
	if key, ok := request.PublicKey.(interface{ Equal(crypto.PublicKey) bool }); !ok || !key.Equal(leaf.PublicKey) {
		return append(errs, field.Invalid(chain, s.CertificateChain, "leaf certificate was not issued to the requested public key"))
	}
	notBefore, notAfter, refresh := p.Child("notBefore"), p.Child("notAfter"), p.Child("beginRefreshAt")
	if s.NotBefore == nil {
		errs = append(errs, field.Required(notBefore, "must be present and consistent with the issued certificate"))
	}
	if s.NotAfter == nil {
		errs = append(errs, field.Required(notAfter, "must be present and consistent with the issued certificate"))
	}
	if s.BeginRefreshAt == nil {
		errs = append(errs, field.Required(refresh, "must be present and in the range [notbefore+10min, notafter-10min]"))
	}
	if len(errs) > 0 {
		return errs
	}
	const skew, margin, shortest = 5 * time.Minute, 10 * time.Minute, time.Hour
	begin, end, life := s.NotBefore.Time, s.NotAfter.Time, leaf.NotAfter.Sub(leaf.NotBefore)
	longest := time.Duration(*c.Spec.MaxExpirationSeconds) * time.Second
	for _, mismatch := range []struct {
		found  bool
		path   *field.Path
		value  any
		detail string
	}{
		{!begin.Equal(leaf.NotBefore), notBefore, begin, "must be set to the NotBefore time encoded in the leaf certificate"},
		{begin.Sub(now).Abs() >= skew, notBefore, begin, "must be set to within 5 minutes of kube-apiserver's current time"},
		{!end.Equal(leaf.NotAfter), notAfter, end, "must be set to the NotAfter time encoded in the leaf certificate"},
		{life < shortest, chain, life, "leaf certificate lifetime must be >= 1 hour"},
		{life > longest, chain, life, fmt.Sprintf("leaf certificate lifetime must be <= spec.maxExpirationSeconds (%d)", *c.Spec.MaxExpirationSeconds)},
		{s.BeginRefreshAt.Time.Before(begin.Add(margin)), refresh, s.BeginRefreshAt.Time, "must be at least 10 minutes after status.notBefore"},
		{s.BeginRefreshAt.Time.After(end.Add(-margin)), refresh, s.BeginRefreshAt.Time, "must be at least 10 minutes before status.notAfter"},
	} {
		if mismatch.found {
			return field.ErrorList{field.Invalid(mismatch.path, mismatch.value, mismatch.detail)}
		}
	}
	return validateIntermediates(chain, s.CertificateChain, rest)
}

const otherBlock = "issued certificate chain must consist entirely of CERTIFICATE PEM blocks"

// parseLeaf returns the first certificate of a chain in PEM, unless it cannot be
// parsed, and what follows it.
func parseLeaf(p *field.Path, chain string) (leaf *x509.Certificate, rest []byte, errs field.ErrorList) {
	refuse := func(detail string) (*x509.Certificate, []byte, field.ErrorList) {
		return nil, nil, field.ErrorList{field.Invalid(p, chain, detail)}
	}
	if len(chain) > maxCertificateChain {
		return nil, nil, field.ErrorList{field.TooLong(p, chain, maxCertificateChain)}
	}
	block, rest := pem.Decode([]byte(chain))
	switch {
	case block == nil:
		return refuse("issued certificate chain must contain at least one certificate")
	case block.Type != "CERTIFICATE":
		return refuse(otherBlock)
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return refuse("leaf certificate does not parse as valid X.509")
	}
	return leaf, rest, validateLeafNames(p, leaf)
}

// validateIntermediates checks what follows the first certificate of a chain.
func validateIntermediates(p *field.Path, chain string, rest []byte) field.ErrorList {
	for block, rest := pem.Decode(rest); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			return field.ErrorList{field.Invalid(p, chain, otherBlock)}
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return field.ErrorList{field.Invalid(p, chain, "intermediate certificate does not parse as valid X.509")}
		}
	}
	return nil
}

func validateLeafNames(p *field.Path, leaf *x509.Certificate) field.ErrorList {
	var errs field.ErrorList
	for _, name := range leaf.DNSNames {
		if name == "" {
			errs = append(errs, field.Invalid(p, name, "leaf certificate should not contain empty DNSName"))
		}
		if strings.Contains(name, "..") {
			errs = append(errs, field.Invalid(p, name, "leaf certificate's DNSName should not contain '..'"))
		}
		if strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".") {
			errs = append(errs, field.Invalid(p, name, "leaf certificate's DNSName should not start or end with '.'"))
		}
	}
	for _, address := range leaf.EmailAddresses {
		if _, err := mail.ParseAddress(address); err != nil {
			errs = append(errs, field.Invalid(p, address, "leaf certificate should not contain invalid EmailAddress"))
		}
	}
	return errs
}
