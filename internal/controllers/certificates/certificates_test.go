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
	"time"

	"go.uber.org/goleak"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
	client        = certificatesv1.UsageClientAuth
	server        = certificatesv1.UsageServerAuth
)

func TestFits(t *testing.T) {
	names := []string{"n1"}
	for name, test := range map[string]struct {
		signer   string
		template x509.CertificateRequest
		usages   []certificatesv1.KeyUsage
		want     string
	}{
		"kubelet":                 {kubeletSigner, x509.CertificateRequest{Subject: node}, []certificatesv1.KeyUsage{signature, client}, ""},
		"kubelet with a name":     {kubeletSigner, x509.CertificateRequest{Subject: node, DNSNames: names}, []certificatesv1.KeyUsage{signature, client}, "DNS subjectAltNames are not allowed"},
		"not a node":              {kubeletSigner, x509.CertificateRequest{Subject: pkix.Name{CommonName: "me", Organization: node.Organization}}, []certificatesv1.KeyUsage{signature, client}, "subject common name does not begin with system:node:"},
		"not among the nodes":     {kubeletSigner, x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:n1"}}, []certificatesv1.KeyUsage{signature, client}, "subject organization is not system:nodes"},
		"serving":                 {certificatesv1.KubeletServingSignerName, x509.CertificateRequest{Subject: node, DNSNames: names}, []certificatesv1.KeyUsage{signature, server}, ""},
		"serving nothing":         {certificatesv1.KubeletServingSignerName, x509.CertificateRequest{Subject: node}, []certificatesv1.KeyUsage{signature, server}, "DNS or IP subjectAltName is required"},
		"serving without purpose": {certificatesv1.KubeletServingSignerName, x509.CertificateRequest{Subject: node, DNSNames: names}, []certificatesv1.KeyUsage{signature}, `usages did not include "server auth"`},
		"any client":              {certificatesv1.KubeAPIServerClientSignerName, x509.CertificateRequest{Subject: pkix.Name{CommonName: "me"}}, []certificatesv1.KeyUsage{client}, ""},
		"a server as client": {certificatesv1.KubeAPIServerClientSignerName, x509.CertificateRequest{Subject: pkix.Name{CommonName: "me"}}, []certificatesv1.KeyUsage{client, server},
			`usage "server auth" is not allowed; allowed are ["digital signature" "key encipherment" "client auth"]`},
		"anything": {"kubernetes.io/legacy-unknown", x509.CertificateRequest{}, []certificatesv1.KeyUsage{server, client}, ""},
	} {
		csr := request(t, test.signer, "", test.template, test.usages...)
		r, err := parse(csr.Spec.Request)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := fits(test.signer, r, test.usages); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestOutdated(t *testing.T) {
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }
	for name, test := range map[string]struct {
		condition certificatesv1.RequestConditionType
		since     time.Duration
		signed    bool
		want      string
	}{
		"new":                    {"", time.Hour, false, ""},
		"undecided":              {"", 25 * time.Hour, false, "nobody approved or denied it"},
		"just signed":            {"Approved", time.Minute, true, ""},
		"signed":                 {"Approved", 2 * time.Hour, true, "it was signed"},
		"approved, yet unsigned": {"Approved", 48 * time.Hour, false, ""},
		"denied":                 {"Denied", 2 * time.Hour, false, "it was denied"},
		"failed":                 {"Failed", 2 * time.Hour, false, "it failed"},
	} {
		csr := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: ago(test.since)}}
		if test.condition != "" {
			csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: test.condition, LastUpdateTime: ago(test.since)}}
		}
		if test.signed {
			csr.Status.Certificate = []byte("-")
		}
		if got := outdated(csr, now); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// authority writes an authority's files.
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

// A kubelet's request is approved and signed without anybody's doing.
func TestKubeletGetsItsCertificate(t *testing.T) {
	csr := request(t, kubeletSigner, "system:node:n1", x509.CertificateRequest{Subject: node}, signature, client)
	csr.Spec.ExpirationSeconds = new(int32(3600))
	c := controllertest.New(t, csr)
	c.Fake.PrependReactor("create", "subjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		review := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview)
		review.Status.Allowed = review.Spec.User == "system:node:n1" && review.Spec.ResourceAttributes.Subresource == "selfnodeclient"
		return true, review, nil
	})
	// the fake API server takes approvals for plain updates
	c.Fake.PrependReactor("update", "certificatesigningrequests", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.GetSubresource() != "approval" {
			return false, nil, nil
		}
		next := a.(clienttesting.UpdateAction).GetObject()
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
}

func TestRequestsThatDoNotFitFail(t *testing.T) {
	csr := request(t, certificatesv1.KubeletServingSignerName, "me", x509.CertificateRequest{}, server)
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
}
