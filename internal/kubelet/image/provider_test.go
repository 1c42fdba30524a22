package image

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/coracle-io/coracle/internal/kubelet/cri/inmemory/inmemorytest"
	"github.com/coracle-io/coracle/internal/kubelet/files"
)

const providerHead = "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n"

// write writes files into a new directory and returns its path.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil { //nolint:gosec // programs are executable
			t.Fatal(err)
		}
	}
	return dir
}

// plugin returns a program that notes its requests in the file calls beside it
// and answers with a login.
func plugin(keyType, more string) string {
	return `#!/bin/sh
{ cat; echo " $1 $LOGIN"; } >> "$(dirname "$0")/calls"
echo '{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","kind":"CredentialProviderResponse","cacheKeyType":"` + keyType + `"` + more +
		`,"auth":{"*.example.com":{"username":"anyone","password":"any"},"private.example.com/team":{"username":"'$LOGIN'","password":"opensesame"}}}'
`
}

func oneProvider(name string) string {
	return "- name: " + name + "\n  matchImages: ['*.example.com']\n  defaultCacheDuration: 1h\n  apiVersion: credentialprovider.kubelet.k8s.io/v1\n" +
		"  args: [get]\n  env: [{name: LOGIN, value: robot}]\n"
}

// providersOf returns the provider with a program, whose configuration ends with
// the lines more, and the requests that the program has got.
func providersOf(t *testing.T, program string, more ...string) (p *Providers, calls func() []string) {
	t.Helper()
	bin := write(t, map[string]string{"login": program})
	config := filepath.Join(write(t, map[string]string{"config.yaml": providerHead + oneProvider("login") + strings.Join(more, "")}), "config.yaml")
	p, err := ReadProviders(config, bin)
	if err != nil {
		t.Fatal(err)
	}
	return p, func() []string {
		raw, _ := os.ReadFile(filepath.Join(bin, "calls"))
		return strings.Split(strings.TrimSpace(string(raw)), "\n")
	}
}

func TestCredentialProvider(t *testing.T) {
	p, calls := providersOf(t, plugin("Image", ""))
	const name = "private.example.com/team/app:1"
	for range 2 {
		got := p.Credentials(t.Context(), name, nil)
		if len(got) != 2 || got[0].Auth.GetUsername() != "robot" || got[0].Auth.GetPassword() != "opensesame" || got[1].Auth.GetUsername() != "anyone" {
			t.Fatalf("credentials %+v", got)
		}
	}
	if got := p.Credentials(t.Context(), "example.org/app:1", nil); len(got) != 0 {
		t.Errorf("an image that does not match has credentials %+v", got)
	}
	const want = `{"kind":"CredentialProviderRequest","apiVersion":"credentialprovider.kubelet.k8s.io/v1","image":"private.example.com/team/app"} get robot`
	if got := calls(); len(got) != 1 || got[0] != want {
		t.Errorf("requests %q, want one, %q", got, want)
	}
}

// Providers are asked for repositories, by their full names.
func TestRepository(t *testing.T) {
	for name, want := range map[string]string{
		"nginx": "docker.io/library/nginx", "nginx:1": "docker.io/library/nginx", "team/app:1": "docker.io/team/app", "localhost:5000/app:1": "localhost:5000/app",
		"example.com/a/b": "example.com/a/b", "example.com/a@sha256:" + strings.Repeat("a", 64): "example.com/a",
	} {
		if got, err := repository(name); err != nil || got != want {
			t.Errorf("%s: %s (%v), want %s", name, got, err, want)
		}
	}
}

func TestCacheKeysOfCredentialProviders(t *testing.T) {
	images := []string{"a.example.com/one", "a.example.com/one:2", "a.example.com/two:1", "b.example.com/one"} // tags do not count
	for _, test := range []struct {
		key, more string
		calls     int
	}{
		{"Image", "", 3}, {"Registry", "", 2}, {"Global", "", 1}, {"Global", `,"cacheDuration":"0s"`, 4},
	} {
		p, calls := providersOf(t, plugin(test.key, test.more))
		for _, name := range images {
			if len(p.Credentials(t.Context(), name, nil)) == 0 {
				t.Errorf("%s%s: no credentials for %s", test.key, test.more, name)
			}
		}
		if got := calls(); len(got) != test.calls {
			t.Errorf("%s%s: %d requests, want %d", test.key, test.more, len(got), test.calls)
		}
	}
}

// A provider that fails is left out.
func TestCredentialProvidersThatFail(t *testing.T) {
	for name, program := range map[string]string{
		"fails":           "#!/bin/sh\nexit 1\n",
		"no answer":       "#!/bin/sh\n",
		"other kind":      "#!/bin/sh\necho '{\"apiVersion\":\"v1\",\"kind\":\"Pod\"}'\n",
		"no cache key":    plugin("", ""),
		"too much output": plugin("Image", "") + "head -c 2000000 /dev/zero | tr '\\0' ' '\n",
	} {
		p, _ := providersOf(t, program)
		if got := p.Credentials(t.Context(), "a.example.com/one", nil); len(got) != 0 {
			t.Errorf("%s: credentials %+v", name, got)
		}
	}
}

