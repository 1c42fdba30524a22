package certificates

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
	"github.com/coracle-io/coracle/internal/leaktest"
	definition "github.com/coracle-io/coracle/internal/resource/certificates"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Run(m)) }

func key(t *testing.T) crypto.Signer {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func request(t *testing.T, signer, user string, template x509.CertificateRequest, usages ...certificatesv1.KeyUsage) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &template, key(t))
	if err != nil {
		t.Fatal(err)
	}
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "r", CreationTimestamp: metav1.Now()},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), SignerName: signer, Usages: usages, Username: user,
		},
	}
}

var node = pkix.Name{CommonName: "system:node:n1", Organization: []string{"system:nodes"}}

const (
	kubeletSigner = certificatesv1.KubeAPIServerClientKubeletSignerName
	signature     = certificatesv1.UsageDigitalSignature
	clientAuth    = certificatesv1.UsageClientAuth
	serverAuth    = certificatesv1.UsageServerAuth
)

func TestValidateForSigner(t *testing.T) {
	names := []string{"n1"}
	for name, test := range map[string]struct {
		signer   string
		template x509.CertificateRequest
		usages   []certificatesv1.KeyUsage
		want     string
	}{
		"kubelet":                   {kubeletSigner, x509.CertificateRequest{Subject: node}, []certificatesv1.KeyUsage{signature, clientAuth}, ""},
		"kubelet with a DNS name":   {kubeletSigner, x509.CertificateRequest{Subject: node, DNSNames: names}, []certificatesv1.KeyUsage{signature, clientAuth}, "DNS subjectAltNames are not allowed"},
		"common name of no node":    {kubeletSigner, x509.CertificateRequest{Subject: pkix.Name{CommonName: "me", Organization: node.Organization}}, []certificatesv1.KeyUsage{signature, clientAuth}, "subject common name does not begin with system:node:"},
		"not in system:nodes":       {kubeletSigner, x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:n1"}}, []certificatesv1.KeyUsage{signature, clientAuth}, "subject organization is not system:nodes"},
		"serving":                   {certificatesv1.KubeletServingSignerName, x509.CertificateRequest{Subject: node, DNSNames: names}, []certificatesv1.KeyUsage{signature, serverAuth}, ""},
		"serving without SANs":      {certificatesv1.KubeletServingSignerName, x509.CertificateRequest{Subject: node}, []certificatesv1.KeyUsage{signature, serverAuth}, "DNS or IP subjectAltName is required"},
		"serving without the usage": {certificatesv1.KubeletServingSignerName, x509.CertificateRequest{Subject: node, DNSNames: names}, []certificatesv1.KeyUsage{signature}, `usages did not include "server auth"`},
		"any client":                {certificatesv1.KubeAPIServerClientSignerName, x509.CertificateRequest{Subject: pkix.Name{CommonName: "me"}}, []certificatesv1.KeyUsage{clientAuth}, ""},
		"a server as client": {certificatesv1.KubeAPIServerClientSignerName, x509.CertificateRequest{Subject: pkix.Name{CommonName: "me"}}, []certificatesv1.KeyUsage{clientAuth, serverAuth},
			`usage "server auth" is not allowed; allowed are ["digital signature" "key encipherment" "client auth"]`},
		"anything": {"kubernetes.io/legacy-unknown", x509.CertificateRequest{}, []certificatesv1.KeyUsage{serverAuth, clientAuth}, ""},
	} {
		csr := request(t, test.signer, "", test.template, test.usages...)
		r, err := definition.ParseRequest(csr.Spec.Request)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := validateForSigner(test.signer, r, test.usages); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestDeletionReason(t *testing.T) {
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }
	for name, test := range map[string]struct {
		condition certificatesv1.RequestConditionType
		since     time.Duration
		signed    bool
		want      string
	}{
		"new":                  {"", time.Hour, false, ""},
		"pending":              {"", 25 * time.Hour, false, "it was neither approved nor denied"},
		"recently signed":      {"Approved", time.Minute, true, ""},
		"signed":               {"Approved", 2 * time.Hour, true, "it was signed"},
		"approved, not signed": {"Approved", 48 * time.Hour, false, ""},
		"denied":               {"Denied", 2 * time.Hour, false, "it was denied"},
		"failed":               {"Failed", 2 * time.Hour, false, "it failed"},
	} {
		csr := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: ago(test.since)}}
		if test.condition != "" {
			csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: test.condition, LastUpdateTime: ago(test.since)}}
		}
		if test.signed {
			csr.Status.Certificate = []byte("-")
		}
		if got := deletionReason(csr, now); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// authority writes the certificate and key files of a new authority.
