package pod

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource/core/volume"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// Limits of the lifetime of a projected token, in seconds.
const (
	minTokenSeconds = 10 * 60
	maxTokenSeconds = 1 << 32
)

func (r *volumeRules) validateProjected(p *corev1.ProjectedVolumeSource, at *field.Path) field.ErrorList {
	errs := validateMode(p.DefaultMode, at.Child("defaultMode"))
	written := map[string]bool{}
	// source is the name in the error: the name of the object, or the path if
	// there is no object.
	write := func(path, source string) {
		if path == "" {
			return
		}
		if written[path] {
			errs = append(errs, field.Invalid(at, source, "conflicting duplicate paths"))
		}
		written[path] = true
	}
	for i := range p.Sources {
		errs = append(errs, r.validateProjection(&p.Sources[i], at, at.Child("sources").Index(i), write)...)
	}
	return errs
}

func (r *volumeRules) validateProjection(s *corev1.VolumeProjection, at, source *field.Path, write func(path, source string)) field.ErrorList {
	var errs field.ErrorList
	found := 0
	one := func(set bool, name string, check func(at *field.Path)) {
		if set {
			found++
			check(source.Child(name))
		}
	}
	files := func(at *field.Path, name string, items []corev1.KeyToPath) {
		if name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
		}
		for i := range items {
			errs = append(errs, validateKeyToPath(&items[i], at.Child("items").Index(i))...)
			write(items[i].Path, name)
		}
	}
	one(s.Secret != nil, "secret", func(at *field.Path) { files(at, s.Secret.Name, s.Secret.Items) })
	one(s.ConfigMap != nil, "configMap", func(at *field.Path) { files(at, s.ConfigMap.Name, s.ConfigMap.Items) })
	one(s.DownwardAPI != nil, "downwardAPI", func(at *field.Path) {
		for i := range s.DownwardAPI.Items {
			errs = append(errs, validateDownwardFile(&s.DownwardAPI.Items[i], at)...)
			write(s.DownwardAPI.Items[i].Path, s.DownwardAPI.Items[i].Path)
		}
	})
	one(s.ServiceAccountToken != nil, "serviceAccountToken", func(path *field.Path) {
		errs = append(errs, validateTokenProjection(s.ServiceAccountToken, at, path)...)
	})
	one(s.ClusterTrustBundle != nil, "clusterTrustBundlePEM", func(at *field.Path) {
		errs = append(errs, validateTrustBundle(s.ClusterTrustBundle, at)...)
		write(s.ClusterTrustBundle.Path, s.ClusterTrustBundle.Path)
	})
	one(s.PodCertificate != nil, "podCertificate", func(at *field.Path) {
		errs = append(errs, validateCertificateProjection(s.PodCertificate, at)...)
		for _, name := range []string{s.PodCertificate.CredentialBundlePath, s.PodCertificate.KeyPath, s.PodCertificate.CertificateChainPath} {
			write(name, name)
		}
	})
	if found > 1 {
		errs = append(errs, field.Forbidden(source, "may not specify more than 1 volume type per source"))
	}
	return errs
}

func validateTokenProjection(t *corev1.ServiceAccountTokenProjection, source, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if t.ExpirationSeconds != nil {
		seconds := *t.ExpirationSeconds
		if seconds < minTokenSeconds {
			errs = append(errs, field.Invalid(at.Child("expirationSeconds"), seconds, "may not specify a duration less than 10 minutes"))
		}
		if seconds > maxTokenSeconds {
			errs = append(errs, field.Invalid(at.Child("expirationSeconds"), seconds, "may not specify a duration larger than 2^32 seconds"))
		}
	}
	if t.Path == "" {
		return append(errs, field.Required(source.Child("path"), ""))
	}
	return append(errs, validateFileName(t.Path, source.Child("path"))...)
}

