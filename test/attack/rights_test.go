package attack

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"maps"
	"net/http"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// grant gives a user a ClusterRole with rules in JSON until the test ends. It waits
// until the first rule is in effect.
func grant(t *testing.T, c *cluster, user, rules string) {
	t.Helper()
	var list []rbacv1.PolicyRule
	if err := json.Unmarshal([]byte("["+rules+"]"), &list); err != nil {
		t.Fatal(err)
	}
	ctx, rbac := t.Context(), c.client.RbacV1()
	role, err := rbac.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: "attack-"}, Rules: list}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	binding, err := rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	remove(t, c, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/"+binding.Name, "/apis/rbac.authorization.k8s.io/v1/clusterroles/"+role.Name)
	first := list[0]
	eventually(t, "the permissions of "+user, func() error {
		return allowed(c, user, authorizationv1.ResourceAttributes{Group: first.APIGroups[0], Resource: first.Resources[0], Verb: first.Verbs[0]})
	})
}

// remove deletes objects when the test ends.
func remove(t *testing.T, c *cluster, paths ...string) {
	t.Cleanup(func() {
		for _, path := range paths {
			if code, body := send(t, c.admin, http.MethodDelete, path, ""); code != http.StatusOK && code != http.StatusNotFound {
				t.Errorf("delete %s: %d %s", path, code, body)
			}
		}
	})
}

// create creates an object as the admin, until the test ends.
func create(t *testing.T, c *cluster, path, name, body string) {
	t.Helper()
	if code, answer := send(t, c.admin, http.MethodPost, path, body); code != http.StatusCreated {
		t.Fatalf("create %s/%s: %d %s", path, name, code, answer)
	}
	remove(t, c, path+"/"+name)
}

// write is one way to send a change.
type write struct{ method, query, mediaType, body string }

// requestsFor returns every kind of request that changes an object: body
// replaces it, merge is a merge patch, and patch is a JSON patch.
func requestsFor(body, merge, patch string) map[string]write {
	all := map[string]write{
		"replace":         {http.MethodPut, "", "application/json", body},
		"merge patch":     {http.MethodPatch, "", "application/merge-patch+json", merge},
		"strategic patch": {http.MethodPatch, "", "application/strategic-merge-patch+json", merge},
		"JSON patch":      {http.MethodPatch, "", "application/json-patch+json", patch},
		"apply":           {http.MethodPatch, "fieldManager=attack&force=true", "application/apply-patch+yaml", body},
	}
	for name, w := range maps.Clone(all) {
		w.query = strings.TrimPrefix(w.query+"&dryRun=All", "&")
		all[name+" in a dry run"] = w
	}
	return all
}

const rbacPath = "/apis/rbac.authorization.k8s.io/v1"

