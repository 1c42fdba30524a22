package certificates

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"time"

	"github.com/spf13/pflag"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/flagvalue"
	definition "github.com/coracle-io/coracle/internal/resource/certificates"
)

// Signing describes the controller that implements the built-in signers.
func Signing(o *SigningOptions) controller.Descriptor {
	return controller.Descriptor{
		Name:           "certificatesigningrequest-signing-controller",
		Aliases:        []string{"csrsigning"},
		ServiceAccount: "certificate-controller",
		EventSource:    "certificate-controller",
		AddFlags:       o.addFlags,
		Validate:       o.validate,
		New:            func(env *controller.Env) (controller.Controller, error) { return newSigning(env, o) },
	}
}

// SigningOptions are the options of the signing controller.
type SigningOptions struct {
	// Authority signs for all signers. If it is given, the others must not be.
	Authority Authority
	// The authorities of single signers. A signer without one signs nothing.
	KubeletServing, KubeletClient, KubeAPIServerClient, LegacyUnknown Authority
	// Duration is the maximum lifetime of certificates.
	Duration time.Duration
}

// Authority is the PEM files of a certificate authority. The zero value is none.
type Authority struct{ CertFile, KeyFile string }

// DefaultSigningOptions returns upstream's defaults.
func DefaultSigningOptions() SigningOptions { return SigningOptions{Duration: 365 * 24 * time.Hour} }

// HasAuthority reports whether there is one for any signer.
func (o *SigningOptions) HasAuthority() bool {
	return slices.ContainsFunc(o.authorities(), func(a namedAuthority) bool { return *a.Authority != Authority{} })
}

// namedAuthority is an authority with the beginning of its flags' names.
type namedAuthority struct {
	*Authority
	prefix string
	signer string // "" is all of them
}

func (a namedAuthority) certFlag() string { return a.prefix + "-cert-file" }
func (a namedAuthority) keyFlag() string  { return a.prefix + "-key-file" }

// authorities returns the authority of all signers, then the authorities of single
// signers.
func (o *SigningOptions) authorities() []namedAuthority {
	return []namedAuthority{
		{&o.Authority, "cluster-signing", ""},
		{&o.KubeletServing, "cluster-signing-kubelet-serving", certificatesv1.KubeletServingSignerName},
		{&o.KubeletClient, "cluster-signing-kubelet-client", certificatesv1.KubeAPIServerClientKubeletSignerName},
		{&o.KubeAPIServerClient, "cluster-signing-kube-apiserver-client", certificatesv1.KubeAPIServerClientSignerName},
		{&o.LegacyUnknown, "cluster-signing-legacy-unknown", legacyUnknown},
	}
}

// authorityOf returns the authority of a signer, or the zero value.
func (o *SigningOptions) authorityOf(signer string) Authority {
	for _, a := range o.authorities() {
		if a.signer == signer && *a.Authority != (Authority{}) {
			return *a.Authority
		}
	}
	if slices.Contains(signers(), signer) {
		return o.Authority
	}
	return Authority{}
}

func (o *SigningOptions) addFlags(fs *pflag.FlagSet) {
	for _, a := range o.authorities() {
		signer, only := "certificates of the cluster", ""
		if a.signer != "" {
			signer, only = "for "+a.signer, "; not together with --cluster-signing-cert-file"
		}
		fs.StringVar(&a.CertFile, a.certFlag(), a.CertFile, "file with the CA certificate that signs "+signer+", in PEM"+only)
		fs.StringVar(&a.KeyFile, a.keyFlag(), a.KeyFile, "file with the RSA or ECDSA key of --"+a.certFlag()+", in PEM")
		flagvalue.Is(fs, flagvalue.File, a.certFlag(), a.keyFlag())
	}
	fs.DurationVar(&o.Duration, "cluster-signing-duration", o.Duration, "longest validity of signed certificates")
}

