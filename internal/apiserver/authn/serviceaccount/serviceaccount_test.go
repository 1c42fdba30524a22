package serviceaccount

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/apiserver/objects/objectstest"
	_ "github.com/coracle-io/coracle/internal/bubble"
	"github.com/coracle-io/coracle/internal/pki"
)

const issuer = "https://kubernetes.default.svc.cluster.local"

type fixture struct {
	objects *objectstest.Memory
	keys    *pki.TokenKeys
	account *corev1.ServiceAccount
	pod     *corev1.Pod
	issuer  *Issuer
	auth    *Authenticator
}

func newFixture(t *testing.T, dir string) *fixture {
	t.Helper()
	d, err := pki.Open(dir, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{objects: objectstest.NewMemory(), keys: d.TokenKeys()}
	f.account = &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "default", UID: "sa-uid"}}
	f.pod = &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "frontend", UID: "pod-uid"},
		Spec:       corev1.PodSpec{ServiceAccountName: "default", NodeName: "node1"},
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1", UID: "node-uid"}}
	f.objects.Put(objects.ServiceAccounts, f.account).Put(objects.Pods, f.pod).Put(objects.Nodes, node)
	f.objects.Put(objects.Secrets, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "s", UID: "secret-uid"}})
	o := Options{Issuers: []string{issuer}, Audiences: []string{issuer}, Keys: f.keys, Objects: f.objects,
		Clock: clock.RealClock{}, ExtendExpiration: true, MaxExpiration: 48 * time.Hour}
	f.issuer, f.auth = NewIssuer(o), NewAuthenticator(o)
	return f
}

func (f *fixture) token(t *testing.T, spec authenticationv1.TokenRequestSpec) string {
	t.Helper()
	out, err := f.issuer.Answer(t.Context(), f.account, &authenticationv1.TokenRequest{Spec: spec})
	if err != nil {
		t.Fatal(err)
	}
	return out.Status.Token
}

func podRef() *authenticationv1.BoundObjectReference {
	return &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "frontend", UID: "pod-uid"}
}

func (f *fixture) refused(t *testing.T, token, because string) {
	t.Helper()
	_, ok, err := f.auth.AuthenticateToken(t.Context(), token)
	if ok || err == nil || !strings.Contains(err.Error(), because) {
		t.Errorf("ok %v, error %v, want one about %q", ok, err, because)
	}
}

func (f *fixture) accepted(t *testing.T, token string) *authenticator.Response {
	t.Helper()
	r, ok, err := f.auth.AuthenticateToken(t.Context(), token)
	if !ok || err != nil {
		t.Fatalf("refused: %v", err)
	}
	return r
}

func TestPodTokenClaims(t *testing.T) {
	f := newFixture(t, t.TempDir())
	r := f.accepted(t, f.token(t, authenticationv1.TokenRequestSpec{BoundObjectRef: podRef()}))
	if r.User.GetName() != "system:serviceaccount:web:default" || r.User.GetUID() != "sa-uid" {
		t.Errorf("user %s, uid %s", r.User.GetName(), r.User.GetUID())
	}
	if got := strings.Join(r.User.GetGroups(), " "); got != "system:serviceaccounts system:serviceaccounts:web" {
		t.Errorf("groups %s", got)
	}
	extra := r.User.GetExtra()
	for key, want := range map[string]string{
		"authentication.kubernetes.io/pod-name":  "frontend",
		"authentication.kubernetes.io/pod-uid":   "pod-uid",
		"authentication.kubernetes.io/node-name": "node1",
		"authentication.kubernetes.io/node-uid":  "node-uid",
	} {
		if len(extra[key]) != 1 || extra[key][0] != want {
			t.Errorf("%s: %v, want %s", key, extra[key], want)
		}
	}
	if id := extra["authentication.kubernetes.io/credential-id"]; len(id) != 1 || !strings.HasPrefix(id[0], "JTI=") {
		t.Errorf("credential id %v", id)
	}
}

func TestTokenIsInvalidWithoutItsBoundObject(t *testing.T) {
	for name, test := range map[string]struct {
		ref    *authenticationv1.BoundObjectReference
		change func(*fixture)
		want   string
	}{
		"service account deleted": {nil, func(f *fixture) { f.objects.Delete(objects.ServiceAccounts, "web", "default") }, "not found"},
		"service account recreated": {nil, func(f *fixture) {
			sa := f.account.DeepCopy()
			sa.UID = "other"
			f.objects.Put(objects.ServiceAccounts, sa)
		}, "service account UID (other) does not match claim (sa-uid)"},
		"pod deleted": {podRef(), func(f *fixture) { f.objects.Delete(objects.Pods, "web", "frontend") }, "invalidated"},
		"pod long under deletion": {podRef(), func(f *fixture) {
			p := f.pod.DeepCopy()
			at := metav1.NewTime(time.Now().Add(-2 * time.Minute))
			p.DeletionTimestamp = &at
			f.objects.Put(objects.Pods, p)
		}, "invalidated"},
		"secret deleted": {&authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Secret", Name: "s"},
			func(f *fixture) { f.objects.Delete(objects.Secrets, "web", "s") }, "invalidated"},
		"node deleted": {&authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: "node1"},
			func(f *fixture) { f.objects.Delete(objects.Nodes, "", "node1") }, "invalidated"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, t.TempDir())
			token := f.token(t, authenticationv1.TokenRequestSpec{BoundObjectRef: test.ref})
			f.accepted(t, token)
			test.change(f)
			f.refused(t, token, test.want)
		})
	}
}

