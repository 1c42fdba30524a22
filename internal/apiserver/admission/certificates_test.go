package admission

import (
	"context"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/coracle-io/coracle/internal/apiserver/objects/objectstest"
)

// signers allows verbs on signers, written "verb signer".
func signers(allowed ...string) authorizer.Authorizer {
	return authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		for _, s := range allowed {
			if a.GetResource() == "signers" && a.GetAPIGroup() == "certificates.k8s.io" && s == a.GetVerb()+" "+a.GetName() {
				return authorizer.DecisionAllow, "", nil
			}
		}
		return authorizer.DecisionNoOpinion, "", nil
	})
}

// Users need the plugin's verb on the signer.
func TestSigners(t *testing.T) {
	request := func(status certificatesv1.CertificateSigningRequestStatus) *certificatesv1.CertificateSigningRequest {
		return &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "r"},
			Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: "example.com/one"}, Status: status}
	}
	bundle := func(signer string) *certificatesv1.ClusterTrustBundle {
		return &certificatesv1.ClusterTrustBundle{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: certificatesv1.ClusterTrustBundleSpec{SignerName: signer}}
	}
	collected := bundle("example.com/one")
	collected.Finalizers = []string{"example.com/f"}
	signed := certificatesv1.CertificateSigningRequestStatus{Certificate: []byte("x")}
	failed := certificatesv1.CertificateSigningRequestStatus{Conditions: []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateFailed}}}
	const csrs, bundles = "certificates.k8s.io/certificatesigningrequests", "certificates.k8s.io/clustertrustbundles"
	refusedAttest := `clustertrustbundles.certificates.k8s.io "b" is forbidden: user not permitted to attest for signerName "example.com/one"`
	refusedSign := `certificatesigningrequests.certificates.k8s.io "r" is forbidden: user not permitted to sign requests with signerName "example.com/one"`
	for _, test := range []struct {
		name   string
		plugin func(*Config) admission.Interface
		may    string
		w      write
		want   string
	}{
		{"attest", newClusterTrustBundleAttest, "attest example.com/one", write{resource: bundles, obj: bundle("example.com/one")}, ""},
		{"attest for a domain", newClusterTrustBundleAttest, "attest example.com/*", write{resource: bundles, obj: bundle("example.com/one")}, ""},
		{"attest without the right", newClusterTrustBundleAttest, "sign example.com/one", write{resource: bundles, obj: bundle("example.com/one")}, refusedAttest},
		{"attest by an update", newClusterTrustBundleAttest, "", write{op: admission.Update, resource: bundles, obj: bundle("example.com/one"), old: bundle("")}, refusedAttest},
		{"finalizers", newClusterTrustBundleAttest, "", write{op: admission.Update, resource: bundles, obj: collected, old: bundle("example.com/one")}, ""},
		{"no signer", newClusterTrustBundleAttest, "", write{resource: bundles, obj: bundle("")}, ""},
		{"approve", newCertificateApproval, "approve example.com/*", write{op: admission.Update, resource: csrs + "/approval", obj: request(failed), old: request(signed)}, ""},
		{"approve without the right", newCertificateApproval, "approve example.com/two", write{op: admission.Update, resource: csrs + "/approval", obj: request(failed), old: request(signed)},
			`certificatesigningrequests.certificates.k8s.io "r" is forbidden: user not permitted to approve requests with signerName "example.com/one"`},
		{"sign", newCertificateSigning, "sign example.com/one", write{op: admission.Update, resource: csrs + "/status", obj: request(signed), old: request(failed)}, ""},
		{"sign without the right", newCertificateSigning, "approve example.com/one", write{op: admission.Update, resource: csrs + "/status", obj: request(signed), old: request(failed)}, refusedSign},
		{"fail without the right", newCertificateSigning, "", write{op: admission.Update, resource: csrs + "/status", obj: request(failed), old: request(certificatesv1.CertificateSigningRequestStatus{})}, refusedSign},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := config(objectstest.NewMemory())
			c.Authorizer = signers(test.may)
			test.w.user = &user.DefaultInfo{Name: "mallory"}
			if got := run(t, test.plugin(c), test.w); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

// Checks refuse objects of types that they do not know.
func TestUnknownTypesAreRefused(t *testing.T) {
	c := config(objectstest.NewMemory())
	c.Authorizer = signers("sign example.com/*", "approve example.com/*", "attest example.com/*")
	for _, test := range []struct {
		plugin admission.Interface
		w      write
	}{
		{newClusterTrustBundleAttest(c), write{resource: "certificates.k8s.io/clustertrustbundles", obj: &certificatesv1beta1.ClusterTrustBundle{}}},
		{newCertificateApproval(c), write{op: admission.Update, resource: "certificates.k8s.io/certificatesigningrequests/approval", obj: &certificatesv1beta1.CertificateSigningRequest{}, old: &certificatesv1beta1.CertificateSigningRequest{}}},
		{newCertificateSigning(c), write{op: admission.Update, resource: "certificates.k8s.io/certificatesigningrequests/status", obj: &certificatesv1beta1.CertificateSigningRequest{}, old: &certificatesv1beta1.CertificateSigningRequest{}}},
		{certificateSubjectRestriction{}, write{resource: "certificates.k8s.io/certificatesigningrequests", obj: &certificatesv1beta1.CertificateSigningRequest{}}},
	} {
		test.w.user = &user.DefaultInfo{Name: "mallory"}
		if got := run(t, test.plugin, test.w); !strings.Contains(got, "unexpected type *v1beta1.") {
			t.Errorf("%T: %q", test.plugin, got)
		}
	}
}