// TestRoleEscalationIsRefused checks that a user who may edit all cluster roles
// and bindings cannot extend its own permissions by rules, aggregation, labels,
// escalate or bind.
func TestRoleEscalationIsRefused(t *testing.T) {
	c := controlPlane(t)
	const name = "attack-editor"
	editor := c.user(t, name)
	grant(t, c, name, `{"apiGroups":["rbac.authorization.k8s.io"],"resources":["clusterroles","clusterrolebindings","roles","rolebindings"],"verbs":["get","list","watch","create","update","patch","delete"]},
		{"apiGroups":[""],"resources":["pods"],"verbs":["get"]}`)
	const strong = `"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]`
	const weak = `"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["get"]}]`
	const label = `"labels":{"rbac.authorization.k8s.io/aggregate-to-view":"true"}`
	role := func(name, metadata, rest string) string {
		if metadata != "" {
			metadata = "," + metadata
		}
		return `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"` + name + `"` + metadata + `},` + rest + `}`
	}
	create(t, c, rbacPath+"/clusterroles", "attack-strong", role("attack-strong", "", strong))
	create(t, c, rbacPath+"/clusterroles", "attack-weak", role("attack-weak", "", weak))
	create(t, c, rbacPath+"/clusterroles", "attack-sum", role("attack-sum", "", `"aggregationRule":{"clusterRoleSelectors":[{"matchLabels":{"attack":"true"}}]},"rules":[]`))
	for _, test := range []struct {
		what, name         string
		body, merge, patch string
	}{
		{"a label on a privileged role", "attack-strong", role("attack-strong", label, strong), `{"metadata":{` + label + `}}`,
			`[{"op":"add","path":"/metadata/labels","value":{"rbac.authorization.k8s.io/aggregate-to-view":"true"}}]`},
		{"rules not held", "attack-weak", role("attack-weak", "", strong), `{` + strong + `}`, `[{"op":"add","path":"/rules/-","value":{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}}]`},
		{"aggregation of everything", "attack-weak", role("attack-weak", "", `"aggregationRule":{"clusterRoleSelectors":[{"matchLabels":{}}]}`),
			`{"aggregationRule":{"clusterRoleSelectors":[{"matchLabels":{}}]}}`, `[{"op":"add","path":"/aggregationRule","value":{"clusterRoleSelectors":[{"matchLabels":{}}]}}]`},
		{"a label on an aggregated role", "attack-sum", role("attack-sum", label, `"aggregationRule":{"clusterRoleSelectors":[{"matchLabels":{"attack":"true"}}]},"rules":[]`),
			`{"metadata":{` + label + `}}`, `[{"op":"add","path":"/metadata/labels","value":{"rbac.authorization.k8s.io/aggregate-to-view":"true"}}]`},
		{"another aggregation", "attack-sum", role("attack-sum", "", `"aggregationRule":{"clusterRoleSelectors":[{"matchLabels":{"attack":"yes"}}]},"rules":[]`),
			`{"aggregationRule":{"clusterRoleSelectors":[{"matchLabels":{"attack":"yes"}}]}}`, `[{"op":"remove","path":"/aggregationRule"}]`},
	} {
		for way, w := range requestsFor(test.body, test.merge, test.patch) {
			code, body := send(t, editor, w.method, rbacPath+"/clusterroles/"+test.name+"?"+w.query, w.body, "Content-Type", w.mediaType)
			if code != http.StatusForbidden {
				t.Errorf("%s by %s: %d %s", test.what, way, code, body)
			}
		}
	}
	for what, attempt := range map[string][2]string{
		"a new privileged role":                {"/clusterroles", role("attack-new", "", strong)},
		"a new privileged role with the label": {"/clusterroles", role("attack-new", label, strong)},
		"a new aggregated role":                {"/clusterroles", role("attack-new", "", `"aggregationRule":{"clusterRoleSelectors":[{"matchLabels":{}}]}`)},
		"escalate for oneself":                 {"/clusterroles", role("attack-new", "", `"rules":[{"apiGroups":["rbac.authorization.k8s.io"],"resources":["clusterroles"],"verbs":["escalate","bind"]}]`)},
		"a binding to it": {"/clusterrolebindings", `{"metadata":{"name":"attack-new"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},
			"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"` + name + `"}]}`},
		"a binding in a namespace": {"/namespaces/kube-system/rolebindings", `{"metadata":{"name":"attack-new"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"admin"},
			"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"` + name + `"}]}`},
		"a role in a namespace": {"/namespaces/kube-system/roles", `{"metadata":{"name":"attack-new"},"rules":[{"apiGroups":[""],"resources":["secrets"],"verbs":["get"]}]}`},
	} {
		for _, query := range []string{"", "?dryRun=All"} {
			if code, body := send(t, editor, http.MethodPost, rbacPath+attempt[0]+query, attempt[1]); code != http.StatusForbidden {
				t.Errorf("%s%s: %d %s", what, query, code, body)
			}
		}
	}
	// Permissions that the user holds can be aggregated, as installers of
	// custom resources do with a label.
	if code, body := send(t, editor, http.MethodPatch, rbacPath+"/clusterroles/attack-weak?dryRun=All", `{"metadata":{`+label+`}}`, "Content-Type", "application/merge-patch+json"); code != http.StatusOK {
		t.Errorf("a label on a role whose permissions the user holds: %d %s", code, body)
	}
}