func TestInvalidRequests(t *testing.T) {
	f := newFixture(t, t.TempDir())
	short, long := int64(599), int64(1<<32+1)
	other := f.pod.DeepCopy()
	other.Name, other.Spec.ServiceAccountName = "other", "builder"
	f.objects.Put(objects.Pods, other)
	for name, test := range map[string]struct {
		spec authenticationv1.TokenRequestSpec
		is   func(error) bool
		want string
	}{
		"too short":     {authenticationv1.TokenRequestSpec{ExpirationSeconds: &short}, apierrors.IsInvalid, "may not specify a duration less than 10 minutes"},
		"too long":      {authenticationv1.TokenRequestSpec{ExpirationSeconds: &long}, apierrors.IsInvalid, "may not specify a duration larger than 2^32 seconds"},
		"no such pod":   {authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "none"}}, apierrors.IsNotFound, `pods "none" not found`},
		"foreign pod":   {authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "other"}}, apierrors.IsBadRequest, `cannot bind token for serviceaccount "default" to pod running with different serviceaccount name.`},
		"other uid":     {authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "frontend", UID: "x"}}, apierrors.IsConflict, "does not match the UID in record"},
		"other objects": {authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "ConfigMap", Name: "c"}}, apierrors.IsBadRequest, "cannot bind token to object of type /v1, Kind=ConfigMap"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := f.issuer.Answer(t.Context(), f.account, &authenticationv1.TokenRequest{Spec: test.spec})
			if !test.is(err) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

func TestRequestNamesServiceAccount(t *testing.T) {
	f := newFixture(t, t.TempDir())
	for name, test := range map[string]struct {
		about metav1.ObjectMeta
		want  string
	}{
		"the account":   {metav1.ObjectMeta{Name: "default", UID: "sa-uid"}, ""},
		"another one":   {metav1.ObjectMeta{Name: "x"}, `TokenRequest.authentication.k8s.io "default" is invalid: metadata.name: Invalid value: "x": must match the service account name if specified`},
		"one that went": {metav1.ObjectMeta{UID: "x"}, `Operation cannot be fulfilled on TokenRequest.authentication.k8s.io "default": the UID in the token request (x) does not match the UID of the service account (sa-uid)`},
	} {
		out, err := f.issuer.Answer(t.Context(), f.account, &authenticationv1.TokenRequest{ObjectMeta: test.about})
		switch {
		case err != nil && err.Error() != test.want:
			t.Errorf("%s: %v", name, err)
		case err == nil && (test.want != "" || out.Name != "default" || out.UID != "sa-uid"):
			t.Errorf("%s: %v", name, out)
		}
	}
}

// Without the check of UIDs, a request that names another one is answered, and its
// client warned.
func TestRequestWithAnotherUID(t *testing.T) {
	f := newFixture(t, t.TempDir())
	f.issuer.o.OtherUIDs = true
	warned := &warnings{}
	out, err := f.issuer.Answer(warning.WithWarningRecorder(t.Context(), warned), f.account, &authenticationv1.TokenRequest{ObjectMeta: metav1.ObjectMeta{UID: "x"}})
	if err != nil {
		t.Fatal(err)
	}
	want := "the UID in the token request (x) does not match the UID of the service account (sa-uid) but TokenRequestServiceAccountUIDValidation is not enabled."
	if out.UID != "x" || out.Status.Token == "" || len(warned.texts) != 1 || !strings.HasPrefix(warned.texts[0], want) {
		t.Errorf("answer %+v, warnings %q", out, warned.texts)
	}
}

// warnings records warnings.
type warnings struct{ texts []string }

func (w *warnings) AddWarning(_, text string) { w.texts = append(w.texts, text) }

func TestLifetimes(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, dir)
		day, warn := int64(72*3600), int64(warnPeriod)
		plain := f.token(t, authenticationv1.TokenRequestSpec{})
		capped := f.token(t, authenticationv1.TokenRequestSpec{ExpirationSeconds: &day})
		foreign := f.token(t, authenticationv1.TokenRequestSpec{ExpirationSeconds: &warn, Audiences: []string{"vault"}, BoundObjectRef: podRef()})
		extended, err := f.issuer.Answer(t.Context(), f.account, &authenticationv1.TokenRequest{
			Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &warn, BoundObjectRef: podRef()}})
		if err != nil {
			t.Fatal(err)
		}
		if got := time.Until(extended.Status.ExpirationTimestamp.Time); got != warnPeriod*time.Second {
			t.Errorf("the warnings are %v", got)
		}
		f.refused(t, foreign, `token audiences ["vault"] is invalid for the target audiences`)
		vault := authenticator.WithAudiences(t.Context(), []string{"vault"})
		if _, ok, err := f.auth.AuthenticateToken(vault, foreign); !ok {
			t.Error(err)
		}
		time.Sleep(time.Hour + 59*time.Second)
		f.accepted(t, plain) // the clocks of servers differ
		time.Sleep(2 * time.Second)
		f.refused(t, plain, "expired")
		f.accepted(t, capped)
		time.Sleep(48 * time.Hour)
		f.refused(t, capped, "expired")
		if _, ok, _ := f.auth.AuthenticateToken(vault, foreign); ok {
			t.Error("only the API server's own audience is extended")
		}
		f.accepted(t, extended.Status.Token)
		time.Sleep(365 * 24 * time.Hour)
		f.refused(t, extended.Status.Token, "expired")
	})
}

