package certificates

import (
	"bytes"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// legacySigner is the signer of requests of older API versions that named
// none.
const legacySigner = "kubernetes.io/legacy-unknown"

// minExpiration is the minimum of expirationSeconds.
const minExpiration = 600

// prepareSigningRequest sets the requesting user.
func prepareSigningRequest(r *resource.RequestContext, c *certificatesv1.CertificateSigningRequest) {
	c.Spec.Username, c.Spec.UID, c.Spec.Groups, c.Spec.Extra = "", "", nil, nil
	if r.User == nil {
		return
	}
	c.Spec.Username, c.Spec.UID, c.Spec.Groups = r.User.GetName(), r.User.GetUID(), r.User.GetGroups()
	for key, values := range r.User.GetExtra() {
		if c.Spec.Extra == nil {
			c.Spec.Extra = map[string]certificatesv1.ExtraValue{}
		}
		c.Spec.Extra[key] = values
	}
}

// keyUsages returns all usages of the API, sorted.
func keyUsages() []certificatesv1.KeyUsage {
	return []certificatesv1.KeyUsage{
		certificatesv1.UsageAny, certificatesv1.UsageCertSign, certificatesv1.UsageClientAuth, certificatesv1.UsageCodeSigning,
		certificatesv1.UsageContentCommitment, certificatesv1.UsageCRLSign, certificatesv1.UsageDataEncipherment,
		certificatesv1.UsageDecipherOnly, certificatesv1.UsageDigitalSignature, certificatesv1.UsageEmailProtection,
		certificatesv1.UsageEncipherOnly, certificatesv1.UsageIPsecEndSystem, certificatesv1.UsageIPsecTunnel,
		certificatesv1.UsageIPsecUser, certificatesv1.UsageKeyAgreement, certificatesv1.UsageKeyEncipherment,
		certificatesv1.UsageMicrosoftSGC, certificatesv1.UsageNetscapeSGC, certificatesv1.UsageOCSPSigning,
		certificatesv1.UsageSMIME, certificatesv1.UsageServerAuth, certificatesv1.UsageSigning, certificatesv1.UsageTimestamping,
	}
}

// leniency is what an update may leave in a request, because older versions have
// stored it.
type leniency struct {
	unknownUsages, repeatedUsages bool
	legacySigner                  bool
	emptyTypes, repeatedTypes     bool // of conditions
	certificate                   bool // whatever it is
}

func lenientAbout(c, old *certificatesv1.CertificateSigningRequest) leniency {
	var types []certificatesv1.RequestConditionType
	for _, condition := range old.Status.Conditions {
		types = append(types, condition.Type)
	}
	known := keyUsages()
	return leniency{
		unknownUsages:  slices.ContainsFunc(old.Spec.Usages, func(u certificatesv1.KeyUsage) bool { return !slices.Contains(known, u) }),
		repeatedUsages: repeats(old.Spec.Usages),
		legacySigner:   old.Spec.SignerName == legacySigner,
		emptyTypes:     slices.Contains(types, ""),
		repeatedTypes:  repeats(types),
		certificate: bytes.Equal(c.Status.Certificate, old.Status.Certificate) ||
			len(validateCertificates(nil, old.Status.Certificate)) > 0,
	}
}

func repeats[T comparable](values []T) bool { return len(sets.New(values...)) < len(values) }

func validateSigningRequest(c *certificatesv1.CertificateSigningRequest, l leniency) field.ErrorList {
	var errs field.ErrorList
	p := field.NewPath("spec")
	if err := checkRequest(c.Spec.Request); err != nil {
		errs = append(errs, field.Invalid(p.Child("request"), c.Spec.Request, err.Error()))
	}
	if len(c.Spec.Usages) == 0 {
		errs = append(errs, field.Required(p.Child("usages"), ""))
	}
	errs = append(errs, validateUsages(p.Child("usages"), c.Spec.Usages, l)...)
	if signer := p.Child("signerName"); c.Spec.SignerName == legacySigner && !l.legacySigner {
		errs = append(errs, field.Invalid(signer, legacySigner, "the legacy signerName is not allowed via this API version"))
	} else {
		errs = append(errs, validators.SignerName(signer, c.Spec.SignerName)...)
	}
	if e := c.Spec.ExpirationSeconds; e != nil && *e < minExpiration {
		errs = append(errs, field.Invalid(p.Child("expirationSeconds"), *e,
			fmt.Sprintf("may not specify a duration less than %d seconds (10 minutes)", minExpiration)))
	}
	errs = append(errs, validateConditions(c, l)...)
	if !l.certificate {
		errs = append(errs, validateCertificates(field.NewPath("status", "certificate"), c.Status.Certificate)...)
	}
	return errs
}

func validateUsages(p *field.Path, usages []certificatesv1.KeyUsage, l leniency) field.ErrorList {
	var errs, repeated field.ErrorList
	known, seen := slices.Sorted(slices.Values(keyUsages())), sets.New[certificatesv1.KeyUsage]()
	for i, usage := range usages {
		if !l.unknownUsages {
			errs = append(errs, validators.OneOf(p.Index(i), usage, known...)...)
		}
		if seen.Has(usage) && !l.repeatedUsages {
			repeated = append(repeated, field.Duplicate(p.Index(i), usage))
		}
		seen.Insert(usage)
	}
	return append(errs, repeated...)
}

// ParseRequest parses the request of a CertificateSigningRequest. It does not
// check the signature.
func ParseRequest(data []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	return x509.ParseCertificateRequest(block.Bytes)
}

// maxRSABits bounds the keys of requests: with a key of a megabyte, a signature takes
// minutes to check.
const maxRSABits = 16 << 10

func checkRequest(data []byte) error {
	request, err := ParseRequest(data)
	if err != nil {
		return err
	}
	if key, ok := request.PublicKey.(*rsa.PublicKey); ok && key.N.BitLen() > maxRSABits {
		return fmt.Errorf("the RSA key has %d bits, of which %d are allowed", key.N.BitLen(), maxRSABits)
	}
	return request.CheckSignature()
}

func validateConditions(c *certificatesv1.CertificateSigningRequest, l leniency) field.ErrorList {
	var errs field.ErrorList
	p := field.NewPath("status", "conditions")
	seen := sets.New[certificatesv1.RequestConditionType]()
	for i, condition := range c.Status.Conditions {
		at := p.Index(i)
		if condition.Type == "" && !l.emptyTypes {
			errs = append(errs, field.Required(at.Child("type"), ""))
		}
		switch decision := condition.Type; {
		case condition.Status == "":
			errs = append(errs, field.Required(at.Child("status"), ""))
		case decision == certificatesv1.CertificateApproved || decision == certificatesv1.CertificateDenied || decision == certificatesv1.CertificateFailed:
			errs = append(errs, validators.OneOf(at.Child("status"), string(condition.Status), string(metav1.ConditionTrue))...)
		default:
			errs = append(errs, validators.OneOf(at.Child("status"), string(condition.Status),
				string(metav1.ConditionFalse), string(metav1.ConditionTrue), string(metav1.ConditionUnknown))...)
		}
		if seen.Has(condition.Type) && !l.repeatedTypes {
			errs = append(errs, field.Duplicate(at.Child("type"), condition.Type))
		}
		seen.Insert(condition.Type)
	}
	return errs
}

// validateDecisionsKept refuses to remove decisions and, unless addable is set,
// to add them.
func validateDecisionsKept(c, old *certificatesv1.CertificateSigningRequest, addable bool) field.ErrorList {
	const approved, denied = certificatesv1.CertificateApproved, certificatesv1.CertificateDenied
	var errs field.ErrorList
	p := field.NewPath("status", "conditions")
	for _, t := range []certificatesv1.RequestConditionType{approved, denied, certificatesv1.CertificateFailed} {
		if len(conditionsOf(c, t)) < len(conditionsOf(old, t)) {
			errs = append(errs, field.Forbidden(p, fmt.Sprintf("updates may not remove a condition of type %q", t)))
		}
	}
	for _, t := range []certificatesv1.RequestConditionType{approved, denied} {
		if !addable && len(conditionsOf(c, t)) > len(conditionsOf(old, t)) {
			errs = append(errs, field.Forbidden(p, fmt.Sprintf("updates may not add a condition of type %q", t)))
		}
	}
	return errs
}

// validateApproval checks a write of an approver: the request is valid, and no
// decision is removed.
func validateApproval(_ *resource.RequestContext, c, old *certificatesv1.CertificateSigningRequest) field.ErrorList {
	errs := append(validateWhole(c, old), validateDecisionsKept(c, old, true)...)
	return append(errs, validateOneDecision(c, old)...)
}

// validateSigned checks a write of a signer: it does not change decisions, and
// does not replace a certificate.
func validateSigned(_ *resource.RequestContext, c, old *certificatesv1.CertificateSigningRequest) field.ErrorList {
	errs := append(validateWhole(c, old), validateDecisionsKept(c, old, false)...)
	if len(old.Status.Certificate) > 0 && !bytes.Equal(c.Status.Certificate, old.Status.Certificate) {
		errs = append(errs, field.Forbidden(field.NewPath("status", "certificate"), "updates may not modify existing certificate content"))
	}
	return append(errs, validateOneDecision(c, old)...)
}

// validateOneDecision refuses to both approve and deny a request, by a tag of the
// type. Its error comes last.
func validateOneDecision(c, old *certificatesv1.CertificateSigningRequest) field.ErrorList {
	if !isContradictory(c) || isContradictory(old) {
		return nil
	}
	const approved, denied = `conditions[{"type": "Approved"}]`, `conditions[{"type": "Denied"}]`
	return field.ErrorList{field.Invalid(field.NewPath("status", "conditions"), fmt.Sprintf("{%s, %s}", approved, denied),
		fmt.Sprintf("must specify at most one of: `%s`, `%s`", approved, denied))}
}

func isContradictory(c *certificatesv1.CertificateSigningRequest) bool {
	return len(conditionsOf(c, certificatesv1.CertificateApproved)) > 0 && len(conditionsOf(c, certificatesv1.CertificateDenied)) > 0
}

func validateWhole(c, old *certificatesv1.CertificateSigningRequest) field.ErrorList {
	errs := resource.ValidateNamedMetadata(c, false, resource.NameIsPathSegment)
	return append(errs, validateSigningRequest(c, lenientAbout(c, old))...)
}

// validateCertificates requires one or more certificates in PEM, or nothing.
func validateCertificates(p *field.Path, data []byte) field.ErrorList {
	if len(data) == 0 {
		return nil
	}
	const shown = "<certificate data>"
	found := false
	for {
		block, rest := pem.Decode(data)
		switch {
		case block == nil && !found:
			return field.ErrorList{field.Invalid(p, shown, "must contain at least one CERTIFICATE PEM block")}
		case block == nil:
			return nil
		case block.Type != "CERTIFICATE":
			return field.ErrorList{field.Invalid(p, shown, fmt.Sprintf("only CERTIFICATE PEM blocks are allowed, found %q", block.Type))}
		case len(block.Headers) > 0:
			return field.ErrorList{field.Invalid(p, shown, "no PEM block headers are permitted")}
		}
		parsed, err := x509.ParseCertificates(block.Bytes)
		if err != nil {
			return field.ErrorList{field.Invalid(p, shown, err.Error())}
		}
		if len(parsed) == 0 {
			return field.ErrorList{field.Invalid(p, shown, "found CERTIFICATE PEM block containing 0 certificates")}
		}
		found, data = true, rest
	}
}
