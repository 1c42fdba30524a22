// Package registries reads the file that says how a cluster reaches image
// registries: their mirrors, certificates and logins. The form of the file is
// k3s's registries.yaml:
//
//	mirrors:
//	  docker.io:
//	    endpoint: [https://mirror.example:5000]
//	configs:
//	  mirror.example:5000:
//	    auth: {username: puller, password: secret}
//	    tls: {ca_file: mirror-ca.crt}
//
// Hosts turns it into containerd's hosts.toml files.
package registries

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// MaxSize bounds a file, in bytes.
const MaxSize = 256 << 10

// File is the content of a registries file.
type File struct {
	// Mirrors says where images are pulled from, by the registry in their names.
	// "*" is for all registries without an entry of their own.
	Mirrors map[string]Mirror `json:"mirrors,omitempty"`
	// Configs says how to talk to a registry or a mirror, by HOST or HOST:PORT.
	Configs map[string]Config `json:"configs,omitempty"`
}

// Mirror has the mirrors of a registry.
type Mirror struct {
	// Endpoints are URLs that are tried in order, and then the registry itself.
	// A path is used as it stands; without one it is /v2.
	Endpoints []string `json:"endpoint,omitempty"`
	// Rewrites are refused: containerd has none.
	Rewrites map[string]string `json:"rewrite,omitempty"`
}

// Config says how to talk to a host.
type Config struct {
	Auth *Auth `json:"auth,omitempty"`
	TLS  *TLS  `json:"tls,omitempty"`
}

// Auth is a login: a user's name and password, or both in base64 as USER:PASSWORD.
type Auth struct {
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"`
	Auth     string `json:"auth,omitempty"`
	// IdentityToken and RegistryToken are refused: only pull secrets and
	// image pull have them.
	IdentityToken string `json:"identity_token,omitempty"`
	RegistryToken string `json:"registry_token,omitempty"`
}

// TLS says how a host is verified, and with which certificate a client reports
// to it.
type TLS struct {
	CAFile             string `json:"ca_file,omitempty"`
	CertFile           string `json:"cert_file,omitempty"`
	KeyFile            string `json:"key_file,omitempty"`
	InsecureSkipVerify bool   `json:"insecure_skip_verify,omitempty"`
}

// Read reads a registries file and the files that it names, whose relative paths
// begin at its directory. The error names every wrong field.
func Read(path string) (*File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	if !info.Mode().IsRegular() || info.Size() > MaxSize {
		return nil, fmt.Errorf("want a file of at most %d KiB", MaxSize>>10)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	dir, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	return ParseIn(dir, string(raw))
}

// ParseIn parses the content of a registries file as Read does: relative paths
// begin at dir, which is absolute.
func ParseIn(dir, content string) (*File, error) {
	f, err := Parse(content)
	if f == nil {
		return nil, err
	}
	return f, errors.Join(err, f.open(dir))
}

// Parse parses the content of a registries file. The error names every wrong
// field. The file is nil if the content cannot be decoded.
func Parse(content string) (*File, error) {
	raw, err := yaml.YAMLToJSONStrict([]byte(content))
	if err != nil {
		return nil, fmt.Errorf("want YAML: %w", err)
	}
	f := &File{}
	unknown, err := kjson.UnmarshalStrict(raw, f)
	if err != nil {
		return nil, typeError(raw, err)
	}
	return f, errors.Join(append(unknown, f.check())...)
}

// typeError returns the error of a file that has a value of a wrong type, in the
// terms of YAML. It returns err if that is not what is wrong.
func typeError(raw []byte, err error) error {
	wrong := (*json.UnmarshalTypeError)(nil)
	if !errors.As(json.Unmarshal(raw, &File{}), &wrong) {
		return err
	}
	want := "text"
	switch wrong.Type.Kind() {
	case reflect.Map, reflect.Struct:
		want = "fields"
	case reflect.Slice:
		want = "a list"
	case reflect.Bool:
		want = "true or false"
	}
	field := wrong.Field
	if field == "" {
		return fmt.Errorf("want %s such as mirrors and configs, not %s", want, yamlKind(wrong.Value))
	}
	return fmt.Errorf("%s: want %s, not %s", field, want, yamlKind(wrong.Value))
}

// yamlKind names a kind of JSON value as YAML's users know it.
func yamlKind(kind string) string {
	switch kind {
	case "object":
		return "fields"
	case "array":
		return "a list"
	case "string":
		return "text"
	case "bool":
		return "true or false"
	}
	return "a " + kind
}

// AddMirror adds REGISTRY=URL, as the last mirror of a registry, unless the
// registry has it.
func (f *File) AddMirror(mirror string) error {
	registry, endpoint, ok := strings.Cut(mirror, "=")
	if !ok {
		return errors.New("want REGISTRY=URL, such as docker.io=https://mirror.example")
	}
	if f.Mirrors == nil {
		f.Mirrors = map[string]Mirror{}
	}
	m := f.Mirrors[registry]
	if slices.ContainsFunc(m.Endpoints, func(other string) bool { return withoutSlash(other) == withoutSlash(endpoint) }) {
		return f.check()
	}
	m.Endpoints = append(slices.Clone(m.Endpoints), endpoint)
	f.Mirrors[registry] = m
	return f.check()
}

// check returns an error that names every wrong field.
func (f *File) check() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, registry := range slices.Sorted(maps.Keys(f.Mirrors)) {
		field := fmt.Sprintf("mirrors[%q]", withoutLogin(registry))
		if registry != anyRegistry && !isHost(registry) {
			wrong(`%s: want HOST, HOST:PORT or "*"`, field)
		}
		m := f.Mirrors[registry]
		if len(m.Rewrites) > 0 {
			wrong("%s.rewrite: rewriting is not supported: give the path in the endpoint, such as https://mirror.example/v2/hub", field)
		}
		for i, e := range m.Endpoints {
			if problem := endpointProblem(e); problem != "" {
				wrong("%s.endpoint[%d]: %q: %s", field, i, withoutLogin(e), problem)
			}
		}
	}
	for _, host := range slices.Sorted(maps.Keys(f.Configs)) {
		field := fmt.Sprintf("configs[%q]", withoutLogin(host))
		if !isHost(host) {
			wrong("%s: want HOST or HOST:PORT", field)
		}
		c := f.Configs[host]
		if c.Auth != nil {
			if problem := c.Auth.problem(); problem != "" {
				wrong("%s.auth%s", field, problem)
			}
		}
		if c.TLS != nil && (c.TLS.CertFile == "") != (c.TLS.KeyFile == "") {
			wrong("%s.tls: cert_file and key_file go together", field)
		}
	}
	return errors.Join(errs...)
}

