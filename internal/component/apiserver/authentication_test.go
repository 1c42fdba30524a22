package apiserver_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/coracle-io/coracle/internal/component/apiserver"
)

// whoami says who a client is, as "name [groups]"; "" is not let in.
func (s *whole) whoami(c *rest.Config) string {
	s.t.Helper()
	code, body := s.do(c, "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", `{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"}`)
	if code == http.StatusUnauthorized {
		return ""
	}
	var review authenticationv1.SelfSubjectReview
	if err := json.Unmarshal([]byte(body), &review); err != nil || code != http.StatusCreated {
		s.t.Fatalf("who am I: %d %s %v", code, body, err)
	}
	return fmt.Sprint(review.Status.UserInfo.Username, " ", review.Status.UserInfo.Groups)
}

// reviewed returns the user of a token by a TokenReview, as whoami does.
func (s *whole) reviewed(token string) string {
	s.t.Helper()
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	review, err := s.clientset(s.admin()).AuthenticationV1().TokenReviews().Create(s.t.Context(), review, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	if !review.Status.Authenticated {
		s.t.Logf("no token of anybody's: %s", review.Status.Error)
		return ""
	}
	return fmt.Sprint(review.Status.User.Username, " ", review.Status.User.Groups)
}

func TestOIDCFlags(t *testing.T) {
	i := startIssuer(t)
	s := startWhole(t, "--oidc-issuer-url="+i.server.URL, "--oidc-client-id=cluster", "--oidc-ca-file="+file(t, "ca.pem", i.authority()),
		"--oidc-username-claim=email", "--oidc-groups-claim=groups", "--oidc-groups-prefix=oidc:", "--oidc-signing-algs=ES256", "--oidc-required-claim=hd=example.com",
		"--token-auth-file="+file(t, "tokens.csv", "s3cret,alice,7,dev\n"))
	claims := func(change ...any) map[string]any {
		all := map[string]any{"email": "jane@example.com", "groups": []string{"dev"}, "hd": "example.com"}
		for n := 0; n < len(change); n += 2 {
			all[change[n].(string)] = change[n+1]
		}
		return all
	}
	jane := "jane@example.com [oidc:dev system:authenticated]"
	eventually(t, "the issuer's keys", func() bool { return s.whoami(s.withToken(i.token(claims()))) == jane })
	for name, test := range map[string]struct{ token, want string }{
		"accepted":       {i.token(claims()), jane},
		"of a file":      {"s3cret", "alice [dev system:authenticated]"},
		"expired":        {i.token(claims("exp", time.Now().Add(-time.Hour).Unix())), ""},
		"other audience": {i.token(claims("aud", "others")), ""},
		"other domain":   {i.token(claims("hd", "example.org")), ""},
		"not verified":   {i.token(claims("email_verified", false)), ""},
		"no name":        {i.token(map[string]any{"hd": "example.com"}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := s.whoami(s.withToken(test.token)); got != test.want {
				t.Errorf("the token is %q's, want %q", got, test.want)
			}
			if got := s.reviewed(test.token); got != test.want {
				t.Errorf("a review says %q, want %q", got, test.want)
			}
		})
	}
	before := i.token(claims("n", 1))
	i.rotate("second")
	if got := s.whoami(s.withToken(i.token(claims()))); got != jane {
		t.Errorf("after the key has changed: %q", got)
	}
	if got := s.whoami(s.withToken(before)); got != "" {
		t.Errorf("a token of a key that is gone: %q", got)
	}
	if !strings.Contains(s.metrics(), "\napiserver_authentication_jwt_authenticator_latency_seconds_count") {
		t.Error("/metrics does not count JWTs")
	}
}

const issuerConfiguration = `
apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer: {url: %q, audiences: [cluster], certificateAuthority: %q}
  claimValidationRules:
  - {expression: "claims.team != 'none'", message: no team}
  claimMappings:
    username: {expression: "'%s' + claims.sub"}
    groups: {expression: "['team:' + claims.team]"}
    uid: {claim: uid}
    extra: [{key: example.com/team, valueExpression: claims.team}]
  userValidationRules:
  - {expression: "!user.username.startsWith('system:')", message: reserved}
anonymous:
  enabled: %t
  conditions: [{path: /livez}]
`

func TestAuthenticationConfig(t *testing.T) {
	i := startIssuer(t)
	configuration := func(prefix string, anonymous bool) string {
		text := fmt.Sprintf(issuerConfiguration, i.server.URL, i.authority(), prefix, anonymous)
		if !anonymous {
			text = strings.ReplaceAll(text, "  conditions: [{path: /livez}]\n", "")
		}
		return text
	}
	path := file(t, "authentication.yaml", configuration("dev:", true))
	s := startWhole(t, "--authentication-config="+path)
	as := func(sub, team string) string {
		return s.whoami(s.withToken(i.token(map[string]any{"sub": sub, "team": team, "uid": "7"})))
	}
	eventually(t, "the issuer's keys", func() bool { return as("jane", "a") == "dev:jane [team:a system:authenticated]" })
	if got := as("jane", "none"); got != "" {
		t.Errorf("against a rule about claims: %q", got)
	}
	get := func(path string) int {
		code, _ := s.do(s.config(), "GET", path, "")
		return code
	}
	if live, version := get("/livez"), get("/version"); live != http.StatusOK || version != http.StatusUnauthorized {
		t.Errorf("without a credential: /livez %d, /version %d", live, version)
	}

	change := func(content string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	change(configuration("system:", false))
	eventually(t, "the configuration that reserves every name", func() bool { return as("jane", "a") == "" })
	if live := get("/livez"); live != http.StatusUnauthorized {
		t.Errorf("without a credential when it is forbidden: /livez %d", live)
	}
	change("kind: AuthenticationConfiguration\napiVersion: apiserver.config.k8s.io/v1\njwt: [{}]\n")
	failure := "\napiserver_authentication_config_controller_automatic_reloads_total{apiserver_id_hash="
	eventually(t, "the refusal of a faulty configuration", func() bool {
		_, rest, found := strings.Cut(s.metrics(), failure)
		return found && strings.Contains(strings.SplitN(rest, "\n", 2)[0], `status="failure"`)
	})
	change(configuration("ops:", true))
	eventually(t, "the last configuration", func() bool { return as("jane", "a") == "ops:jane [team:a system:authenticated]" })

	ofIssuer := fmt.Sprintf("jwt_issuer_hash=\"sha256:%x\"", sha256.Sum256([]byte(i.server.URL)))
	hasKeys := func() bool {
		for line := range strings.Lines(s.metrics()) {
			if strings.HasPrefix(line, "apiserver_authentication_jwt_authenticator_jwks_fetch_last_key_set_info{") && strings.Contains(line, ofIssuer) {
				return true
			}
		}
		return false
	}
	if !hasKeys() {
		t.Error("there are no metrics of the issuer's keys")
	}
	change("kind: AuthenticationConfiguration\napiVersion: apiserver.config.k8s.io/v1\nanonymous: {enabled: true}\n")
	eventually(t, "the removal of the metrics of the issuer", func() bool { return !hasKeys() })
}

func TestAuthenticationConfigErrors(t *testing.T) {
	f := apiserver.NewOptions()
	f.Authentication.ConfigFile = file(t, "authentication.yaml", `
apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer: {url: "http://example.com", audiences: []}
  claimMappings: {username: {expression: "claims."}}
`)
	err := refusal(t, f)
	for _, field := range []string{"jwt[0].issuer.url", "jwt[0].issuer.audiences", "jwt[0].claimMappings.username.expression"} {
		if !strings.Contains(err, field) {
			t.Errorf("%s\nnames no %s", err, field)
		}
	}
}

func TestTokenWebhook(t *testing.T) {
	_, webhook := startWebhook(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review authenticationv1.TokenReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if name, ok := strings.CutPrefix(review.Spec.Token, "token-of-"); ok {
			review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: name, Groups: []string{review.APIVersion}}}
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(review); err != nil {
			t.Error(err)
		}
	}))
	s := startWhole(t, "--authentication-token-webhook-config-file="+webhook, "--authentication-token-webhook-version=v1", "--anonymous-auth=false")
	for token, want := range map[string]string{"token-of-joe": "joe [authentication.k8s.io/v1 system:authenticated]", "other": ""} {
		if got := s.whoami(s.withToken(token)); got != want {
			t.Errorf("%s is %q's, want %q", token, got, want)
		}
		if got := s.reviewed(token); got != want {
			t.Errorf("a review says %s is %q's, want %q", token, got, want)
		}
	}
	if got := s.whoami(s.config()); got != "" {
		t.Errorf("without a credential: %q", got)
	}
}

func TestAuthenticationFlags(t *testing.T) {
	f := apiserver.NewOptions()
	f.Authentication.OIDCClientID, f.Authentication.ConfigFile = "cluster", "authentication.yaml"
	f.Authentication.OIDCSigningAlgs, f.Authentication.Webhook.Version = []string{"HS256"}, "v2"
	err := fmt.Sprint(f.Validate())
	for _, want := range []string{"oidc-issuer-url and oidc-client-id must be specified together", "mutually exclusive", "--oidc-signing-algs=HS256", "--authentication-token-webhook-version=v2"} {
		if !strings.Contains(err, want) {
			t.Errorf("%s, want %s", err, want)
		}
	}
}

// A review of an unknown token says so.
func TestReviewOfAnUnknownToken(t *testing.T) {
	s := startWhole(t)
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: "unknown"}}
	review, err := s.clientset(s.admin()).AuthenticationV1().TokenReviews().Create(t.Context(), review, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if review.Status.Authenticated || review.Status.Error != "invalid bearer token" {
		t.Errorf("got %+v", review.Status)
	}
}
