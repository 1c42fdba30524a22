package certificates

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/cell"
	"github.com/coracle-io/coracle/internal/resource/rule"
)

// maxTrustBundle is how long a bundle may be, in bytes.
const maxTrustBundle = 1 << 20

// ClusterTrustBundles is the resource clustertrustbundles (KEP-3257).
func ClusterTrustBundles() *resource.Resource {
	return resource.Define(resource.Definition[certificatesv1.ClusterTrustBundle, *certificatesv1.ClusterTrustBundle]{
		GroupVersion: certificatesv1.SchemeGroupVersion,
		Kind:         "ClusterTrustBundle",
		Plural:       "clustertrustbundles",
		Gate:         "ClusterTrustBundle",
		Cluster:      true,
		ValidateName: anyName,
		Validate: func(_ *resource.Request, b *certificatesv1.ClusterTrustBundle) field.ErrorList {
			return validateTrustBundle(b, nil)
		},
		UpdateValidatesAlone: true,
		ValidateUpdate: func(_ *resource.Request, b, old *certificatesv1.ClusterTrustBundle) field.ErrorList {
			errs := resource.ValidateNamedMetadata(b, false, anyName)
			errs = append(errs, validateTrustBundle(b, old)...)
			return append(errs, rule.Immutable(field.NewPath("spec", "signerName"), b.Spec.SignerName, old.Spec.SignerName)...)
		},
		Columns: []metav1.TableColumnDefinition{
			resource.NameColumn(),
			resource.Column("SignerName", "string", certificatesv1.ClusterTrustBundleSpec{}.SwaggerDoc()["signerName"]),
		},
		Row: func(b *certificatesv1.ClusterTrustBundle, _ time.Time) []any {
			signer := cell.None
			if b.Spec.SignerName != "" {
				signer = b.Spec.SignerName
			}
			return []any{b.Name, signer}
		},
		SelectableFields: func(b *certificatesv1.ClusterTrustBundle) fields.Set {
			return fields.Set{"spec.signerName": b.Spec.SignerName}
		},
		Fields: []string{"spec.signerName"},
	})
}

// anyName leaves names to validateBundleName, which knows the signer.
func anyName(string, bool) []string { return nil }

// validateTrustBundle checks everything but what is in a bundle that stays as
// it was: what parsers let through changes with time.
func validateTrustBundle(b, old *certificatesv1.ClusterTrustBundle) field.ErrorList {
	errs := validateBundleName(b.Name, b.Spec.SignerName)
	if b.Spec.SignerName != "" {
		errs = append(errs, rule.SignerName(field.NewPath("spec", "signerName"), b.Spec.SignerName)...)
	}
	if old != nil && b.Spec.TrustBundle == old.Spec.TrustBundle {
		return errs
	}
	return append(errs, validateAnchors(field.NewPath("spec", "trustBundle"), b.Spec.TrustBundle)...)
}

// validateBundleName requires a signer's bundle to carry the signer's name,
// with ":" for "/", before its own.
func validateBundleName(name, signer string) field.ErrorList {
	p, own := field.NewPath("metadata", "name"), name
	prefix := strings.ReplaceAll(signer, "/", ":") + ":"
	switch {
	case name == "":
		return nil // which is reported for all kinds
	case signer == "" && strings.Contains(name, ":"):
		return field.ErrorList{field.Invalid(p, name, "ClusterTrustBundle without signer name must not have \":\" in its name")}
	case signer != "" && !strings.HasPrefix(name, prefix):
		return field.ErrorList{field.Invalid(p, name, fmt.Sprintf("ClusterTrustBundle for signerName %s must be named with prefix %s", signer, prefix))}
	case signer != "":
		own = strings.TrimPrefix(name, prefix)
	}
	return rule.Problems(p, name, utilvalidation.IsDNS1123Subdomain(own))
}

// validateAnchors requires certificates of authorities in PEM, each once.
func validateAnchors(p *field.Path, bundle string) field.ErrorList {
	if len(bundle) > maxTrustBundle {
		return field.ErrorList{field.TooLong(p, "", maxTrustBundle)}
	}
	const shown = "<value omitted>"
	var errs field.ErrorList
	var order []string
	places := map[string][]int{}
	block, rest := pem.Decode([]byte(bundle))
	for i := 0; block != nil; i++ {
		if problem := anchorProblem(block); problem != "" {
			errs = append(errs, field.Invalid(p, shown, fmt.Sprintf("entry %d %s", i, problem)))
		} else {
			anchor := string(block.Bytes)
			if places[anchor] == nil {
				order = append(order, anchor)
			}
			places[anchor] = append(places[anchor], i)
		}
		block, rest = pem.Decode(rest)
	}
	if len(errs) > 0 {
		return errs
	}
	if len(order) == 0 {
		return field.ErrorList{field.Invalid(p, shown, "at least one trust anchor must be provided")}
	}
	for _, anchor := range order {
		if len(places[anchor]) > 1 {
			errs = append(errs, field.Invalid(p, shown, fmt.Sprintf("duplicate trust anchor (indices %v)", places[anchor])))
		}
	}
	return errs
}

// anchorProblem says why a block is not the certificate of an authority.
func anchorProblem(block *pem.Block) string {
	if block.Type != "CERTIFICATE" {
		return "has bad block type: " + block.Type
	}
	if len(block.Headers) > 0 {
		return "has PEM block headers"
	}
	switch certificate, err := x509.ParseCertificate(block.Bytes); {
	case err != nil:
		return "does not parse as X.509"
	case !certificate.IsCA:
		return "does not have the CA bit set"
	case !certificate.BasicConstraintsValid:
		return "has invalid basic constraints"
	default:
		return ""
	}
}
