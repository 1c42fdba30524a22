package bootstraptoken

import (
	"reflect"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]Token{
		"abcdef.0123456789abcdef":   {"abcdef", "0123456789abcdef"},
		"ABCDEF.0123456789abcdef":   {},
		"abcdef.0123456789abcde":    {},
		"abcdef.0123456789abcdef\n": {},
		"abcdef":                    {},
		"":                          {},
	} {
		if got, ok := Parse(text); got != want || ok != (want != Token{}) {
			t.Errorf("%q: %v, %v", text, got, ok)
		}
	}
	for text, want := range map[string]string{"abcdef.0123456789abcdef": "abcdef", "abcdef": "abcdef", "abcdefg": "", "abcdef.x": ""} {
		if got, ok := ParseID(text); ok != (want != "") || ok && got != want {
			t.Errorf("%q: %q, %v", text, got, ok)
		}
	}
}

func TestNewTokensDiffer(t *testing.T) {
	a, b := New(), New()
	for _, token := range []Token{a, b} {
		if read, ok := Parse(token.String()); !ok || read != token {
			t.Errorf("%s is read as %v", token, read)
		}
	}
	if a.ID == b.ID || a.Secret == b.Secret {
		t.Errorf("%s and %s", a, b)
	}
}

// The signature of a token has the form that kubeadm expects: the header with the token's ID, no
// payload, and the HMAC.
func TestSignature(t *testing.T) {
	const want = "eyJhbGciOiJIUzI1NiIsImtpZCI6IjA3NDAxYiJ9..JnSALe4tLEKPxCVc8fNoTukM_oSUtMcAUL2Uh-EY7nU"
	if got := (Token{"07401b", "f395accd246ae52d"}).Sign("kind: Config"); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestSecrets(t *testing.T) {
	full := &BootstrapToken{
		Token: Token{"abcdef", "0123456789abcdef"}, Description: "for the new rack", Expires: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC),
		Usages: []string{Authentication, Signing}, Groups: []string{"system:bootstrappers:a", DefaultGroup},
	}
	s := full.ToSecret()
	want := map[string]string{
		"token-id": "abcdef", "token-secret": "0123456789abcdef", "description": "for the new rack", "expiration": "2030-01-02T03:04:05Z",
		"usage-bootstrap-authentication": "true", "usage-bootstrap-signing": "true",
		"auth-extra-groups": "system:bootstrappers:a,system:bootstrappers:kubeadm:default-node-token",
	}
	got := map[string]string{}
	for key, value := range s.Data {
		got[key] = string(value)
	}
	if s.Namespace != "kube-system" || s.Name != "bootstrap-token-abcdef" || s.Type != "bootstrap.kubernetes.io/token" || !reflect.DeepEqual(got, want) {
		t.Errorf("%s %s/%s: %v", s.Type, s.Namespace, s.Name, got)
	}
	for _, b := range []*BootstrapToken{full, {Token: full.Token, Usages: []string{Signing}}} {
		if read, err := FromSecret(b.ToSecret()); err != nil || !reflect.DeepEqual(read, b) {
			t.Errorf("%+v is read as %+v, %v", b, read, err)
		}
	}
}

func TestSecretsWithoutAToken(t *testing.T) {
	for name, change := range map[string]func(s *v1.Secret){
		"another name":   func(s *v1.Secret) { s.Name = "bootstrap-token-fedcba" },
		"no secret":      func(s *v1.Secret) { delete(s.Data, SecretKey) },
		"bad expiration": func(s *v1.Secret) { s.Data[ExpirationKey] = []byte("tomorrow") },
	} {
		b := BootstrapToken{Token: Token{"abcdef", "0123456789abcdef"}}
		s := b.ToSecret()
		change(s)
		if read, err := FromSecret(s); err == nil || !strings.Contains(err.Error(), metav1.NamespaceSystem+"/"+s.Name) {
			t.Errorf("%s: %+v, %v", name, read, err)
		}
	}
}

func TestValidate(t *testing.T) {
	for want, b := range map[string]BootstrapToken{
		"":                   {Usages: []string{Signing, Authentication}, Groups: []string{DefaultGroup}},
		"no usage":           {},
		`usage "joining"`:    {Usages: []string{"joining"}},
		`group "admins"`:     {Usages: []string{Authentication}, Groups: []string{"admins"}},
		"they need the usag": {Usages: []string{Signing}, Groups: []string{DefaultGroup}},
	} {
		if err := b.Validate(); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%+v: %v, want %q", b, err, want)
		}
	}
}