const anyRegistry = "*"

// isHost reports whether s is HOST or HOST:PORT.
func isHost(s string) bool {
	host := s
	if h, port, err := net.SplitHostPort(s); err == nil {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return false
		}
		host = h
	}
	if net.ParseIP(strings.Trim(host, "[]")) != nil {
		return true
	}
	return host != "" && !strings.HasPrefix(host, ".") && !strings.ContainsFunc(host, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '-' && r != '.' && r != '_'
	})
}

func endpointProblem(endpoint string) string {
	u, err := url.Parse(endpoint)
	switch {
	case err != nil || u.Scheme != "https" && u.Scheme != "http" || !isHost(u.Host):
		return "want a URL such as https://mirror.example:5000"
	case u.User != nil:
		return "want the login in configs, not in the URL"
	case u.RawQuery != "" || u.Fragment != "":
		return "want a URL without a query"
	}
	return ""
}

// problem says which field of a login is wrong, or nothing.
func (a *Auth) problem() string {
	_, _, err := a.login()
	switch {
	case a.IdentityToken != "" || a.RegistryToken != "":
		return ": tokens are not supported: want username and password, in which most registries take a token, too"
	case a.Auth != "" && (a.Username != "" || a.Password != ""):
		return ": want username and password, or auth"
	case a.Auth != "" && err != nil:
		return ".auth: want USER:PASSWORD in base64"
	case a.Auth == "" && (a.Username == "" || a.Password == ""):
		return ": want username and password"
	case strings.Contains(a.Username, ":"):
		return ".username: want a name without a colon"
	}
	return ""
}

// withoutLogin returns a URL for messages, with its login made unreadable.
func withoutLogin(endpoint string) string {
	at := strings.LastIndex(endpoint, "@")
	if at < 0 {
		return endpoint
	}
	scheme, _, has := strings.Cut(endpoint[:at], "://")
	if !has {
		return "xxxxx" + endpoint[at:]
	}
	return scheme + "://xxxxx" + endpoint[at:]
}

// login returns the user's name and password.
func (a *Auth) login() (user, password string, err error) {
	if a.Auth == "" {
		return a.Username, a.Password, nil
	}
	raw, err := base64.StdEncoding.DecodeString(a.Auth)
	if err != nil {
		return "", "", err
	}
	user, password, ok := strings.Cut(string(raw), ":")
	if !ok || user == "" {
		return "", "", errors.New("no user")
	}
	return user, password, nil
}

// open makes paths absolute, below dir, and returns an error for each file that
// cannot be used.
func (f *File) open(dir string) error {
	var errs []error
	for _, host := range slices.Sorted(maps.Keys(f.Configs)) {
		t := f.Configs[host].TLS
		if t == nil {
			continue
		}
		for _, path := range []*string{&t.CAFile, &t.CertFile, &t.KeyFile} {
			if *path != "" && !filepath.IsAbs(*path) {
				*path = filepath.Join(dir, *path)
			}
		}
		field := fmt.Sprintf("configs[%q].tls", host)
		if t.CAFile != "" {
			if pem, err := os.ReadFile(t.CAFile); err != nil {
				errs = append(errs, fmt.Errorf("%s.ca_file: %w", field, err))
			} else if !x509.NewCertPool().AppendCertsFromPEM(pem) {
				errs = append(errs, fmt.Errorf("%s.ca_file: %s: want certificates in PEM form", field, t.CAFile))
			}
		}
		if t.CertFile != "" && t.KeyFile != "" {
			if _, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile); err != nil {
				errs = append(errs, fmt.Errorf("%s.cert_file: %w", field, err))
			}
		}
	}
	return errors.Join(errs...)
}

// String returns the file in a form in which equal files are equal, for Parse.
func (f *File) String() string {
	raw, err := yaml.Marshal(f)
	if err != nil {
		return "" // strings and maps of them can always be encoded
	}
	if text := string(raw); text != "{}\n" {
		return text
	}
	return ""
}