// newSigningRequest returns a PKCS#10 request for a name in groups.
func newSigningRequest(t *testing.T, name string, groups ...string) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: name, Organization: groups}}, key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// TestCertificatesForOthersAreRefused requests certificates for system:masters
// and for other nodes, and approves and signs without permission for the
// signer.
func TestCertificatesForOthersAreRefused(t *testing.T) {
	c := controlPlane(t)
	const name = "attack-requester"
	config := c.user(t, name)
	grant(t, c, name, `{"apiGroups":["certificates.k8s.io"],"resources":["certificatesigningrequests","certificatesigningrequests/approval","certificatesigningrequests/status"],"verbs":["*"]}`)
	requests := clientOf(t, config).CertificatesV1().CertificateSigningRequests()
	node := clientOf(t, c.kubelet(t, "elsewhere")).CertificatesV1().CertificateSigningRequests()
	csr := func(signer string, der []byte, usages ...certificatesv1.KeyUsage) *certificatesv1.CertificateSigningRequest {
		return &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{GenerateName: "attack-"}, Spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: signer, Usages: usages, Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			Username: "kubernetes-admin", Groups: []string{"system:masters"}}}
	}
	_, err := requests.Create(t.Context(), csr(certificatesv1.KubeAPIServerClientSignerName, newSigningRequest(t, "mallory", "system:masters"), certificatesv1.UsageClientAuth), metav1.CreateOptions{})
	checkRefused(t, "a request for system:masters", err, http.StatusForbidden)
	for _, signer := range []string{certificatesv1.KubeAPIServerClientKubeletSignerName, certificatesv1.KubeletServingSignerName} {
		_, err = node.Create(t.Context(), csr(signer, newSigningRequest(t, "system:node:n1", "system:nodes"), certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth), metav1.CreateOptions{})
		checkRefused(t, "a request of one node for another to "+signer, err, http.StatusForbidden)
	}
	made, err := requests.Create(t.Context(), csr(certificatesv1.KubeAPIServerClientSignerName, newSigningRequest(t, "mallory"), certificatesv1.UsageClientAuth), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	remove(t, c, "/apis/certificates.k8s.io/v1/certificatesigningrequests/"+made.Name)
	if made.Spec.Username != name {
		t.Errorf("the request's username is %s", made.Spec.Username)
	}
	path := "/apis/certificates.k8s.io/v1/certificatesigningrequests/" + made.Name
	condition := `{"type":"Approved","status":"True","reason":"x"}`
	for sub, status := range map[string]string{"approval": `{"conditions":[` + condition + `]}`, "status": `{"certificate":"` + base64.StdEncoding.EncodeToString(c.keys.Cluster().PEM()) + `"}`} {
		made.TypeMeta = metav1.TypeMeta{APIVersion: "certificates.k8s.io/v1", Kind: "CertificateSigningRequest"}
		changed := made.DeepCopy()
		changed.ManagedFields = nil
		if err := json.Unmarshal([]byte(status), &changed.Status); err != nil {
			t.Fatal(err)
		}
		body, err := json.Marshal(changed)
		if err != nil {
			t.Fatal(err)
		}
		for way, w := range requestsFor(string(body), `{"status":`+status+`}`, `[{"op":"add","path":"/status","value":`+status+`}]`) {
			if code, answer := send(t, config, w.method, path+"/"+sub+"?"+w.query, w.body, "Content-Type", w.mediaType); code != http.StatusForbidden {
				t.Errorf("%s by %s: %d %s", sub, way, code, answer)
			}
		}
	}
}