func validateTrustBundle(b *corev1.ClusterTrustBundleProjection, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	byName, bySigner := b.Name != nil, b.SignerName != nil
	switch {
	case byName && bySigner:
		errs = append(errs, field.Invalid(at, validators.BadValue(b), "only one of name and signerName may be used"))
	case byName:
		if *b.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), "must be a valid object name"))
		}
		_, suffix := splitBundleName(*b.Name)
		for _, problem := range utilvalidation.IsDNS1123Subdomain(suffix) {
			errs = append(errs, field.Invalid(at.Child("name"), *b.Name, "not a valid clustertrustbundlename: "+problem))
		}
		if b.LabelSelector != nil {
			errs = append(errs, field.Invalid(at.Child("labelSelector"), b.LabelSelector, "labelSelector must be unset if name is specified"))
		}
	case bySigner:
		if *b.SignerName == "" {
			errs = append(errs, field.Required(at.Child("signerName"), "must be a valid signer name"))
		}
		errs = append(errs, validators.SignerName(at.Child("signerName"), *b.SignerName)...)
		errs = append(errs, metav1validation.ValidateLabelSelector(b.LabelSelector,
			metav1validation.LabelSelectorValidationOptions{}, at.Child("labelSelector"))...)
	default:
		errs = append(errs, field.Required(at, "either name or signerName must be specified"))
	}
	if b.Path == "" {
		return append(errs, field.Required(at.Child("path"), ""))
	}
	return append(errs, validateFileName(b.Path, at.Child("path"))...)
}

// splitBundleName splits the name of a ClusterTrustBundle into the signer, if
// any, and the rest.
func splitBundleName(name string) (signer, rest string) {
	i := strings.LastIndex(name, ":")
	if i < 0 {
		return "", name
	}
	return strings.ReplaceAll(name[:i], ":", "/"), name[i+1:]
}

func keyTypes() []string {
	return []string{"ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519", "RSA3072", "RSA4096"}
}

func validateCertificateProjection(c *corev1.PodCertificateProjection, at *field.Path) field.ErrorList {
	errs := validators.SignerName(at.Child("signerName"), c.SignerName)
	errs = append(errs, validators.Enum(at.Child("keyType"), c.KeyType, keyTypes()...)...)
	if seconds := c.MaxExpirationSeconds; seconds != nil {
		if *seconds < validators.MinCertificateSeconds {
			errs = append(errs, field.Invalid(at.Child("maxExpirationSeconds"), *seconds, fmt.Sprintf("if provided, maxExpirationSeconds must be >= %d", validators.MinCertificateSeconds)))
		}
		if longest := validators.MaxCertificateSeconds(c.SignerName); *seconds > longest {
			errs = append(errs, field.Invalid(at.Child("maxExpirationSeconds"), *seconds, fmt.Sprintf("if provided, maxExpirationSeconds must be <= %d", longest)))
		}
	}
	paths := 0
	for _, file := range []struct{ name, path string }{
		{"credentialBundlePath", c.CredentialBundlePath}, {"keyPath", c.KeyPath}, {"certificateChainPath", c.CertificateChainPath},
	} {
		if file.path != "" {
			paths++
			errs = append(errs, validateFileName(file.path, at.Child(file.name))...)
		}
	}
	if paths == 0 {
		errs = append(errs, field.Required(at, "specify at least one of credentialBundlePath, keyPath, and certificateChainPath"))
	}
	return append(errs, validators.UserAnnotations(at.Child("userAnnotations"), c.UserAnnotations)...)
}

func validateEphemeralClaim(e *corev1.EphemeralVolumeSource, at *field.Path) field.ErrorList {
	at = at.Child("volumeClaimTemplate")
	if e.VolumeClaimTemplate == nil {
		return field.ErrorList{field.Required(at, "")}
	}
	errs := validators.TemplateMetadata(at.Child("metadata"), &e.VolumeClaimTemplate.ObjectMeta)
	return append(errs, volume.ValidateClaimSpec(&e.VolumeClaimTemplate.Spec, at.Child("spec"))...)
}
