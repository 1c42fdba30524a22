package authn

import (
	"crypto/tls"
	cryptox509 "crypto/x509"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/apiserver/objects/objectstest"
	"github.com/coracle-io/coracle/internal/pki"
)

func bootstrapSecret(id string, change func(map[string][]byte)) *corev1.Secret {
	data := map[string][]byte{
		"token-id":                       []byte(id),
		"token-secret":                   []byte("0123456789abcdef"),
		"usage-bootstrap-authentication": []byte("true"),
		"auth-extra-groups":              []byte("system:bootstrappers:workers"),
	}
	if change != nil {
		change(data)
	}
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-" + id}, Type: corev1.SecretTypeBootstrapToken, Data: data}
}

// newAuthenticators accepts client certificates, front-proxy headers, a token
// file, bootstrap tokens and anonymous requests.
func newAuthenticators(t *testing.T, dir string, keys *pki.Directory) *Authenticators {
	t.Helper()
	file := filepath.Join(dir, "tokens.csv")
	if err := os.WriteFile(file, []byte("s3cret,alice,7,\"dev,ops\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	expired := func(d map[string][]byte) { d["expiration"] = []byte(time.Now().Add(-time.Hour).Format(time.RFC3339)) }
	memory := objectstest.NewMemory().Put(objects.Secrets,
		bootstrapSecret("abcdef", nil),
		bootstrapSecret("expire", expired),
		bootstrapSecret("groups", func(d map[string][]byte) { d["auth-extra-groups"] = []byte("system:masters") }),
		bootstrapSecret("signer", func(d map[string][]byte) { delete(d, "usage-bootstrap-authentication") }),
	)
	a, err := New(Config{
		ClientCA: keys.Cluster().VerifyOptions, FrontProxy: DefaultFrontProxy(keys.FrontProxy().VerifyOptions),
		TokenFile: file, BootstrapTokens: true, Anonymous: true, Objects: memory, Clock: clock.RealClock{},
	})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestRequests(t *testing.T) {
	dir := t.TempDir()
	keys, err := pki.Open(filepath.Join(dir, "pki"), clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := pki.Open(filepath.Join(dir, "other"), clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	leaf := func(d *pki.Directory, p pki.Profile) *cryptox509.Certificate {
		c, err := d.Issue(p)
		if err != nil {
			t.Fatal(err)
		}
		return c.Leaf()
	}
	a := newAuthenticators(t, dir, keys)
	proxy := leaf(keys, pki.FrontProxyClient())
	admin := leaf(keys, pki.Admin())
	for name, test := range map[string]struct {
		cert   *cryptox509.Certificate
		header http.Header
		want   string // user and groups; "" means refused
	}{
		"nothing":             {want: "system:anonymous system:unauthenticated"},
		"certificate":         {cert: admin, want: "kubernetes-admin system:masters system:authenticated"},
		"foreign certificate": {cert: leaf(stranger, pki.Admin())},
		"certificate before token": {cert: admin, header: http.Header{"Authorization": {"Bearer s3cret"}},
			want: "kubernetes-admin system:masters system:authenticated"},
		"token file":                  {header: http.Header{"Authorization": {"Bearer s3cret"}}, want: "alice dev ops system:authenticated"},
		"unknown token":               {header: http.Header{"Authorization": {"Bearer nothing"}}},
		"bootstrap token":             {header: http.Header{"Authorization": {"Bearer abcdef.0123456789abcdef"}}, want: "system:bootstrap:abcdef system:bootstrappers system:bootstrappers:workers system:authenticated"},
		"wrong secret":                {header: http.Header{"Authorization": {"Bearer abcdef.0000000000000000"}}},
		"expired":                     {header: http.Header{"Authorization": {"Bearer expire.0123456789abcdef"}}},
		"group not allowed":           {header: http.Header{"Authorization": {"Bearer groups.0123456789abcdef"}}},
		"other usage":                 {header: http.Header{"Authorization": {"Bearer signer.0123456789abcdef"}}},
		"front proxy":                 {cert: proxy, header: http.Header{"X-Remote-User": {"bob"}, "X-Remote-Group": {"dev"}}, want: "bob dev system:authenticated"},
		"headers of a user":           {cert: admin, header: http.Header{"X-Remote-User": {"bob"}}, want: "kubernetes-admin system:masters system:authenticated"},
		"headers without certificate": {header: http.Header{"X-Remote-User": {"bob"}}, want: "system:anonymous system:unauthenticated"},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 { // the second response comes from the cache
				r := httptest.NewRequest("GET", "https://127.0.0.1/api", nil)
				r.TLS = &tls.ConnectionState{}
				if test.cert != nil {
					r.TLS.PeerCertificates = []*cryptox509.Certificate{test.cert}
				}
				r.Header = test.header.Clone()
				got, ok, err := a.Request.AuthenticateRequest(r)
				if test.want == "" {
					if ok || err == nil {
						t.Fatalf("let in as %v", got)
					}
					continue
				}
				if !ok {
					t.Fatalf("refused: %v", err)
				}
				if s := strings.Join(append([]string{got.User.GetName()}, got.User.GetGroups()...), " "); s != test.want {
					t.Errorf("%s, want %s", s, test.want)
				}
			}
		})
	}
}

func TestCertificateCacheFollowsTheAuthority(t *testing.T) {
	dir := t.TempDir()
	one, err := pki.Open(filepath.Join(dir, "one"), clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	two, err := pki.Open(filepath.Join(dir, "two"), clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	admin, err := one.Issue(pki.Admin())
	if err != nil {
		t.Fatal(err)
	}
	current := one.Cluster()
	c := newCertificates(func() (cryptox509.VerifyOptions, bool) { return current.VerifyOptions() }, clock.RealClock{}, nil)
	r := httptest.NewRequest("GET", "https://127.0.0.1/", nil)
	r.TLS = &tls.ConnectionState{PeerCertificates: []*cryptox509.Certificate{admin.Leaf()}}
	if _, ok, err := c.AuthenticateRequest(r); !ok {
		t.Fatal(err)
	}
	current = two.Cluster()
	if _, ok, _ := c.AuthenticateRequest(r); ok {
		t.Error("let in by an authority that is not trusted any more")
	}
}

// A cached certificate would keep the whole handshake message in memory.
func TestCertificateCacheFollowsTheConnection(t *testing.T) {
	keys, err := pki.Open(filepath.Join(t.TempDir(), "pki"), clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	admin, err := keys.Issue(pki.Admin())
	if err != nil {
		t.Fatal(err)
	}
	c := newCertificates(keys.Cluster().VerifyOptions, clock.RealClock{}, nil)
	cached := func() int {
		c.mu.RLock()
		defer c.mu.RUnlock()
		return len(c.verified)
	}
	connection := func() {
		leaf, err := cryptox509.ParseCertificate(slices.Clone(admin.Leaf().Raw))
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest("GET", "https://127.0.0.1/", nil)
		r.TLS = &tls.ConnectionState{PeerCertificates: []*cryptox509.Certificate{leaf}}
		before := cached()
		for range 3 {
			if _, ok, err := c.AuthenticateRequest(r); !ok {
				t.Fatal(err)
			}
		}
		if cached() != before+1 {
			t.Errorf("%d certificates are cached, want %d", cached(), before+1)
		}
		runtime.KeepAlive(leaf)
	}
	connection()
	deadline := time.Now().Add(time.Minute)
	for cached() > 0 {
		if time.Now().After(deadline) {
			t.Fatal("the certificate is still cached")
		}
		runtime.GC()
	}
}