func (o *SigningOptions) validate() error {
	var all []error
	for _, a := range o.authorities() {
		switch {
		case (a.CertFile == "") != (a.KeyFile == ""):
			all = append(all, fmt.Errorf("--%s and --%s must both be given, or neither", a.certFlag(), a.keyFlag()))
		case a.signer != "" && a.CertFile != "" && o.Authority != (Authority{}):
			all = append(all, fmt.Errorf("--%s and --cluster-signing-cert-file must not both be given: the latter signs for all", a.certFlag()))
		}
	}
	return errors.Join(all...)
}

const (
	// backdate is subtracted from the start of a certificate's validity, so that
	// machines with slow clocks accept it.
	backdate = 5 * time.Minute
	// short is the lifetime below which backdating does not make a certificate
	// expire earlier.
	short = 8 * time.Hour
	// minLifetime is the minimum lifetime of a certificate.
	minLifetime = 10 * time.Minute
)

const legacyUnknown = "kubernetes.io/legacy-unknown"

// signers returns the names of the built-in signers.
func signers() []string {
	return []string{
		certificatesv1.KubeAPIServerClientSignerName, certificatesv1.KubeAPIServerClientKubeletSignerName,
		certificatesv1.KubeletServingSignerName, legacyUnknown,
	}
}

// newSigning builds the signing controller. It reads the authority's files for
// each request, so that a renewed authority is used at once.
func newSigning(env *controller.Env, o *SigningOptions) (controller.Controller, error) {
	if !o.HasAuthority() {
		return controller.Func(func(ctx context.Context) error {
			klog.FromContext(ctx).Info("Signing of certificates is disabled; set --cluster-signing-cert-file and --cluster-signing-key-file")
			<-ctx.Done()
			return nil
		}), nil
	}
	return newRequestController(env, "certificate_signing", func(ctx context.Context, csr *certificatesv1.CertificateSigningRequest) error {
		authority := o.authorityOf(csr.Spec.SignerName)
		if authority == (Authority{}) || !awaitsSignature(csr) {
			return nil
		}
		next := csr.DeepCopy()
		r, err := definition.ParseRequest(csr.Spec.Request)
		if err != nil {
			return fmt.Errorf("unable to parse csr %q: %w", csr.Name, err)
		}
		if reason := validateForSigner(csr.Spec.SignerName, r, csr.Spec.Usages); reason != nil {
			next.Status.Conditions = append(next.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
				Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue,
				Reason: "SignerValidationFailure", Message: reason.Error(), LastUpdateTime: metav1.Now(),
			})
		} else {
			pair, err := tls.LoadX509KeyPair(authority.CertFile, authority.KeyFile)
			if err != nil {
				return fmt.Errorf("loading the signing authority: %w", err)
			}
			if next.Status.Certificate, err = sign(pair, r, &csr.Spec, o.Duration, time.Now()); err != nil {
				return fmt.Errorf("error auto signing csr %s: %w", csr.Name, err)
			}
		}
		if _, err := env.Client.Kubernetes.CertificatesV1().CertificateSigningRequests().UpdateStatus(ctx, next, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("error updating status of csr %s: %w", csr.Name, err)
		}
		return nil
	}), nil
}

// awaitsSignature reports whether a request is approved but not signed yet.
func awaitsSignature(csr *certificatesv1.CertificateSigningRequest) bool {
	return len(csr.Status.Certificate) == 0 &&
		has(csr, certificatesv1.CertificateApproved) && !has(csr, certificatesv1.CertificateDenied) && !has(csr, certificatesv1.CertificateFailed)
}

