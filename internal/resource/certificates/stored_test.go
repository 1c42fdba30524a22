package certificates

import (
	"encoding/pem"
	"slices"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func fieldsOf(errs field.ErrorList) (fields []string) {
	for _, err := range errs {
		fields = append(fields, err.Field)
	}
	return fields
}

func validateAll(c, old *certificatesv1.CertificateSigningRequest) field.ErrorList {
	return append(validateWhole(c, old), validateOneDecision(c, old)...)
}

// TestStoredRequests checks that a request which older versions have stored can
// be updated, and that a right one cannot become like it.
func TestStoredRequests(t *testing.T) {
	request := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: newRequest(t)})
	type change func(*certificatesv1.CertificateSigningRequest)
	with := func(changes ...change) *certificatesv1.CertificateSigningRequest {
		c := &certificatesv1.CertificateSigningRequest{}
		c.Name, c.ResourceVersion = "c", "1"
		c.Spec.Request, c.Spec.SignerName = request, "example.com/signer"
		c.Spec.Usages = []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth}
		for _, f := range changes {
			f(c)
		}
		return c
	}
	usages := func(more ...certificatesv1.KeyUsage) change {
		return func(c *certificatesv1.CertificateSigningRequest) { c.Spec.Usages = append(c.Spec.Usages, more...) }
	}
	types := func(types ...certificatesv1.RequestConditionType) change {
		return func(c *certificatesv1.CertificateSigningRequest) {
			for _, one := range types {
				c.Status.Conditions = append(c.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: one, Status: corev1.ConditionTrue})
			}
		}
	}
	certificate := func(text string) change {
		return func(c *certificatesv1.CertificateSigningRequest) { c.Status.Certificate = []byte(text) }
	}
	legacy := func(c *certificatesv1.CertificateSigningRequest) { c.Spec.SignerName = legacySigner }
	const approved = certificatesv1.CertificateApproved
	for _, test := range []struct {
		name string
		now  *certificatesv1.CertificateSigningRequest
		want []string // where now differs from what is right
	}{
		{"nothing wrong", with(), nil},
		{"an unknown usage", with(usages("baking")), []string{"spec.usages[1]"}},
		{
			"repeated usages", with(usages("client auth", "baking", "client auth")),
			[]string{"spec.usages[2]", "spec.usages[1]", "spec.usages[3]"},
		},
		{"the legacy signer", with(legacy), []string{"spec.signerName"}},
		{"a condition without type", with(types("")), []string{"status.conditions[0].type"}},
		{"a repeated condition", with(types(approved, approved)), []string{"status.conditions[1].type"}},
		{"both decisions", with(types(approved, certificatesv1.CertificateDenied)), []string{"status.conditions"}},
		{"no certificate", with(certificate("x")), []string{"status.certificate"}},
	} {
		if got := fieldsOf(validateAll(test.now, with())); !slices.Equal(got, test.want) {
			t.Errorf("%s: errors after a right one at %q, want %q", test.name, got, test.want)
		}
		if errs := validateAll(test.now, test.now.DeepCopy()); len(errs) > 0 {
			t.Errorf("%s: an update is refused: %v", test.name, errs)
		}
	}
}

// TestStubRequests checks how a pod's request that cannot be read is refused.
func TestStubRequests(t *testing.T) {
	for _, test := range []struct {
		name string
		stub []byte
		want string
	}{
		{"right", newRequest(t), ""},
		{"none", nil, "spec: Invalid value: exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set"},
		{"no request", []byte("x"), "spec.stubPKCS10Request: Invalid value: must be a valid PKCS#10 CSR"},
	} {
		r := &certificatesv1.PodCertificateRequest{Spec: certificatesv1.PodCertificateRequestSpec{
			SignerName: "example.com/one", PodName: "p", PodUID: "1", ServiceAccountName: "s", ServiceAccountUID: "2",
			NodeName: "n", NodeUID: "3", StubPKCS10Request: test.stub,
		}}
		PodCertificateRequests().Hub().Default(r)
		got := ""
		if errs := validatePodRequest(nil, r); len(errs) > 0 {
			got = errs.ToAggregate().Error()
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}
