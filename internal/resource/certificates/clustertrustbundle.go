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

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/printers"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// maxTrustBundle is the maximum size of a bundle in bytes.
const maxTrustBundle = 1 << 20

// ClusterTrustBundles is the resource clustertrustbundles (KEP-3257).
func ClusterTrustBundles() *resource.Resource {
	return resource.Define(resource.Definition[certificatesv1.ClusterTrustBundle, *certificatesv1.ClusterTrustBundle]{
		GroupVersion:         certificatesv1.SchemeGroupVersion,
		Names:                resource.Names{Kind: "ClusterTrustBundle", Plural: "clustertrustbundles"},
		Cluster:              true,
		Gate:                 feature.ClusterTrustBundle,
		UpdateValidatesAlone: true,
		Strategy: resource.Strategy[*certificatesv1.ClusterTrustBundle]{
			ForbidUnconditionalUpdate: true,
			ValidateName:              acceptAnyName,
			Validate: func(_ *resource.RequestContext, b *certificatesv1.ClusterTrustBundle) field.ErrorList {
				return validateTrustBundle(b, nil)
			},
			ValidateUpdate: func(_ *resource.RequestContext, b, old *certificatesv1.ClusterTrustBundle) field.ErrorList {
				errs := resource.ValidateNamedMetadata(b, false, acceptAnyName)
				errs = append(errs, validateTrustBundle(b, old)...)
				return append(errs, validators.Immutable(field.NewPath("spec", "signerName"), b.Spec.SignerName, old.Spec.SignerName)...)
			},
		},
		Table: resource.Table[*certificatesv1.ClusterTrustBundle]{
			Columns: []metav1.TableColumnDefinition{
				resource.NameColumn(),
				resource.Column("SignerName", "string", certificatesv1.ClusterTrustBundleSpec{}.SwaggerDoc()["signerName"]),
			},
			Row: func(b *certificatesv1.ClusterTrustBundle, _ time.Time) []any {
				signer := printers.None
				if b.Spec.SignerName != "" {
					signer = b.Spec.SignerName
				}
				return []any{b.Name, signer}
			},
		},
		FieldSelectors: resource.FieldSelectors[*certificatesv1.ClusterTrustBundle]{
			SelectableFields: func(b *certificatesv1.ClusterTrustBundle) fields.Set {
				return fields.Set{"spec.signerName": b.Spec.SignerName}
			},
			Fields: []string{"spec.signerName"},
		},
	})
}

// acceptAnyName accepts every name. validateBundleName checks it, which needs
// the signer.
func acceptAnyName(string, bool) []string { return nil }

// validateTrustBundle checks a bundle, except for unchanged certificates: what
// parsers accept changes over time.
func validateTrustBundle(b, old *certificatesv1.ClusterTrustBundle) field.ErrorList {
	errs := validateBundleName(b.Name, b.Spec.SignerName)
	if b.Spec.SignerName != "" {
		errs = append(errs, validators.SignerName(field.NewPath("spec", "signerName"), b.Spec.SignerName)...)
	}
	if old != nil && b.Spec.TrustBundle == old.Spec.TrustBundle {
		return errs
	}
	return append(errs, validateAnchors(field.NewPath("spec", "trustBundle"), b.Spec.TrustBundle)...)
}

// validateBundleName requires the name of a signer's bundle to begin with the
// signer's name, with ":" in place of "/".
func validateBundleName(name, signer string) field.ErrorList {
	p, own := field.NewPath("metadata", "name"), name
	prefix := strings.ReplaceAll(signer, "/", ":") + ":"
	switch {
	case name == "":
		return nil // reported for all kinds
	case signer == "" && strings.Contains(name, ":"):
		return field.ErrorList{field.Invalid(p, name, "ClusterTrustBundle without signer name must not have \":\" in its name")}
	case signer != "" && !strings.HasPrefix(name, prefix):
		return field.ErrorList{field.Invalid(p, name, fmt.Sprintf("ClusterTrustBundle for signerName %s must be named with prefix %s", signer, prefix))}
	case signer != "":
		own = strings.TrimPrefix(name, prefix)
	}
	return validators.Problems(p, name, utilvalidation.IsDNS1123Subdomain(own))
}

// validateAnchors requires distinct CA certificates in PEM.
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

// anchorProblem returns why a block is not a CA certificate, or "".
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