// Tokens of an API server whose clock is ahead are accepted, up to a minute.
func TestClockAhead(t *testing.T) {
	f := newFixture(t, t.TempDir())
	for ahead, want := range map[time.Duration]string{30 * time.Second: "", 2 * time.Minute: "service account token is not valid yet"} {
		f.issuer.o.Clock = clocktesting.NewFakePassiveClock(time.Now().Add(ahead))
		token := f.token(t, authenticationv1.TokenRequestSpec{})
		if want == "" {
			f.accepted(t, token)
		} else {
			f.refused(t, token, want)
		}
	}
}

func TestKeyRotation(t *testing.T) {
	f := newFixture(t, t.TempDir())
	before := f.token(t, authenticationv1.TokenRequestSpec{})
	f.accepted(t, before)
	if err := f.keys.Rotate(); err != nil {
		t.Fatal(err)
	}
	f.accepted(t, before)
	f.accepted(t, f.token(t, authenticationv1.TokenRequestSpec{}))
	document, err := f.issuer.KeysDocument()
	if err != nil {
		t.Fatal(err)
	}
	var set struct{ Keys []map[string]string }
	if err := json.Unmarshal(document, &set); err != nil {
		t.Fatal(err)
	}
	if len(set.Keys) != 2 || set.Keys[0]["alg"] != "ES256" || set.Keys[0]["use"] != "sig" {
		t.Errorf("%s", document)
	}
	stranger := newFixture(t, t.TempDir())
	f.refused(t, stranger.token(t, authenticationv1.TokenRequestSpec{}), "not known")
}

func TestTokensOfOtherIssuersAreIgnored(t *testing.T) {
	f := newFixture(t, t.TempDir())
	for _, token := range []string{"", "abcdef.0123456789abcdef", "a.b.c"} {
		if _, ok, err := f.auth.AuthenticateToken(t.Context(), token); ok || err != nil {
			t.Errorf("%q: ok %v, %v", token, ok, err)
		}
	}
}

func TestRefreshOfMissingObjects(t *testing.T) {
	f := newFixture(t, t.TempDir())
	token := f.token(t, authenticationv1.TokenRequestSpec{BoundObjectRef: podRef()})
	f.objects.Delete(objects.Pods, "web", "frontend")
	f.auth.o.Refresh = func(context.Context) error {
		f.objects.Put(objects.Pods, f.pod)
		return nil
	}
	f.accepted(t, token)
}

func TestConfigurationDocument(t *testing.T) {
	f := newFixture(t, t.TempDir())
	got, err := f.issuer.ConfigurationDocument("", "10.0.0.1:6443")
	if err != nil {
		t.Fatal(err)
	}
	want := `{"issuer":"https://kubernetes.default.svc.cluster.local","jwks_uri":"https://10.0.0.1:6443/openid/v1/jwks","response_types_supported":["id_token"],"subject_types_supported":["public"],"id_token_signing_alg_values_supported":["ES256"]}`
	if string(got) != want {
		t.Errorf("%s", got)
	}
}

// Clients choose the size of their tokens, so the cache is bounded by size.
func TestTokenCacheIsBounded(t *testing.T) {
	f := newFixture(t, t.TempDir())
	made := 0
	accept := func(audience int) {
		t.Helper()
		made++
		token := f.token(t, authenticationv1.TokenRequestSpec{Audiences: []string{issuer, strconv.Itoa(made) + strings.Repeat("x", audience)}})
		for range 2 {
			if r := f.accepted(t, token); len(r.Audiences) != 1 || r.Audiences[0] != issuer {
				t.Errorf("audiences %.100q", r.Audiences)
			}
		}
	}
	accept(10)
	accept(900 << 10)
	if len(f.auth.verified) != 1 {
		t.Errorf("%d tokens are cached, want the short one", len(f.auth.verified))
	}
	const long = 10 << 10 // longer in base64
	for range maxVerifiedBytes/long + 1 {
		accept(long)
		if f.auth.verifiedBytes > maxVerifiedBytes || len(f.auth.verified)*long > f.auth.verifiedBytes+2*long {
			t.Fatalf("%d tokens of %d bytes are cached", len(f.auth.verified), f.auth.verifiedBytes)
		}
	}
	if len(f.auth.verified) > maxVerifiedBytes/long/2 {
		t.Errorf("%d tokens are cached", len(f.auth.verified))
	}
}
