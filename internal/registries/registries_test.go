package registries

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the expected files in testdata")

// TestHosts shows the files that containerd gets.
func TestHosts(t *testing.T) {
	f, err := Parse(`
mirrors:
  docker.io:
    endpoint: ["https://mirror.example:5000", "http://10.0.0.1/v2/hub"]
  "*":
    endpoint: [https://mirror.example:5000]
configs:
  mirror.example:5000:
    auth: {username: puller, password: 'se"cret'}
    tls: {ca_file: /etc/ca.crt, cert_file: /etc/me.crt, key_file: /etc/me.key}
  registry-1.docker.io:
    auth: {auth: dXNlcjpzZWNyZXQ=}
  plain.example:
    tls: {insecure_skip_verify: true}
  localhost:5000:
    auth: {username: me, password: mine}
`)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, h := range f.Hosts() {
		got.WriteString("-- " + h.Directory + " --\n" + h.Content)
	}
	const golden = "testdata/hosts.txt"
	if *rewrite {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("hosts (-want +got; if that is meant: -rewrite):\n%s", diff)
	}
	again, err := Parse(f.String())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(f, again); diff != "" {
		t.Errorf("parsed again (-want +got):\n%s", diff)
	}
}

// TestEveryWrongFieldIsNamed checks that one error names all that is wrong.
func TestEveryWrongFieldIsNamed(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "registries.yaml")
	for name, content := range map[string]string{
		"no.crt": "not a certificate",
		"registries.yaml": `
mirrors:
  docker.io/library:
    endpoint: [mirror.example, "ftp://a.example", "https://u:p@b.example", "https://c.example?x=1", "https://fine.example"]
  b.example:
    rewrite: {"^x": "y"}
    endpoints: [https://c.example]
configs:
  https://c.example: {}
  a.example: {auth: {username: u}}
  b.example: {auth: {auth: "%"}}
  d.example: {auth: {identity_token: t}}
  e.example: {tls: {cert_file: a}}
  f.example: {tls: {ca_file: no.crt}}
  g.example: {tls: {ca_file: absent.crt}, timeout: 5s}
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, err := Read(path)
	if err == nil {
		t.Fatal("no error")
	}
	want := `unknown field "configs.g.example.timeout"
unknown field "mirrors.b.example.endpoints"
mirrors["b.example"].rewrite: rewriting is not supported: give the path in the endpoint, such as https://mirror.example/v2/hub
mirrors["docker.io/library"]: want HOST, HOST:PORT or "*"
mirrors["docker.io/library"].endpoint[0]: "mirror.example": want a URL such as https://mirror.example:5000
mirrors["docker.io/library"].endpoint[1]: "ftp://a.example": want a URL such as https://mirror.example:5000
mirrors["docker.io/library"].endpoint[2]: "https://xxxxx@b.example": want the login in configs, not in the URL
mirrors["docker.io/library"].endpoint[3]: "https://c.example?x=1": want a URL without a query
configs["a.example"].auth: want username and password
configs["b.example"].auth.auth: want USER:PASSWORD in base64
configs["d.example"].auth: tokens are not supported: want username and password, in which most registries take a token, too
configs["e.example"].tls: cert_file and key_file go together
configs["https://c.example"]: want HOST or HOST:PORT
configs["f.example"].tls.ca_file: DIR/no.crt: want certificates in PEM form
configs["g.example"].tls.ca_file: open DIR/absent.crt: no such file or directory`
	if diff := cmp.Diff(want, strings.ReplaceAll(err.Error(), dir, "DIR")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestNoRegistriesFile(t *testing.T) {
	for content, want := range map[string]string{
		"":                         "",
		"{}":                       "",
		"mirrors: [a]":             "mirrors: want fields, not a list",
		"mirrors:\n  a: {}\n\tb: ": "want YAML: ",
		"mirrors: {a: {}, a: {}}":  "want YAML: ",
	} {
		f, err := Parse(content)
		if want == "" && (err != nil || f.String() != "") || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, %v; want %q", content, f, err, want)
		}
	}
	if _, err := Read("absent.yaml"); err == nil {
		t.Error("no error for a file that does not exist")
	}
}

// TestSummaryHasNoLogin checks what is shown of a file that changes.
func TestSummaryHasNoLogin(t *testing.T) {
	a := "configs: {a.example: {auth: {username: u, password: first}}}"
	b := strings.Replace(a, "first", "second", 1)
	if x, y := Summary(a), Summary(b); x == y || strings.Contains(x, "first") || !strings.HasPrefix(x, "a.example (") {
		t.Errorf("%q and %q", x, y)
	}
	if got := Summary(""); got != "" {
		t.Errorf("of nothing: %q", got)
	}
}

func TestAddMirror(t *testing.T) {
	f := &File{}
	for mirror, want := range map[string]string{
		"docker.io":             "want REGISTRY=URL",
		"docker.io=mirror":      `mirrors["docker.io"].endpoint[0]: "mirror": want a URL`,
		"a/b=https://a.example": `mirrors["a/b"]: want HOST`,
		"a=https://u:p=w@b c":   `mirrors["a"].endpoint[0]: "https://xxxxx@b c": want a URL`,
		"a=u:p@b":               `mirrors["a"].endpoint[0]: "xxxxx@b": want a URL`,
		"u:p@a=https://b":       `mirrors["xxxxx@a"]: want HOST`,
	} {
		if err := (&File{}).AddMirror(mirror); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v", mirror, err)
		}
	}
	for _, mirror := range []string{"docker.io=https://a.example", "docker.io=https://b.example", "*=http://c.example"} {
		if err := f.AddMirror(mirror); err != nil {
			t.Error(err)
		}
	}
	if diff := cmp.Diff(map[string]Mirror{"docker.io": {Endpoints: []string{"https://a.example", "https://b.example"}}, "*": {Endpoints: []string{"http://c.example"}}}, f.Mirrors); diff != "" {
		t.Error(diff)
	}
}

// A mirror that is given twice is one: containerd refuses to read a file with a
// table twice, and would go without the mirrors, certificates and logins in it.
func TestMirrorGivenTwice(t *testing.T) {
	f, err := Parse(`mirrors: {docker.io: {endpoint: ["https://a.example", "https://b.example/v2/hub/", "https://a.example/", "https://b.example/v2/hub"]}}`)
	if err != nil {
		t.Fatal(err)
	}
	for _, mirror := range []string{"docker.io=https://b.example/v2/hub", "docker.io=https://a.example/", "docker.io=https://c.example"} {
		if err := f.AddMirror(mirror); err != nil {
			t.Fatal(err)
		}
	}
	content := f.Hosts()[0].Content
	for _, endpoint := range []string{"https://a.example", "https://b.example/v2/hub", "https://c.example"} {
		if n := strings.Count(content, `[host."`+endpoint+`"]`); n != 1 {
			t.Errorf("%d tables of %s in\n%s", n, endpoint, content)
		}
	}
	if n := len(f.Mirrors["docker.io"].Endpoints); n != 5 {
		t.Errorf("%d endpoints; want that only c.example was added", n)
	}
}

// TestTypesAreNamedAsInYAML checks errors in the types of values.
func TestTypesAreNamedAsInYAML(t *testing.T) {
	for content, want := range map[string]string{
		"- mirrors": "want fields such as mirrors and configs, not a list",
		"mirrors: {docker.io: {endpoint: https://a.example}}":    "endpoint: want a list, not text",
		"mirrors: [docker.io]":                                   "mirrors: want fields, not a list",
		"configs: {a.example: {tls: {insecure_skip_verify: 1}}}": "insecure_skip_verify: want true or false, not a number",
		"configs: {a.example: {auth: {password: 1234}}}":         "password: want text, not a number",
	} {
		_, err := Parse(content)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "json:") || strings.Contains(err.Error(), "registries.") {
			t.Errorf("%s: error %v, want %q", content, err, want)
		}
	}
}

// TestMirrorsOfDockerHub checks that a mirror of Docker Hub may be under any of its
// names.
func TestMirrorsOfDockerHub(t *testing.T) {
	f, err := Parse("mirrors: {index.docker.io: {endpoint: [https://a.example]}, docker.io: {endpoint: [https://b.example]}}")
	if err != nil {
		t.Fatal(err)
	}
	hosts := f.Hosts()
	if len(hosts) != 1 || hosts[0].Directory != "docker.io" || !strings.Contains(hosts[0].Content, "https://a.example") || !strings.Contains(hosts[0].Content, "https://b.example") {
		t.Errorf("hosts %+v", hosts)
	}
}
