package attack

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/coracle-io/coracle/internal/pki"
)

// whoAmI returns the user that the API server authenticates config as.
func whoAmI(t *testing.T, config *rest.Config, headers ...string) (int, authenticationv1.UserInfo) {
	t.Helper()
	code, body := send(t, config, http.MethodPost, "/apis/authentication.k8s.io/v1/selfsubjectreviews",
		`{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`, headers...)
	var review authenticationv1.SelfSubjectReview
	if code == http.StatusCreated {
		if err := json.Unmarshal([]byte(body), &review); err != nil {
			t.Fatal(err)
		}
	}
	return code, review.Status.UserInfo
}

func (c *cluster) bearer(token string) *rest.Config {
	return c.as(func(config *rest.Config) { config.BearerToken = token })
}

func clientOf(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// TestForgedTokensAreRefused tries tokens without a signature, tokens signed
// with another key or with the public key as an HMAC secret, changed tokens,
// and tokens of another issuer or audience.
func TestForgedTokensAreRefused(t *testing.T) {
	c := controlPlane(t)
	config, namespace := c.tenant(t, "")
	real := strings.Split(config.BearerToken, ".")
	if code, who := whoAmI(t, config); code != http.StatusCreated || who.Username != "system:serviceaccount:"+namespace+":tenant" {
		t.Fatalf("the real token: %d %v", code, who)
	}
	payload, err := base64.RawURLEncoding.DecodeString(real[1])
	if err != nil {
		t.Fatal(err)
	}
	var claims map[string]any
	if err := json.Unmarshal(payload, &claims); err != nil {
		t.Fatal(err)
	}
	with := func(changes map[string]any) []byte {
		changed := maps.Clone(claims)
		maps.Copy(changed, changes)
		raw, err := json.Marshal(changed)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	encode := base64.RawURLEncoding.EncodeToString
	keys := c.keys.TokenKeys().Current()
	public, err := x509.MarshalPKIXPublicKey(keys.Signing.Public())
	if err != nil {
		t.Fatal(err)
	}
	var head struct {
		ID  string                  `json:"kid"`
		Alg jose.SignatureAlgorithm `json:"alg"`
	}
	raw, err := base64.RawURLEncoding.DecodeString(real[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		t.Fatal(err)
	}
	signed := func(algorithm jose.SignatureAlgorithm, key any, payload []byte) string {
		return signedToken(t, jose.SigningKey{Algorithm: algorithm, Key: jose.JSONWebKey{Key: key, KeyID: head.ID}}, payload)
	}
	stranger, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	admin := map[string]any{"sub": "system:serviceaccount:kube-system:clusterrole-aggregation-controller"}
	none := func(alg string) string {
		return encode([]byte(`{"alg":"`+alg+`","kid":"`+head.ID+`"}`)) + "." + real[1] + "."
	}
	if code, _ := whoAmI(t, c.bearer(signed(head.Alg, keys.Signing, payload))); code != http.StatusCreated {
		t.Fatalf("the token signed again with the cluster's own key: %d, so the test proves nothing", code)
	}
	for what, token := range map[string]string{
		"alg none":                          none("none"),
		"alg None":                          none("None"),
		"alg none, with the signature":      none("none") + real[2],
		"HS256 with the public key in DER":  signed(jose.HS256, public, payload),
		"HS256 with the public key in PEM":  signed(jose.HS256, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), payload),
		"another key under the same id":     signed(jose.ES256, stranger, payload),
		"another subject":                   real[0] + "." + encode(with(admin)) + "." + real[2],
		"another issuer":                    signed(head.Alg, keys.Signing, with(map[string]any{"iss": "https://example.com"})),
		"the legacy issuer":                 signed(head.Alg, keys.Signing, with(map[string]any{"iss": "kubernetes/serviceaccount"})),
		"another audience":                  signed(head.Alg, keys.Signing, with(map[string]any{"aud": []string{"vault"}})),
		"expired":                           signed(head.Alg, keys.Signing, with(map[string]any{"exp": time.Now().Add(-time.Hour).Unix()})),
		"from the future":                   signed(head.Alg, keys.Signing, with(map[string]any{"nbf": time.Now().Add(time.Hour).Unix()})),
		"a subject that is not the account": signed(head.Alg, keys.Signing, with(admin)),
		"three dots":                        config.BearerToken + ".",
		"nothing":                           "..",
	} {
		if code, who := whoAmI(t, c.bearer(token)); code != http.StatusUnauthorized {
			t.Errorf("%s: %d as %q", what, code, who.Username)
		}
	}
}

// TestTokensForOtherAudiencesAreRefused checks that the API server does not accept a
// genuine token for another audience.
func TestTokensForOtherAudiencesAreRefused(t *testing.T) {
	c := controlPlane(t)
	_, namespace := c.tenant(t, "")
	other, err := c.client.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), "tenant",
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{"vault"}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if code, who := whoAmI(t, c.bearer(other.Status.Token)); code != http.StatusUnauthorized {
		t.Errorf("a token for another audience: %d as %q", code, who.Username)
	}
}

// signedToken returns a JSON web token with a payload.
func signedToken(t *testing.T, key jose.SigningKey, payload []byte) string {
	t.Helper()
	signer, err := jose.NewSigner(key, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := signer.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	token, err := s.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// TestTokensEndWithTheirBoundObject tries tokens of a deleted pod, also after a pod
// with its name was created, of a deleted secret and of a deleted service account.
func TestTokensEndWithTheirBoundObject(t *testing.T) {
	c := controlPlane(t)
	ctx := t.Context()
	config, namespace := c.tenant(t, "")
	core := c.client.CoreV1()
	newPod := func() *v1.Pod {
		pod, err := core.Pods(namespace).Create(ctx, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1.PodSpec{
			ServiceAccountName: "tenant", Containers: []v1.Container{{Name: "c", Image: "coracle.internal/pause:1.0"}}}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return pod
	}
	bound := func(kind, name string) string {
		token, err := core.ServiceAccounts(namespace).CreateToken(ctx, "tenant", &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: kind, Name: name}}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return token.Status.Token
	}
	expect := func(what, token string, want int) {
		t.Helper()
		if code, _ := whoAmI(t, c.bearer(token)); code != want {
			t.Errorf("%s: %d, want %d", what, code, want)
		}
	}
	ends := func(what, token string) { // once the server's watch has seen the deletion
		t.Helper()
		eventually(t, what, func() error {
			if code, _ := whoAmI(t, c.bearer(token)); code != http.StatusUnauthorized {
				return fmt.Errorf("%d, want %d", code, http.StatusUnauthorized)
			}
			return nil
		})
	}
	newPod()
	if _, err := core.Secrets(namespace).Create(ctx, &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ofPod, ofSecret := bound("Pod", "p"), bound("Secret", "s")
	expect("the pod's token", ofPod, http.StatusCreated)
	expect("the secret's token", ofSecret, http.StatusCreated)
	at := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
	if err := core.Pods(namespace).Delete(ctx, "p", at); err != nil {
		t.Fatal(err)
	}
	if err := core.Secrets(namespace).Delete(ctx, "s", at); err != nil {
		t.Fatal(err)
	}
	ends("the token of a deleted pod", ofPod)
	ends("the token of a deleted secret", ofSecret)
	newPod()
	expect("the token of a former pod of that name", ofPod, http.StatusUnauthorized)
	if err := core.ServiceAccounts(namespace).Delete(ctx, "tenant", at); err != nil {
		t.Fatal(err)
	}
	ends("the token of a deleted account", config.BearerToken)
}

// TestTenantRequestsTokensOfOthers has a tenant request tokens of other accounts, and
// tokens of its own account that are bound to foreign objects.
func TestTenantRequestsTokensOfOthers(t *testing.T) {
	c := controlPlane(t)
	config, namespace := c.tenant(t, "admin")
	_, other := c.tenant(t, "")
	mine := clientOf(t, config)
	_, err := mine.CoreV1().ServiceAccounts(other).CreateToken(t.Context(), "tenant", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	checkRefused(t, "a token of another namespace's account", err, http.StatusForbidden)
	_, err = mine.CoreV1().ServiceAccounts("kube-system").CreateToken(t.Context(), "clusterrole-aggregation-controller", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	checkRefused(t, "a token of a controller", err, http.StatusForbidden)
	if _, err := mine.CoreV1().Pods(namespace).Create(t.Context(), &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1.PodSpec{
		ServiceAccountName: "default", Containers: []v1.Container{{Name: "c", Image: "coracle.internal/pause:1.0"}}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err = mine.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), "tenant", &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "p"}}}, metav1.CreateOptions{})
	checkRefused(t, "a token bound to a pod of another account", err, http.StatusBadRequest)
}

// TestSmuggledHeadersAreIgnored sends the headers of front proxies without a front
// proxy's certificate, and of impersonation without the right to it, in all
// spellings.
func TestSmuggledHeadersAreIgnored(t *testing.T) {
	c := controlPlane(t)
	tenant, namespace := c.tenant(t, "")
	front, err := c.keys.Issue(pki.Profile{Name: "attack-front", Authority: pki.FrontProxyAuthority, CommonName: "mallory", Client: true})
	if err != nil {
		t.Fatal(err)
	}
	for who, sender := range map[string]struct {
		config *rest.Config
		name   string
		code   int
	}{
		"a tenant":  {tenant, "system:serviceaccount:" + namespace + ":tenant", http.StatusCreated},
		"a user":    {c.user(t, "mallory"), "mallory", http.StatusCreated},
		"anonymous": {c.as(func(*rest.Config) {}), "", http.StatusForbidden},
		"a certificate of the front proxies' authority under another name": {c.as(func(config *rest.Config) {
			config.CertData, config.KeyData = front.PEM()
		}), "", http.StatusUnauthorized},
	} {
		for _, user := range []string{"X-Remote-User", "x-remote-user", "X_Remote_User", "X-Remote_User"} {
			code, found := whoAmI(t, sender.config, user, "kubernetes-admin", "X-Remote-Group", "system:masters", "X-Remote-Extra-Scopes", "all", "X-Remote-Uid", "0")
			if code != sender.code && code != http.StatusUnauthorized || found.Username != sender.name && found.Username != "" || slices.Contains(found.Groups, "system:masters") {
				t.Errorf("%s as %s: %d %v", who, user, code, found)
			}
		}
		for _, headers := range [][]string{
			{"Impersonate-User", "kubernetes-admin"},
			{"Impersonate-User", "kubernetes-admin", "Impersonate-Group", "system:masters"},
			{"Impersonate-User", "mallory", "Impersonate-Group", "system:masters"},
			{"Impersonate-User", "mallory", "Impersonate-Uid", "7"},
			{"Impersonate-User", "mallory", "Impersonate-Extra-Scopes", "all"},
			{"Impersonate-User", "system:serviceaccount:kube-system:clusterrole-aggregation-controller"},
			{"Impersonate-User", "system:node:n1", "Impersonate-Group", "system:nodes"},
			{"Impersonate-Group", "system:masters"},
		} {
			code, found := whoAmI(t, sender.config, headers...)
			if code != http.StatusForbidden && code != http.StatusUnauthorized && code != http.StatusBadRequest {
				t.Errorf("%s with %q: %d %v", who, headers, code, found)
			}
		}
		code, found := whoAmI(t, sender.config, "Impersonate_User", "kubernetes-admin", "Impersonate_Group", "system:masters")
		if code != sender.code || found.Username != sender.name {
			t.Errorf("%s with underscores: %d %v", who, code, found)
		}
	}
}

// TestImpersonationBeyondTheGrant checks that a user who may impersonate another
// user cannot add groups, a UID or extra fields.
func TestImpersonationBeyondTheGrant(t *testing.T) {
	c := controlPlane(t)
	config, namespace := c.tenant(t, "")
	for _, args := range [][]string{
		{"/apis/rbac.authorization.k8s.io/v1/clusterroles", `{"metadata":{"name":"` + namespace + `"},"rules":[{"apiGroups":[""],"resources":["users"],"verbs":["impersonate"],"resourceNames":["ann"]}]}`},
		{"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", `{"metadata":{"name":"` + namespace + `"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"` + namespace + `"},"subjects":[{"kind":"ServiceAccount","name":"tenant","namespace":"` + namespace + `"}]}`},
	} {
		if code, body := send(t, c.admin, http.MethodPost, args[0], args[1]); code != http.StatusCreated {
			t.Fatalf("%d %s", code, body)
		}
		t.Cleanup(func() {
			if code, body := send(t, c.admin, http.MethodDelete, args[0]+"/"+namespace, ""); code != http.StatusOK {
				t.Errorf("%d %s", code, body)
			}
		})
	}
	eventually(t, "impersonating ann", func() error {
		if code, who := whoAmI(t, config, "Impersonate-User", "ann"); code != http.StatusCreated || who.Username != "ann" {
			return fmt.Errorf("%d %v", code, who)
		}
		return nil
	})
	for _, headers := range [][]string{
		{"Impersonate-Group", "system:masters"}, {"Impersonate-Uid", "7"}, {"Impersonate-Extra-Scopes", "all"}, {"Impersonate-Extra-Acme.com%2fproject", "p"},
	} {
		if code, who := whoAmI(t, config, append([]string{"Impersonate-User", "ann"}, headers...)...); code != http.StatusForbidden {
			t.Errorf("ann with %q: %d %v", headers, code, who)
		}
	}
	if code, who := whoAmI(t, config, "Impersonate-User", "bob"); code != http.StatusForbidden {
		t.Errorf("bob: %d %v", code, who)
	}
}

// TestAggregatedServersSeeNoSmuggledHeaders checks that the API server sends only the
// authenticated user to aggregated servers, which trust its front proxy
// certificate, and removes the client's headers in all spellings.
func TestAggregatedServersSeeNoSmuggledHeaders(t *testing.T) {
	c := startOwn(t, "--nodes=0", "--apiserver-arg=requestheader-username-headers=X-Who,X-Remote-User", "--apiserver-arg=requestheader-group-headers=X-Team,X-Remote-Group",
		"--apiserver-arg=requestheader-extra-headers-prefix=X-More-,X-Remote-Extra-")
	var mu sync.Mutex // guards seen
	var seen http.Header
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/things") {
			mu.Lock()
			seen = r.Header.Clone()
			mu.Unlock()
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"attack.example.com/v1","resources":[]}`))
	}))
	defer server.Close()
	aggregate(t, c, server)
	config := c.user(t, "mallory", "guests")
	grant(t, c, "mallory", `{"apiGroups":["attack.example.com"],"resources":["*"],"verbs":["*"]}`)
	get := func(headers ...string) (code int) {
		code, _ = send(t, config, http.MethodGet, "/apis/attack.example.com/v1/things", "", headers...)
		return code
	}
	eventually(t, "the aggregated server", func() error {
		if code := get(); code != http.StatusOK {
			return fmt.Errorf("answers %d", code)
		}
		return nil
	})
	if code := get("X-Who", "kubernetes-admin", "X_who", "kubernetes-admin", "X-Team", "system:masters", "X-More-Scopes", "all", "X-Remote-User", "kubernetes-admin",
		"X-Remote-Group", "system:masters", "X-Remote-Extra-Scopes", "all", "X_remote_extra_scopes", "all", "X-Remote-Uid", "0", "Impersonate_user", "kubernetes-admin",
		"Impersonate-Nothing", "x", "Authorization", "Bearer x"); code != http.StatusOK {
		t.Fatalf("answers %d", code)
	}
	mu.Lock()
	defer mu.Unlock()
	for name, values := range seen {
		folded := strings.ToLower(strings.ReplaceAll(name, "_", "-"))
		switch {
		case folded == "x-remote-user" && slices.Equal(values, []string{"mallory"}):
		case folded == "x-remote-group" && slices.Equal(values, []string{"guests", "system:authenticated"}):
		case strings.HasPrefix(folded, "x-remote-extra-authentication.kubernetes.io"): // the certificate's id
		case strings.HasPrefix(folded, "x-remote-"), strings.HasPrefix(folded, "x-who"), strings.HasPrefix(folded, "x-team"), strings.HasPrefix(folded, "x-more-"),
			strings.HasPrefix(folded, "impersonate-"), folded == "authorization":
			t.Errorf("the aggregated server sees %s: %q", name, values)
		}
	}
	if seen.Get("X-Remote-User") != "mallory" {
		t.Errorf("the aggregated server sees no user: %v", seen)
	}
}

// aggregate registers a local server for attack.example.com/v1.
func aggregate(t *testing.T, c *cluster, server *httptest.Server) {
	t.Helper()
	_, text, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.client.CoreV1().Services("default").Create(t.Context(), &v1.Service{ObjectMeta: metav1.ObjectMeta{Name: "attack"},
		Spec: v1.ServiceSpec{Type: v1.ServiceTypeExternalName, ExternalName: "localhost"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(&apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: "v1.attack.example.com"}, Spec: apiregistrationv1.APIServiceSpec{
		Group: "attack.example.com", Version: "v1", GroupPriorityMinimum: 100, VersionPriority: 100, InsecureSkipTLSVerify: true,
		Service: &apiregistrationv1.ServiceReference{Namespace: "default", Name: "attack", Port: new(int32(port))}}})
	if err != nil {
		t.Fatal(err)
	}
	if code, answer := send(t, c.admin, http.MethodPost, "/apis/apiregistration.k8s.io/v1/apiservices", string(body)); code != http.StatusCreated {
		t.Fatalf("%d %s", code, answer)
	}
}

// TestHandshakesNameTheClientAuthorities checks that the TLS handshake names the
// accepted client certificate authorities, including the authority of front
// proxies.
func TestHandshakesNameTheClientAuthorities(t *testing.T) {
	c := controlPlane(t)
	var named [][]byte
	config := c.trust(t)
	config.GetClientCertificate = func(r *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		named = r.AcceptableCAs
		return &tls.Certificate{}, nil
	}
	conn, err := tls.Dial("tcp", c.address(), config)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	for name, authority := range map[string]*pki.Authority{"clients": c.keys.Cluster(), "front proxies": c.keys.FrontProxy()} {
		if !slices.ContainsFunc(named, func(n []byte) bool { return bytes.Equal(n, authority.Certificate().RawSubject) }) {
			t.Errorf("the authority of %s is not among the %d named", name, len(named))
		}
	}
}