func TestProviderConfigurations(t *testing.T) {
	bin := write(t, map[string]string{"one": "#!/bin/sh\n", "two": "#!/bin/sh\n"})
	both := write(t, map[string]string{"b.yaml": providerHead + oneProvider("one"), "a.yml": providerHead + oneProvider("two"), "notes.txt": "nothing"})
	p, err := ReadProviders(both, bin)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.all) != 2 || p.all[0].config.Name != "two" {
		t.Errorf("the providers of the directory are %+v", p.all)
	}
	tokens := func(attributes string) string {
		return providerHead + oneProvider("one") + "  tokenAttributes: {" + attributes + "}\n"
	}
	for wrong, want := range map[string]string{
		"kind: Pod\napiVersion: v1\n":        "CredentialProviderConfig",
		providerHead + "  []\n":              "at least 1 item",
		providerHead + oneProvider("three"):  "no such program",
		providerHead + oneProvider("../one"): "name must be",
		providerHead + strings.Replace(oneProvider("one"), "*.example.com", "%invalid%", 1):                                                                                                              "matchImages",
		providerHead + strings.Replace(oneProvider("one"), "['*.example.com']", "[]", 1):                                                                                                                 "at least 1 item in matchImages",
		providerHead + strings.Replace(oneProvider("one"), "  defaultCacheDuration: 1h\n", "", 1):                                                                                                        "defaultCacheDuration is required",
		providerHead + strings.Replace(oneProvider("one"), "1h", "-1h", 1):                                                                                                                               "defaultCacheDuration must not be negative",
		providerHead + oneProvider("one") + oneProvider("one"):                                                                                                                                           "not unique",
		providerHead + oneProvider("one") + "  colour: red\n":                                                                                                                                            "colour",
		providerHead + strings.ReplaceAll(oneProvider("one"), "k8s.io/v1", "k8s.io/v9"):                                                                                                                  "apiVersion",
		tokens("cacheType: Token, requireServiceAccount: true"):                                                                                                                                          "tokenAttributes.serviceAccountTokenAudience is required",
		tokens("serviceAccountTokenAudience: a, cacheType: Pod, requireServiceAccount: true"):                                                                                                            "tokenAttributes.cacheType",
		tokens("serviceAccountTokenAudience: a, cacheType: Token"):                                                                                                                                       "tokenAttributes.requireServiceAccount",
		tokens("serviceAccountTokenAudience: a, cacheType: Token, requireServiceAccount: false, requiredServiceAccountAnnotationKeys: [k]"):                                                              "needs requireServiceAccount",
		tokens("serviceAccountTokenAudience: a, cacheType: Token, requireServiceAccount: true, requiredServiceAccountAnnotationKeys: [k], optionalServiceAccountAnnotationKeys: [k]"):                    "twice",
		tokens("serviceAccountTokenAudience: a, cacheType: Token, requireServiceAccount: true, optionalServiceAccountAnnotationKeys: ['a b']"):                                                           "annotation key",
		strings.Replace(tokens("serviceAccountTokenAudience: a, cacheType: Token, requireServiceAccount: true"), "credentialprovider.kubelet.k8s.io/v1", "credentialprovider.kubelet.k8s.io/v1beta1", 1): "only programs with the apiVersion",
	} {
		config := filepath.Join(write(t, map[string]string{"config.yaml": wrong}), "config.yaml")
		if _, err := ReadProviders(config, bin); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "--image-credential-provider-config") {
			t.Errorf("the error is %v, want one about %q, for\n%s", err, want, wrong)
		}
	}
}

// An image that needs credentials is pulled with the credentials of a provider.
// Pods without credentials may use it afterwards, because the provider's
// credentials belong to the node.
func TestPullWithACredentialProvider(t *testing.T) {
	p, _ := providersOf(t, plugin("Image", ""))
	runtime := inmemorytest.New()
	runtime.Images().NeedPassword("private.example.com/team/app:1", "opensesame")
	puller := newPuller(runtime.Images(), 1)
	container := &v1.Container{Name: "app", Image: "private.example.com/team/app:1", ImagePullPolicy: v1.PullIfNotPresent}
	event := func(string, string, string) {}
	if _, err := puller.Ensure(t.Context(), container, "pod", Logins{}, nil, event); err == nil {
		t.Fatal("the image is pulled without a login")
	}
	puller.Forget("pod")
	puller.Providers = p
	if _, err := puller.Ensure(t.Context(), container, "pod", Logins{}, nil, event); err != nil {
		t.Error(err)
	}
}