func authority(t *testing.T) (cert, keyFile string, pool *x509.CertPool) {
	t.Helper()
	k := key(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(100 * 24 * time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	dir := t.TempDir()
	cert, keyFile = filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, keyFile, pool
}

// A kubelet's request is approved and signed automatically.
func TestKubeletGetsItsCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		csr := request(t, kubeletSigner, "system:node:n1", x509.CertificateRequest{Subject: node}, signature, clientAuth)
		csr.Spec.ExpirationSeconds = new(int32(3600))
		c := controllertest.New(t, csr)
		c.Fake.PrependReactor("create", "subjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
			review := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview)
			review.Status.Allowed = review.Spec.User == "system:node:n1" && review.Spec.ResourceAttributes.Subresource == "selfnodeclient"
			return true, review, nil
		})
		// The fake API server treats approvals as plain updates, and sets no time. Without
		// one, what is signed is old, and is cleaned.
		c.Fake.PrependReactor("update", "certificatesigningrequests", func(a clienttesting.Action) (bool, runtime.Object, error) {
			if a.GetSubresource() != "approval" {
				return false, nil, nil
			}
			next := a.(clienttesting.UpdateAction).GetObject().(*certificatesv1.CertificateSigningRequest)
			next.Status.Conditions[0].LastUpdateTime = metav1.Now()
			return true, next, c.Fake.Tracker().Update(a.GetResource(), next, "")
		})
		certFile, keyFile, pool := authority(t)
		c.Run(Approving())
		c.Run(Signing(new(DefaultSigningOptions())), "--cluster-signing-cert-file="+certFile, "--cluster-signing-key-file="+keyFile)
		c.Run(Cleaning())
		var got *certificatesv1.CertificateSigningRequest
		controllertest.Eventually(t, func() bool {
			var err error
			if got, err = c.Fake.CertificatesV1().CertificateSigningRequests().Get(context.Background(), "r", metav1.GetOptions{}); err != nil {
				t.Fatal(err)
			}
			return len(got.Status.Certificate) > 0
		}, true)
		if a := got.Status.Conditions[0]; a.Type != "Approved" || a.Reason != "AutoApproved" || a.Message != "Auto approving self kubelet client certificate after SubjectAccessReview." {
			t.Errorf("approval: %+v", a)
		}
		block, _ := pem.Decode(got.Status.Certificate)
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cert.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
			t.Error(err)
		}
		if life := time.Until(cert.NotAfter); cert.Subject.CommonName != "system:node:n1" || life > time.Hour || life < 55*time.Minute {
			t.Errorf("subject %s, valid for %v", cert.Subject, life)
		}
	})
}

// TestSignersHaveAuthorities checks that requests are signed with the authority
// of their signer, and not signed if their signer has none.
func TestSignersHaveAuthorities(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		approved := []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue}}
		client := request(t, kubeletSigner, "system:node:n1", x509.CertificateRequest{Subject: node}, signature, clientAuth)
		serving := request(t, certificatesv1.KubeletServingSignerName, "system:node:n1", x509.CertificateRequest{Subject: node, DNSNames: []string{"n1"}}, signature, serverAuth)
		client.Name, serving.Name = "client", "serving"
		client.Status.Conditions, serving.Status.Conditions = approved, approved
		c := controllertest.New(t, client, serving)
		certFile, keyFile, pool := authority(t)
		c.Run(Signing(new(DefaultSigningOptions())), "--cluster-signing-kubelet-serving-cert-file="+certFile, "--cluster-signing-kubelet-serving-key-file="+keyFile)
		certificate := func(name string) []byte {
			got, err := c.Fake.CertificatesV1().CertificateSigningRequests().Get(context.Background(), name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return got.Status.Certificate
		}
		controllertest.Eventually(t, func() bool { return len(certificate("serving")) > 0 }, true)
		block, _ := pem.Decode(certificate("serving"))
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cert.Verify(x509.VerifyOptions{Roots: pool, DNSName: "n1"}); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if len(certificate("client")) > 0 {
			t.Error("a signer without an authority signs")
		}
	})
}

func TestInvalidRequestFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		csr := request(t, certificatesv1.KubeletServingSignerName, "me", x509.CertificateRequest{}, serverAuth)
		csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue}}
		c := controllertest.New(t, csr)
		certFile, keyFile, _ := authority(t)
		c.Run(Signing(new(DefaultSigningOptions())), "--cluster-signing-cert-file="+certFile, "--cluster-signing-key-file="+keyFile)
		controllertest.Eventually(t, func() string {
			got, err := c.Fake.CertificatesV1().CertificateSigningRequests().Get(context.Background(), "r", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			last := got.Status.Conditions[len(got.Status.Conditions)-1]
			return string(last.Type) + " " + last.Reason + ": " + last.Message
		}, "Failed SignerValidationFailure: subject organization is not system:nodes")
	})
}
