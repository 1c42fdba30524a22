package main

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/bootstraptoken"
)

func TestBadTokens(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"create abcdef", "coracle: abcdef: want a token such as abcdef.0123456789abcdef, of 6 and 16 lower-case letters and digits\n"},
		{"create --ttl=-1s", "coracle: --ttl=-1s: want 0 or more\n"},
		{"create --usages=joining", "coracle: usage \"joining\": want signing or authentication\n"},
		{"create --groups=admins", "coracle: group \"admins\": want a name such as system:bootstrappers:kubeadm:default-node-token\n"},
		{"create --print-kubeconfig -o json", "coracle: --print-kubeconfig, --print-discover-command and --output: give one of them\n"},
		{"discover api.example --token=abc", "coracle: --token: want a token such as abcdef.0123456789abcdef\n"},
		{"discover api.example --token=abcdef.0123456789abcdef", "coracle: --discovery-token-ca-cert-hash is missing: coracle token create prints it\n"},
		{"discover api.example --token=abcdef.0123456789abcdef --discovery-token-ca-cert-hash=md5:00", "coracle: --discovery-token-ca-cert-hash=md5:00: want sha256: and 64 hexadecimal digits in lower case\n"},
		{"create -o xml", "coracle: --output=xml: want json or yaml, or nothing for text\n"},
		{"delete abc", "coracle: abc: want the ID of a token, such as abcdef, or a token\n"},
		{"delete", "coracle: no argument: want coracle token delete TOKEN...\n"},
		{"rotate", "coracle: unknown command \"rotate\" for coracle token: want create, list, delete or discover\n"},
		{"", "coracle: want one of coracle token create, list, delete and discover\n"},
	} {
		if _, got, code := execute(t, append([]string{"token"}, strings.Fields(c.line)...)...); got != c.want || code != exitFailed {
			t.Errorf("%s: code %d, %q, want %q", c.line, code, got, c.want)
		}
	}
}

func TestServerAt(t *testing.T) {
	for endpoint, want := range map[string]string{
		"api.example": "https://api.example:6443", "192.0.2.1:443": "https://192.0.2.1:443", "[2001:db8::1]:443": "https://[2001:db8::1]:443", "2001:db8::1": "https://[2001:db8::1]:6443",
		"": "", ":443": "", "api.example:": "", "https://api.example": "", "api/example": "", "user@example": "",
	} {
		got, err := serverAt(endpoint)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %s, %v", endpoint, got, err)
		}
	}
}

func TestTokenList(t *testing.T) {
	token := func(id string, change func(*bootstraptoken.BootstrapToken)) v1.Secret {
		b := bootstraptoken.BootstrapToken{Token: bootstraptoken.Token{ID: id, Secret: "0123456789abcdef"}}
		change(&b)
		return *b.ToSecret()
	}
	damaged := token("cccccc", func(*bootstraptoken.BootstrapToken) {})
	damaged.Data["token-secret"] = []byte("short")
	var reported []string
	list := tokensIn([]v1.Secret{
		token("bbbbbb", func(b *bootstraptoken.BootstrapToken) {
			b.Usages, b.Description = []string{"signing"}, "with \x1b[2J\ncontrols"
		}),
		damaged,
		token("aaaaaa", func(b *bootstraptoken.BootstrapToken) {
			b.Expires, b.Usages, b.Groups = time.Now().Add(-time.Hour), []string{"authentication"}, []string{"system:bootstrappers:a", "system:bootstrappers:b"}
		}),
	}, func(err error) { reported = append(reported, err.Error()) })
	var out strings.Builder
	list.WriteText(&out)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[1], "aaaaaa.") || !strings.HasSuffix(lines[1], "system:bootstrappers:a,system:bootstrappers:b") ||
		strings.Join(strings.Fields(lines[2]), " ") != "bbbbbb.0123456789abcdef <forever> <never> signing with [2J controls <none>" {
		t.Errorf("%s", out.String())
	}
	if len(reported) != 1 || !strings.Contains(reported[0], "bootstrap-token-cccccc") {
		t.Errorf("%q", reported)
	}
}
