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
)

// Signing describes the controller that signs for the built-in signers.
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

// SigningOptions are the options of the controller that signs.
type SigningOptions struct {
	// CertFile and KeyFile are the authority, PEM. Without them nothing is
	// signed.
	CertFile, KeyFile string
	// Duration is how long certificates live at most.
	Duration time.Duration
}

// DefaultSigningOptions returns upstream's defaults.
func DefaultSigningOptions() SigningOptions { return SigningOptions{Duration: 365 * 24 * time.Hour} }

func (o *SigningOptions) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.CertFile, "cluster-signing-cert-file", o.CertFile, "Filename containing a PEM-encoded X509 CA certificate used to issue cluster-scoped certificates.")
	fs.StringVar(&o.KeyFile, "cluster-signing-key-file", o.KeyFile, "Filename containing a PEM-encoded RSA or ECDSA private key used to sign cluster-scoped certificates.")
	fs.DurationVar(&o.Duration, "cluster-signing-duration", o.Duration, "The max length of duration signed certificates will be given.")
}

func (o *SigningOptions) validate() error {
	if (o.CertFile == "") != (o.KeyFile == "") {
		return errors.New("--cluster-signing-cert-file and --cluster-signing-key-file must both be given, or neither")
	}
	return nil
}

const (
	// backdate lets machines whose clocks are a little behind accept a new
	// certificate.
	backdate = 5 * time.Minute
	// shortLived certificates are not shortened by the backdating.
	shortLived = 8 * time.Hour
	// shortest is the least life that a certificate gets.
	shortest = 10 * time.Minute
)

// signers are whom this controller signs for.
func signers() []string {
	return []string{
		certificatesv1.KubeAPIServerClientSignerName, certificatesv1.KubeAPIServerClientKubeletSignerName,
		certificatesv1.KubeletServingSignerName, "kubernetes.io/legacy-unknown",
	}
}

// newSigning builds the controller that signs. It reads the authority's files
// each time, so that a renewed authority is used at once.
func newSigning(env *controller.Env, o *SigningOptions) (controller.Controller, error) {
	if o.CertFile == "" || o.KeyFile == "" {
		return controller.Func(func(ctx context.Context) error {
			klog.FromContext(ctx).Info("No authority to sign certificates with; set --cluster-signing-cert-file and --cluster-signing-key-file")
			<-ctx.Done()
			return nil
		}), nil
	}
	return onRequests(env, "certificate_signing", func(ctx context.Context, csr *certificatesv1.CertificateSigningRequest) error {
		if !due(csr) {
			return nil
		}
		next := csr.DeepCopy()
		r, err := parse(csr.Spec.Request)
		if err != nil {
			return fmt.Errorf("unable to parse csr %q: %w", csr.Name, err)
		}
		if reason := fits(csr.Spec.SignerName, r, csr.Spec.Usages); reason != nil {
			next.Status.Conditions = append(next.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
				Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue,
				Reason: "SignerValidationFailure", Message: reason.Error(), LastUpdateTime: metav1.Now(),
			})
		} else {
			pair, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
			if err != nil {
				return fmt.Errorf("the authority that signs: %w", err)
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

// due says whether a request waits for its signature.
func due(csr *certificatesv1.CertificateSigningRequest) bool {
	return slices.Contains(signers(), csr.Spec.SignerName) && len(csr.Status.Certificate) == 0 &&
		has(csr, certificatesv1.CertificateApproved) && !has(csr, certificatesv1.CertificateDenied) && !has(csr, certificatesv1.CertificateFailed)
}

// sign makes the certificate, PEM, that a request asks for. It lives as long
// as asked, at least ten minutes and at most longest, and never longer than
// the authority.
func sign(authority tls.Certificate, r *x509.CertificateRequest, spec *certificatesv1.CertificateSigningRequestSpec, longest time.Duration, now time.Time) ([]byte, error) {
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
	life := longest
	if spec.ExpirationSeconds != nil {
		life = min(max(time.Duration(*spec.ExpirationSeconds)*time.Second, shortest), longest)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: r.Subject,
		DNSNames: r.DNSNames, IPAddresses: r.IPAddresses, EmailAddresses: r.EmailAddresses, URIs: r.URIs,
		NotBefore: now.Add(-backdate), NotAfter: now.Add(life),
		BasicConstraintsValid: true,
	}
	if life >= shortLived {
		template.NotAfter = template.NotBefore.Add(life)
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

// usagesOf translates the API's usages into those of X.509.
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
