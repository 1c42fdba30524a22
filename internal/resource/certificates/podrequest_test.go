package certificates

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/coracle-io/coracle/internal/resource"
)

// newRequest returns a certificate request for a new key.
func newRequest(t *testing.T) []byte {
	t.Helper()
	request, _ := newKeyRequest(t)
	return request
}

func newKeyRequest(t *testing.T) ([]byte, ed25519.PrivateKey) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	return request, key
}

// TestPodRequestOutcomes checks how a pod's certificate request can end.
func TestPodRequestOutcomes(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	request, key := newKeyRequest(t)
	chain := func(life time.Duration) string {
		template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now, NotAfter: now.Add(life)}
		der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	}
	at := func(d time.Duration) *metav1.Time { return &metav1.Time{Time: now.Add(d)} }
	outcome := func(types ...string) (conditions []metav1.Condition) {
		for _, t := range types {
			conditions = append(conditions, metav1.Condition{Type: t, Status: metav1.ConditionTrue, Reason: "R", LastTransitionTime: *at(0)})
		}
		return conditions
	}
	type status = certificatesv1.PodCertificateRequestStatus
	good := status{Conditions: outcome(issued), CertificateChain: chain(time.Hour), NotBefore: at(0), NotAfter: at(time.Hour), BeginRefreshAt: at(30 * time.Minute)}
	long, late := good, good
	long.CertificateChain, long.NotAfter = chain(48*time.Hour), at(48*time.Hour)
	late.BeginRefreshAt = at(55 * time.Minute)
	for _, test := range []struct {
		name   string
		want   string
		status status
		before status
	}{
		{name: "nothing yet"},
		{name: "issued", status: good},
		{name: "denied", status: status{Conditions: outcome(denied)}},
		{name: "denied with a certificate", status: status{Conditions: outcome(denied), CertificateChain: "x"},
			want: "status: Invalid value: non-condition status fields must be empty when denying"},
		{name: "both", status: status{Conditions: outcome(denied, failed)}, want: "status.conditions.[1].type: Invalid value: \"Failed\": There may be at most one"},
		{name: "something else", status: status{Conditions: outcome("Ready")}, want: "status.conditions.[0].type: Unsupported value: \"Ready\""},
		{name: "a certificate without a condition", status: status{CertificateChain: "x"}, want: "status: Invalid value: status is immutable unless transitioning"},
		{name: "taken back", before: good, want: "status: Invalid value: immutable after PodCertificateRequest is issued"},
		{name: "no certificate", status: status{Conditions: outcome(issued)}, want: "status.certificateChain: Invalid value: \"\": issued certificate chain must contain at least one"},
		{name: "too long a life", status: long, want: "status.certificateChain: Invalid value: 172800000000000: leaf certificate lifetime must be <="},
		{name: "renewed too late", status: late, want: "status.beginRefreshAt: Invalid value: "},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, old := &certificatesv1.PodCertificateRequest{Status: test.status}, &certificatesv1.PodCertificateRequest{Status: test.before}
			longest := int32(24 * 3600)
			c.Spec.StubPKCS10Request, c.Spec.MaxExpirationSeconds = request, &longest
			errs := validatePodRequestStatus(&resource.RequestContext{Now: now, Authorized: func(string, string, string, string) bool { return true }}, c, old)
			switch {
			case test.want == "" && len(errs) > 0:
				t.Errorf("refused: %v", errs)
			case test.want != "" && (len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), test.want)):
				t.Errorf("got  %v\nwant %s", errs, test.want)
			}
		})
	}
}

// TestPodRequestSigners checks that only users who may sign for the signer can
// end a request, whatever the outcome.
func TestPodRequestSigners(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	const refused = `spec.signerName: Forbidden: User "mallory" is not permitted to "sign" for signer "example.com/one"`
	for _, test := range []struct {
		name, may string // the signer that the user may sign for
		condition string
		want      string
	}{
		{name: "by name", may: "example.com/one", condition: denied},
		{name: "by domain", may: "example.com/*", condition: failed},
		{name: "another signer", may: "example.com/two", condition: denied, want: refused},
		{name: "another domain", may: "example.org/*", condition: failed, want: refused},
		{name: "nobody", condition: denied, want: refused},
		{name: "nobody, without a change"},
	} {
		t.Run(test.name, func(t *testing.T) {
			old := &certificatesv1.PodCertificateRequest{Spec: certificatesv1.PodCertificateRequestSpec{SignerName: "example.com/one"}}
			c := old.DeepCopy()
			if test.condition != "" {
				c.Status.Conditions = []metav1.Condition{{Type: test.condition, Status: metav1.ConditionTrue, Reason: "R", LastTransitionTime: metav1.NewTime(now)}}
			}
			c.Spec.SignerName = "example.com/two" // the stored signer decides
			got := ""
			r := &resource.RequestContext{Now: now, User: &user.DefaultInfo{Name: "mallory"}, Authorized: func(verb, group, plural, name string) bool {
				return verb == "sign" && group == "certificates.k8s.io" && plural == "signers" && name == test.may
			}}
			if errs := validatePodRequestStatus(r, c, old); len(errs) > 0 {
				got = errs.ToAggregate().Error()
			}
			if got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
			r.Authorized = nil
			if errs := validatePodRequestStatus(r, c, old); test.condition != "" && len(errs) == 0 {
				t.Error("accepted where no authorizer can be asked")
			}
		})
	}
}
