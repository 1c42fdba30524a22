package apiserver_test

import (
	"crypto/tls"
	"net"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/pki"
)

// others is the keys and certificates of somebody else.
func others(t *testing.T) *pki.Directory {
	t.Helper()
	d, err := pki.Open(t.TempDir(), clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// issue makes a certificate and returns its files, separated by a comma.
func issue(t *testing.T, d *pki.Directory, p pki.Profile) string {
	t.Helper()
	c, err := d.Issue(p)
	if err != nil {
		t.Fatal(err)
	}
	cert, key := c.Files()
	return cert + "," + key
}

// handshake returns the TLS state of a client that connects to the server with
// c.
func (s *whole) handshake(c *tls.Config) (tls.ConnectionState, error) {
	s.t.Helper()
	c.InsecureSkipVerify = true //nolint:gosec // it is looked at what the server shows
	conn, err := tls.Dial("tcp", strings.TrimPrefix(s.url, "https://"), c)
	if err != nil {
		return tls.ConnectionState{}, err
	}
	defer func() { _ = conn.Close() }()
	return conn.ConnectionState(), nil
}

func TestTLSFlags(t *testing.T) {
	d := others(t)
	server := func(name string, dns ...string) string {
		return issue(t, d, pki.Profile{Name: name, CommonName: name, DNSNames: dns, Server: true})
	}
	s := startWhole(t, "--tls-min-version=VersionTLS12", "--tls-cipher-suites=TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
		"--tls-sni-cert-key="+server("extracted", "own.example.com", "one.example.com"),
		"--tls-sni-cert-key="+server("given", "ignored.example.com")+":one.example.com,*.example.com",
		"--tls-sni-cert-key="+issue(t, d, pki.Profile{Name: "address", CommonName: "address", Server: true, IPs: []net.IP{net.IPv4(127, 0, 0, 2)}}))
	for name, want := range map[string]string{
		"own.example.com": "extracted", "one.example.com": "given", "TWO.example.com": "given", "ignored.example.com": "given",
		"a.b.example.com": "kube-apiserver", "kubernetes": "kube-apiserver", "": "kube-apiserver",
	} {
		state, err := s.handshake(&tls.Config{ServerName: name})
		if err != nil {
			t.Fatal(err)
		}
		if got := state.PeerCertificates[0].Subject.CommonName; got != want {
			t.Errorf("who asks for %q is shown the certificate of %s, want %s", name, got, want)
		}
	}
	for suite, want := range map[uint16]bool{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256: true, tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384: false} {
		if _, err := s.handshake(&tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{suite}}); (err == nil) != want {
			t.Errorf("%s: %v", tls.CipherSuiteName(suite), err)
		}
	}
	s = startWhole(t, "--tls-min-version=VersionTLS13", "--tls-curve-preferences=23")
	for curve, want := range map[tls.CurveID]bool{tls.CurveP256: true, tls.X25519: false} {
		if _, err := s.handshake(&tls.Config{CurvePreferences: []tls.CurveID{curve}}); (err == nil) != want {
			t.Errorf("%s: %v", curve, err)
		}
	}
	if _, err := s.handshake(&tls.Config{MaxVersion: tls.VersionTLS12}); err == nil {
		t.Error("TLS 1.2 is spoken below --tls-min-version")
	}
	if code, body := s.do(s.admin(), "GET", "/readyz", ""); code != http.StatusOK {
		t.Errorf("TLS 1.3: %d %s", code, body)
	}
}

func TestFlagsOfServingAreValidated(t *testing.T) {
	for args, want := range map[string][]string{
		"--tls-min-version=VersionSSL3": {"--tls-min-version", "VersionSSL3"},
		"--tls-cipher-suites=TLS_NONE,TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,TLS_NEITHER": {"--tls-cipher-suites", "TLS_NONE", "TLS_NEITHER"},
		"--tls-curve-preferences=23,23":                                     {"--tls-curve-preferences", "duplicate curve preference 23"},
		"--tls-sni-cert-key=/no/cert,/no/key":                               {"--tls-sni-cert-key", "/no/cert"},
		"--proxy-client-cert-file=/no/cert":                                 {"--proxy-client-cert-file and --proxy-client-key-file go together"},
		"--proxy-client-cert-file=/no/cert --proxy-client-key-file=/no/key": {"--proxy-client-cert-file", "/no/cert"},
		"--requestheader-client-ca-file=/no/ca":                             {"--requestheader-client-ca-file", "/no/ca"},
		"--requestheader-username-headers=X-Remote-User,":                   {`empty value in "requestheader-username-headers"`},
		"--client-ca-file=/no/ca":                                           {"--client-ca-file", "/no/ca"},
	} {
		got := refusal(t, commandLine(t, strings.Fields(args)...))
		for _, part := range want {
			if !strings.Contains(got, part) {
				t.Errorf("%s: %s lacks %q", args, got, part)
			}
		}
	}
}

// Clients that the flags trust may name users, in the headers of the flags, and
// aggregated API servers are told so.
func TestFrontProxyFlags(t *testing.T) {
	d := others(t)
	front := func(name string) (cert, key []byte) {
		c, err := d.Issue(pki.Profile{Name: name, CommonName: name, Authority: pki.FrontProxyAuthority, Client: true})
		if err != nil {
			t.Fatal(err)
		}
		return c.PEM()
	}
	s := startWhole(t, "--requestheader-client-ca-file="+d.File("front-proxy-ca.crt"), "--requestheader-allowed-names=gate",
		"--requestheader-username-headers=X-Remote-User,X-Who", "--requestheader-group-headers=X-Remote-Group", "--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--client-ca-file="+d.File("ca.crt"))
	for name, want := range map[string]int{"gate": http.StatusOK, "stranger": http.StatusUnauthorized} {
		c := s.config()
		c.CertData, c.KeyData = front(name)
		if code, body := s.do(c, "GET", "/api/v1/nodes", "", "X-Who", "alice", "X-Remote-Group", "system:masters"); code != want {
			t.Errorf("%s: %d %s, want %d", name, code, body, want)
		}
	}
	if code, _ := s.do(s.admin(), "GET", "/api", ""); code != http.StatusUnauthorized {
		t.Errorf("a client of the authority that --client-ca-file replaces: %d", code)
	}
	admin, err := d.Issue(pki.Admin())
	if err != nil {
		t.Fatal(err)
	}
	c := s.config()
	c.CertData, c.KeyData = admin.PEM()
	published, err := s.clientset(c).CoreV1().ConfigMaps("kube-system").Get(t.Context(), "extension-apiserver-authentication", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"client-ca-file": string(d.Cluster().PEM()), "requestheader-client-ca-file": string(d.FrontProxy().PEM()),
		"requestheader-allowed-names": `["gate"]`, "requestheader-username-headers": `["X-Remote-User","X-Who"]`,
		"requestheader-group-headers": `["X-Remote-Group"]`, "requestheader-extra-headers-prefix": `["X-Remote-Extra-"]`,
	} {
		if published.Data[key] != want {
			t.Errorf("%s is %s, want %s", key, published.Data[key], want)
		}
	}
}
