package image

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/kubelet/cri/inmemory/inmemorytest"
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

func providersOf(t *testing.T, program string) (p *Providers, calls func() []string) {
	t.Helper()
	bin := write(t, map[string]string{"login": program})
	config := filepath.Join(write(t, map[string]string{"config.yaml": providerHead + oneProvider("login")}), "config.yaml")
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
		got := p.Credentials(t.Context(), name)
		if len(got) != 2 || got[0].Auth.GetUsername() != "robot" || got[0].Auth.GetPassword() != "opensesame" || got[1].Auth.GetUsername() != "anyone" {
			t.Fatalf("credentials %+v", got)
		}
	}
	if got := p.Credentials(t.Context(), "example.org/app:1"); len(got) != 0 {
		t.Errorf("an image that does not match has credentials %+v", got)
	}
	want := `{"kind":"CredentialProviderRequest","apiVersion":"credentialprovider.kubelet.k8s.io/v1","image":"` + name + `"} get robot`
	if got := calls(); len(got) != 1 || got[0] != want {
		t.Errorf("requests %q, want one, %q", got, want)
	}
}

func TestCacheKeysOfCredentialProviders(t *testing.T) {
	images := []string{"a.example.com/one", "a.example.com/one", "a.example.com/two", "b.example.com/one"}
	for _, test := range []struct {
		key, more string
		calls     int
	}{
		{"Image", "", 3}, {"Registry", "", 2}, {"Global", "", 1}, {"Global", `,"cacheDuration":"0s"`, 4},
	} {
		p, calls := providersOf(t, plugin(test.key, test.more))
		for _, name := range images {
			if len(p.Credentials(t.Context(), name)) == 0 {
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
		"too much output": "#!/bin/sh\nhead -c 2000000 /dev/zero\n",
	} {
		p, _ := providersOf(t, program)
		if got := p.Credentials(t.Context(), "a.example.com/one"); len(got) != 0 {
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
	for wrong, want := range map[string]string{
		"kind: Pod\napiVersion: v1\n":                                                   "CredentialProviderConfig",
		providerHead + "  []\n":                                                         "at least 1 item",
		providerHead + oneProvider("three"):                                             "no such program",
		providerHead + oneProvider("../one"):                                            "name must be",
		providerHead + oneProvider("one") + oneProvider("one"):                          "not unique",
		providerHead + oneProvider("one") + "  colour: red\n":                           "colour",
		providerHead + strings.ReplaceAll(oneProvider("one"), "k8s.io/v1", "k8s.io/v9"): "apiVersion",
		providerHead + oneProvider("one") + "  tokenAttributes: {serviceAccountTokenAudience: a, cacheType: Token, requireServiceAccount: true}\n": "tokenAttributes",
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
	if _, err := puller.Ensure(t.Context(), container, "pod", nil, nil, event); err == nil {
		t.Fatal("the image is pulled without a login")
	}
	puller.Forget("pod")
	puller.Providers = p
	if _, err := puller.Ensure(t.Context(), container, "pod", nil, nil, event); err != nil {
		t.Error(err)
	}
}
