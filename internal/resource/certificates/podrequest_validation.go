package certificates

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// Limits of the fields of a request, in bytes.
const (
	maxUID         = 128
	maxStubRequest = 10 << 10
)

func validatePodRequest(_ *resource.RequestContext, r *certificatesv1.PodCertificateRequest) field.ErrorList {
	p, s := field.NewPath("spec"), &r.Spec
	errs := validators.SignerName(p.Child("signerName"), s.SignerName)
	errs = append(errs, validators.UserAnnotations(p.Child("unverifiedUserAnnotations"), s.UnverifiedUserAnnotations)...)
	for _, party := range []struct{ kind, name, uid string }{
		{"pod", s.PodName, string(s.PodUID)},
		{"serviceAccount", s.ServiceAccountName, string(s.ServiceAccountUID)},
		{"node", string(s.NodeName), string(s.NodeUID)},
	} {
		errs = append(errs, validators.Subdomain(p.Child(party.kind+"Name"), party.name)...)
		if at := p.Child(party.kind + "UID"); party.uid == "" {
			errs = append(errs, field.Invalid(at, party.uid, "must not be empty"))
		} else if len(party.uid) > maxUID {
			errs = append(errs, field.TooLong(at, party.uid, maxUID))
		}
	}
	expiration, longest := p.Child("maxExpirationSeconds"), validators.MaxCertificateSeconds(s.SignerName)
	switch e := s.MaxExpirationSeconds; {
	case e == nil:
		return append(errs, field.Required(expiration, "must be set"))
	case *e < validators.MinCertificateSeconds || *e > longest:
		errs = append(errs, field.Invalid(expiration, *e, fmt.Sprintf("must be in the range [%d, %d]", validators.MinCertificateSeconds, longest)))
	}
	if len(s.StubPKCS10Request) == 0 {
		// The other two are fields of an older version.
		return append(errs, field.Invalid(p, field.OmitValueType{}, "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set"))
	}
	return append(errs, validateStubRequest(p.Child("stubPKCS10Request"), s.StubPKCS10Request)...)
}

const notPKCS10 = "must be a valid PKCS#10 CSR"

// validateStubRequest requires a request that is signed with the key that it
// contains, and a supported type of key.
func validateStubRequest(p *field.Path, data []byte) field.ErrorList {
	if len(data) > maxStubRequest {
		return field.ErrorList{field.TooLong(p, data, maxStubRequest)}
	}
	request, err := x509.ParseCertificateRequest(data)
	if err != nil {
		return field.ErrorList{field.Invalid(p, field.OmitValueType{}, notPKCS10)}
	}
	switch key := request.PublicKey.(type) {
	case ed25519.PublicKey:
	case *ecdsa.PublicKey:
		if key.Curve != elliptic.P256() && key.Curve != elliptic.P384() && key.Curve != elliptic.P521() {
			return field.ErrorList{field.Invalid(p, "curve "+key.Curve.Params().Name, "elliptic public keys must use curve P256, P384, or P521")}
		}
	case *rsa.PublicKey:
		if bits := key.Size() * 8; bits != 3072 && bits != 4096 {
			return field.ErrorList{field.Invalid(p, fmt.Sprintf("%d-bit modulus", bits), "RSA keys must have modulus size 3072 or 4096")}
		}
	default:
		return field.ErrorList{field.Invalid(p, field.OmitValueType{}, "unknown public key type; supported types are Ed25519, ECDSA, and RSA")}
	}
	if err := request.CheckSignature(); err != nil {
		return field.ErrorList{field.Invalid(p, field.OmitValueType{}, "invalid signature")}
	}
	return nil
}
