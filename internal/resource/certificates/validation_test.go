package certificates

import (
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/coracle-io/coracle/internal/resource"
)

// TestRequester checks that the requesting user is always the one that sends
// the request.
func TestRequester(t *testing.T) {
	c := &certificatesv1.CertificateSigningRequest{}
	c.Spec.Username, c.Spec.Groups = "system:admin", []string{"system:masters"}
	prepareSigningRequest(&resource.RequestContext{User: &user.DefaultInfo{Name: "jane", Groups: []string{"dev"}}}, c)
	if c.Spec.Username != "jane" || len(c.Spec.Groups) != 1 || c.Spec.Groups[0] != "dev" {
		t.Errorf("requester is %s %v, want jane [dev]", c.Spec.Username, c.Spec.Groups)
	}
}

// TestConditionTimes checks that missing times of conditions are set, and that
// an existing decision keeps its time.
func TestConditionTimes(t *testing.T) {
	first, second := time.Unix(100, 0), time.Unix(200, 0)
	decision := certificatesv1.CertificateSigningRequestCondition{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue}
	old, approved := &certificatesv1.CertificateSigningRequest{}, &certificatesv1.CertificateSigningRequest{}
	approved.Status.Conditions = append(approved.Status.Conditions, decision)
	prepareApproval(&resource.RequestContext{Now: first}, approved, old)
	if c := approved.Status.Conditions[0]; !c.LastUpdateTime.Time.Equal(first) || !c.LastTransitionTime.Time.Equal(first) {
		t.Errorf("approved: updated %v, changed %v, want %v", c.LastUpdateTime, c.LastTransitionTime, first)
	}
	again := &certificatesv1.CertificateSigningRequest{}
	again.Status.Conditions = append(again.Status.Conditions, decision)
	setConditionTimes(&resource.RequestContext{Now: second}, again, approved)
	if c := again.Status.Conditions[0]; !c.LastUpdateTime.Time.Equal(second) || !c.LastTransitionTime.Time.Equal(first) {
		t.Errorf("again: updated %v, changed %v, want %v, %v", c.LastUpdateTime, c.LastTransitionTime, second, first)
	}
}

func TestDecisions(t *testing.T) {
	request := newRequest(t)
	with := func(kinds ...certificatesv1.RequestConditionType) *certificatesv1.CertificateSigningRequest {
		c := &certificatesv1.CertificateSigningRequest{}
		c.Name, c.Spec.SignerName = "c", "example.com/signer"
		c.Spec.Usages = []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth}
		c.Spec.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request})
		for _, kind := range kinds {
			c.Status.Conditions = append(c.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: kind, Status: corev1.ConditionTrue})
		}
		return c
	}
	const approved, denied = certificatesv1.CertificateApproved, certificatesv1.CertificateDenied
	for _, test := range []struct {
		name     string
		now, old *certificatesv1.CertificateSigningRequest
		approver bool
		signer   bool
	}{
		{"nothing", with(), with(), true, true},
		{"approve", with(approved), with(), true, false},
		{"take back", with(), with(approved), false, false},
		{"approve and deny", with(approved, denied), with(), false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := len(validateApproval(nil, test.now, test.old)) == 0; got != test.approver {
				t.Errorf("an approver may: %v, want %v", got, test.approver)
			}
			if got := len(validateSigned(nil, test.now, test.old)) == 0; got != test.signer {
				t.Errorf("a signer may: %v, want %v", got, test.signer)
			}
		})
	}
}

// TestLargeKeys checks that a request cannot keep the server busy with its key.
func TestLargeKeys(t *testing.T) {
	modulus := new(big.Int).Lsh(big.NewInt(1), maxRSABits)
	key, err := x509.MarshalPKIXPublicKey(&rsa.PublicKey{N: modulus.Add(modulus, big.NewInt(1)), E: 65537})
	if err != nil {
		t.Fatal(err)
	}
	type content struct {
		Version    int
		Subject    pkix.RDNSequence
		Key        asn1.RawValue
		Attributes []asn1.RawValue `asn1:"tag:0"`
	}
	request, err := asn1.Marshal(struct {
		Content   content
		Algorithm pkix.AlgorithmIdentifier
		Signature asn1.BitString
	}{
		content{Key: asn1.RawValue{FullBytes: key}},
		pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 11}, Parameters: asn1.NullRawValue}, // SHA-256 with RSA
		asn1.BitString{Bytes: []byte{1}, BitLength: 8},
	})
	if err != nil {
		t.Fatal(err)
	}
	err = checkRequest(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request}))
	if err == nil || !strings.Contains(err.Error(), "the RSA key has 16385 bits") {
		t.Error(err)
	}
}