// TestTrustBundlesOfOthersAreRefused writes trust bundles and pod certificates
// of a signer without permission for it, in each served version.
func TestTrustBundlesOfOthersAreRefused(t *testing.T) {
	c := startOwn(t, "--nodes=0", "--apiserver-arg=runtime-config=certificates.k8s.io/v1beta1=true")
	const name = "attack-publisher"
	config := c.user(t, name)
	grant(t, c, name, `{"apiGroups":["certificates.k8s.io"],"resources":["clustertrustbundles","podcertificaterequests","podcertificaterequests/status"],"verbs":["*"]},
		{"apiGroups":["certificates.k8s.io"],"resources":["signers"],"resourceNames":["example.com/mine"],"verbs":["attest","sign"]}`)
	quoted, err := json.Marshal(string(c.keys.Cluster().PEM()))
	if err != nil {
		t.Fatal(err)
	}
	bundle := func(version, signer string) string {
		return `{"apiVersion":"certificates.k8s.io/` + version + `","kind":"ClusterTrustBundle","metadata":{"name":"` + strings.ReplaceAll(signer, "/", ":") + `:b"},"spec":{"signerName":"` + signer + `","trustBundle":` + string(quoted) + `}}`
	}
	create(t, c, "/apis/certificates.k8s.io/v1/clustertrustbundles", "example.com:theirs:b", bundle("v1", "example.com/theirs"))
	const requestPath = "/namespaces/default/podcertificaterequests"
	create(t, c, "/apis/certificates.k8s.io/v1"+requestPath, "r", podCertificateRequest(t))
	for _, version := range served(t, c, "clustertrustbundles") {
		path := "/apis/certificates.k8s.io/" + version + "/clustertrustbundles"
		if code, body := send(t, config, http.MethodPost, path+"?dryRun=All", bundle(version, "example.com/mine")); code != http.StatusCreated {
			t.Errorf("%s, the user's own signer: %d %s", version, code, body)
		}
		for _, query := range []string{"", "?dryRun=All"} {
			if code, body := send(t, config, http.MethodPost, path+query, bundle(version, "example.com/others")); code != http.StatusForbidden {
				t.Errorf("%s, another's signer: %d %s", version, code, body)
			}
		}
		for way, w := range requestsFor(strings.Replace(bundle(version, "example.com/theirs"), `"metadata":{`, `"metadata":{"labels":{"a":"b"},`, 1), `{"metadata":{"labels":{"a":"b"}}}`, `[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`) {
			if code, body := send(t, config, w.method, path+"/example.com:theirs:b?"+w.query, w.body, "Content-Type", w.mediaType); code != http.StatusForbidden && code != http.StatusUnprocessableEntity {
				t.Errorf("%s, another's bundle by %s: %d %s", version, way, code, body)
			}
		}
	}
	for _, version := range served(t, c, "podcertificaterequests") {
		path := "/apis/certificates.k8s.io/" + version + requestPath + "/r/status"
		const status = `{"conditions":[{"type":"Denied","status":"True","reason":"x","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}`
		_, stored := send(t, c.admin, http.MethodGet, strings.TrimSuffix(path, "/status"), "")
		body := withStatus(t, stored, status)
		for way, w := range requestsFor(body, `{"status":`+status+`}`, `[{"op":"add","path":"/status","value":`+status+`}]`) {
			code, answer := send(t, config, w.method, path+"?"+w.query, w.body, "Content-Type", w.mediaType)
			if code != http.StatusUnprocessableEntity || !strings.Contains(answer, `is not permitted to \"sign\" for signer`) {
				t.Errorf("%s, status by %s: %d %s", version, way, code, answer)
			}
		}
	}
}

// podCertificateRequest returns a request to the signer example.com/theirs.
func podCertificateRequest(t *testing.T) string {
	t.Helper()
	body, err := json.Marshal(&certificatesv1.PodCertificateRequest{
		TypeMeta: metav1.TypeMeta{APIVersion: "certificates.k8s.io/v1", Kind: "PodCertificateRequest"}, ObjectMeta: metav1.ObjectMeta{Name: "r"},
		Spec: certificatesv1.PodCertificateRequestSpec{SignerName: "example.com/theirs", PodName: "p", PodUID: "u", ServiceAccountName: "a", ServiceAccountUID: "u",
			NodeName: "n", NodeUID: "u", StubPKCS10Request: newSigningRequest(t, "")}})
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// withStatus returns an object as JSON with another status and without managed fields.
func withStatus(t *testing.T, object, status string) string {
	t.Helper()
	var o map[string]any
	if err := json.Unmarshal([]byte(object), &o); err != nil {
		t.Fatal(err)
	}
	delete(o["metadata"].(map[string]any), "managedFields")
	var s any
	if err := json.Unmarshal([]byte(status), &s); err != nil {
		t.Fatal(err)
	}
	o["status"] = s
	body, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// served returns the versions of certificates.k8s.io that have a resource.
func served(t *testing.T, c *cluster, resource string) []string {
	t.Helper()
	_, lists, err := c.client.Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	var versions []string
	for _, list := range lists {
		version, ok := strings.CutPrefix(list.GroupVersion, "certificates.k8s.io/")
		for i := range list.APIResources {
			if ok && list.APIResources[i].Name == resource {
				versions = append(versions, version)
			}
		}
	}
	if len(versions) < 2 {
		t.Fatalf("%s is served in %v only", resource, versions)
	}
	return versions
}