// sign returns the PEM-encoded certificate for a request. Its lifetime is the
// requested one, limited to minLifetime and maxLifetime. It does not outlive the
// authority.
func sign(authority tls.Certificate, r *x509.CertificateRequest, spec *certificatesv1.CertificateSigningRequestSpec, maxLifetime time.Duration, now time.Time) ([]byte, error) {
	if err := r.CheckSignature(); err != nil {
		return nil, fmt.Errorf("unable to verify certificate request signature: %w", err)
	}
	ca, err := x509.ParseCertificate(authority.Certificate[0])
	if err != nil {
		return nil, err
	}
	if !ca.NotAfter.After(now) {
		return nil, errors.New("refusing to sign a certificate that expired in the past: the authority has expired")
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 128))
	if err != nil {
		return nil, err
	}
	lifetime := maxLifetime
	if spec.ExpirationSeconds != nil {
		lifetime = min(max(time.Duration(*spec.ExpirationSeconds)*time.Second, minLifetime), maxLifetime)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: r.Subject,
		DNSNames: r.DNSNames, IPAddresses: r.IPAddresses, EmailAddresses: r.EmailAddresses, URIs: r.URIs,
		NotBefore: now.Add(-backdate), NotAfter: now.Add(lifetime),
		BasicConstraintsValid: true,
	}
	if lifetime >= short {
		template.NotAfter = template.NotBefore.Add(lifetime)
	}
	if template.NotAfter.After(ca.NotAfter) {
		template.NotAfter = ca.NotAfter
	}
	if template.KeyUsage, template.ExtKeyUsage, err = usagesOf(spec.Usages); err != nil {
		return nil, err
	}
	key, ok := authority.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, errors.New("the authority's key cannot sign")
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca, r.PublicKey, key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// usagesOf converts usages of the API to usages of X.509.
func usagesOf(usages []certificatesv1.KeyUsage) (x509.KeyUsage, []x509.ExtKeyUsage, error) {
	plain := map[certificatesv1.KeyUsage]x509.KeyUsage{
		certificatesv1.UsageSigning:           x509.KeyUsageDigitalSignature,
		certificatesv1.UsageDigitalSignature:  x509.KeyUsageDigitalSignature,
		certificatesv1.UsageContentCommitment: x509.KeyUsageContentCommitment,
		certificatesv1.UsageKeyEncipherment:   x509.KeyUsageKeyEncipherment,
		certificatesv1.UsageKeyAgreement:      x509.KeyUsageKeyAgreement,
		certificatesv1.UsageDataEncipherment:  x509.KeyUsageDataEncipherment,
		certificatesv1.UsageCertSign:          x509.KeyUsageCertSign,
		certificatesv1.UsageCRLSign:           x509.KeyUsageCRLSign,
		certificatesv1.UsageEncipherOnly:      x509.KeyUsageEncipherOnly,
		certificatesv1.UsageDecipherOnly:      x509.KeyUsageDecipherOnly,
	}
	extended := map[certificatesv1.KeyUsage]x509.ExtKeyUsage{
		certificatesv1.UsageAny:             x509.ExtKeyUsageAny,
		certificatesv1.UsageServerAuth:      x509.ExtKeyUsageServerAuth,
		certificatesv1.UsageClientAuth:      x509.ExtKeyUsageClientAuth,
		certificatesv1.UsageCodeSigning:     x509.ExtKeyUsageCodeSigning,
		certificatesv1.UsageEmailProtection: x509.ExtKeyUsageEmailProtection,
		certificatesv1.UsageSMIME:           x509.ExtKeyUsageEmailProtection,
		certificatesv1.UsageIPsecEndSystem:  x509.ExtKeyUsageIPSECEndSystem,
		certificatesv1.UsageIPsecTunnel:     x509.ExtKeyUsageIPSECTunnel,
		certificatesv1.UsageIPsecUser:       x509.ExtKeyUsageIPSECUser,
		certificatesv1.UsageTimestamping:    x509.ExtKeyUsageTimeStamping,
		certificatesv1.UsageOCSPSigning:     x509.ExtKeyUsageOCSPSigning,
		certificatesv1.UsageMicrosoftSGC:    x509.ExtKeyUsageMicrosoftServerGatedCrypto,
		certificatesv1.UsageNetscapeSGC:     x509.ExtKeyUsageNetscapeServerGatedCrypto,
	}
	var key x509.KeyUsage
	var ext []x509.ExtKeyUsage
	for _, u := range usages {
		if bit, ok := plain[u]; ok {
			key |= bit
		} else if e, ok := extended[u]; ok {
			if !slices.Contains(ext, e) {
				ext = append(ext, e)
			}
		} else {
			return 0, nil, fmt.Errorf("unrecognized usage %q", u)
		}
	}
	slices.Sort(ext)
	return key, ext, nil
}
