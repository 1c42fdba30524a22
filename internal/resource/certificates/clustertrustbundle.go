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
		Cluster:      true,
		ValidateName: func(string, bool) []string { return nil },
		Validate:     validateTrustBundle,
		ValidateUpdate: func(_ *resource.Request, b, old *certificatesv1.ClusterTrustBundle) field.ErrorList {
			return rule.Immutable(field.NewPath("spec", "signerName"), b.Spec.SignerName, old.Spec.SignerName)
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

func validateTrustBundle(_ *resource.Request, b *certificatesv1.ClusterTrustBundle) field.ErrorList {
	errs := validateBundleName(b.Name, b.Spec.SignerName)
	if b.Spec.SignerName != "" {
		errs = append(errs, rule.SignerName(field.NewPath("spec", "signerName"), b.Spec.SignerName)...)
	}
	return append(errs, validateAnchors(field.NewPath("spec", "trustBundle"), b.Spec.TrustBundle)...)
}

// validateBundleName requires a signer's bundle to carry the signer's name,
// with ":" for "/", before its own.
func validateBundleName(name, signer string) field.ErrorList {
	p := field.NewPath("metadata", "name")
	if signer == "" {
		if strings.Contains(name, ":") {
			return field.ErrorList{field.Invalid(p, name, "ClusterTrustBundle without signer name must not have \":\" in its name")}
		}
		return rule.Subdomain(p, name)
	}
	prefix := strings.ReplaceAll(signer, "/", ":") + ":"
	own, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return field.ErrorList{field.Invalid(p, name, fmt.Sprintf("ClusterTrustBundle for signerName %s must be named with prefix %s", signer, prefix))}
	}
	return rule.Subdomain(p, own)
}

// validateAnchors requires certificates in PEM, each once.
func validateAnchors(p *field.Path, bundle string) field.ErrorList {
	const shown = "<value omitted>"
	if len(bundle) > maxTrustBundle {
		return field.ErrorList{field.TooLong(p, "", maxTrustBundle)}
	}
	seen := map[string]int{}
	for i, rest := 0, []byte(bundle); ; i++ {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		switch {
		case block == nil && len(seen) == 0:
			return field.ErrorList{field.Invalid(p, shown, "at least one trust anchor must be provided")}
		case block == nil:
			return nil
		case block.Type != "CERTIFICATE":
			return field.ErrorList{field.Invalid(p, shown, fmt.Sprintf("entry %d has bad block type: %v", i, block.Type))}
		case len(block.Headers) > 0:
			return field.ErrorList{field.Invalid(p, shown, fmt.Sprintf("entry %d has PEM block headers", i))}
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return field.ErrorList{field.Invalid(p, shown, fmt.Sprintf("entry %d does not parse as X.509: %v", i, err))}
		}
		if first, twice := seen[string(block.Bytes)]; twice {
			return field.ErrorList{field.Invalid(p, shown, fmt.Sprintf("duplicate trust anchor (indices [%d %d])", first, i))}
		}
		seen[string(block.Bytes)] = i
	}
}