// tokenAttributes returns lines for oneProvider.
func tokenAttributes(cacheType string) string {
	return "  tokenAttributes: {serviceAccountTokenAudience: registry, cacheType: " + cacheType + ", requireServiceAccount: true,\n" +
		"    requiredServiceAccountAnnotationKeys: [example.com/role], optionalServiceAccountAnnotationKeys: [example.com/zone]}\n"
}

// account returns the service account of a pod whose token is token.
func account(uid types.UID, token string, annotations map[string]string) *Account {
	return &Account{
		Get: func(context.Context) (*v1.ServiceAccount, error) {
			return &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "robot", UID: uid, Annotations: annotations}}, nil
		},
		Token: func(_ context.Context, audience string) (string, error) { return token + " for " + audience, nil },
	}
}

// A provider with tokenAttributes gets the token of the pod's service account and its
// annotations. Its answers hold for the account, or for the token alone.
func TestTokensForCredentialProviders(t *testing.T) {
	const name = "private.example.com/team/app:1"
	role := map[string]string{"example.com/role": "reader", "example.com/other": "o"}
	for cacheType, calls := range map[string]int{"ServiceAccount": 2, "Token": 3} {
		p, requests := providersOf(t, plugin("Image", ""), tokenAttributes(cacheType))
		for what, none := range map[string]*Account{"no account": nil, "no annotation": account("a", "t1", nil)} {
			if got := p.Credentials(t.Context(), name, none); len(got) != 0 {
				t.Errorf("%s: credentials %+v", what, got)
			}
		}
		for _, a := range []*Account{account("a", "t1", role), account("a", "t2", role), account("b", "t3", role), account("b", "t3", role)} {
			got := p.Credentials(t.Context(), name, a)
			if len(got) != 2 || got[0].Auth.GetUsername() != "robot" || got[0].Account.Name != "robot" || got[0].Account.Namespace != "web" || got[0].Account.UID == "" {
				t.Errorf("%s: credentials %+v", cacheType, got)
			}
		}
		const want = `{"kind":"CredentialProviderRequest","apiVersion":"credentialprovider.kubelet.k8s.io/v1","image":"private.example.com/team/app` +
			`","serviceAccountToken":"t1 for registry","serviceAccountAnnotations":{"example.com/role":"reader"}} get robot`
		if got := requests(); len(got) != calls || got[0] != want {
			t.Errorf("%s: requests %q, want %d, first %q", cacheType, got, calls, want)
		}
	}
}

// An image that was pulled for a service account may be used by other pods of the
// account, and not by others.
func TestImageOfAServiceAccount(t *testing.T) {
	const name = "private.example.com/team/app:1"
	role := map[string]string{"example.com/role": "reader"}
	p, _ := providersOf(t, plugin("Image", ""), tokenAttributes("ServiceAccount"))
	runtime := inmemorytest.New()
	runtime.Images().NeedPassword(name, "opensesame")
	puller := newPuller(runtime.Images(), 1)
	puller.Providers = p
	puller.Records = &records{FS: &files.Memory{}, Dir: "/var/lib/kubelet", Policy: kubeletconfig.NeverVerifyPreloadedImages}
	container := &v1.Container{Name: "app", Image: name, ImagePullPolicy: v1.PullIfNotPresent}
	pulled, err := puller.Ensure(t.Context(), container, "pod", Logins{Account: account("a", "t1", role)}, nil, func(string, string, string) {})
	if err != nil {
		t.Fatal(err)
	}
	for what, test := range map[string]struct {
		account *Account
		want    bool
	}{"the account": {account("a", "t2", role), true}, "another account": {account("b", "t3", role), false}, "no account": {nil, false}} {
		if got := puller.allows(t.Context(), name, pulled.GetId(), Logins{Account: test.account}); got != test.want {
			t.Errorf("%s: allowed %t, want %t", what, got, test.want)
		}
	}
}

// A provider does not run for an image that the pod may use anyway.
func TestProvidersAreAskedIfNeeded(t *testing.T) {
	const name = "private.example.com/team/app:1"
	p, requests := providersOf(t, plugin("Image", ""), tokenAttributes("ServiceAccount"))
	runtime := inmemorytest.New()
	runtime.AddImage(name, 1)
	puller := newPuller(runtime.Images(), 1)
	puller.Providers = p
	puller.Records = &records{FS: &files.Memory{}, Dir: "/var/lib/kubelet", Policy: kubeletconfig.NeverVerifyPreloadedImages}
	if !puller.allows(t.Context(), name, "sha256:"+name, Logins{Account: account("a", "t1", map[string]string{"example.com/role": "reader"})}) {
		t.Error("an image that the node had is not allowed")
	}
	if got := strings.Join(requests(), ""); got != "" {
		t.Errorf("the provider was asked %q", got)
	}
}
