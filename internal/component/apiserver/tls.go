package apiserver

import (
	"crypto/tls"
	"fmt"
	"net"
	"strings"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
)

// TLSFlags say how a server speaks TLS, and with which certificate to whom.
type TLSFlags struct {
	MinVersion   string   // "" is TLS 1.2
	CipherSuites []string // none are Go's own choice
	SNI          []cliflag.NamedCertKey
}

func (f *TLSFlags) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&f.MinVersion, "tls-min-version", f.MinVersion, "lowest version of TLS to speak: "+strings.Join(cliflag.TLSPossibleVersions(), ", ")+" (default VersionTLS12)")
	fs.StringSliceVar(&f.CipherSuites, "tls-cipher-suites", f.CipherSuites, "cipher suites to speak up to TLS 1.2; the default is Go's choice; preferred: "+
		strings.Join(cliflag.PreferredTLSCipherNames(), ", ")+"; insecure: "+strings.Join(cliflag.InsecureTLSCipherNames(), ", "))
	fs.Var(cliflag.NewNamedCertKeyArray(&f.SNI), "tls-sni-cert-key", "certificate and key for clients that ask for certain names, as CERT,KEY or CERT,KEY:*.example.com,example.com; without names those of the certificate; may be given several times")
}

func (f *TLSFlags) validate() []error {
	var errs []error
	if _, err := cliflag.TLSVersion(f.MinVersion); err != nil {
		errs = append(errs, fmt.Errorf("--tls-min-version: %w", err))
	}
	for _, name := range f.CipherSuites {
		if _, err := cliflag.TLSCipherSuites([]string{name}); err != nil {
			errs = append(errs, fmt.Errorf("--tls-cipher-suites: %w", err))
		}
	}
	return errs
}

// config serves with what usual returns to clients that no certificate of the
// flags is for. Clients are asked for a certificate of any authority, which is
// not checked: that is the authenticator's work.
func (f *TLSFlags) config(usual certificateFunc) (*tls.Config, error) {
	version, err := cliflag.TLSVersion(f.MinVersion)
	if err != nil {
		return nil, fmt.Errorf("--tls-min-version: %w", err)
	}
	c := &tls.Config{MinVersion: version, GetCertificate: usual, ClientAuth: tls.RequestClientCert, NextProtos: []string{"h2", "http/1.1"}}
	if len(f.CipherSuites) > 0 {
		if c.CipherSuites, err = cliflag.TLSCipherSuites(f.CipherSuites); err != nil {
			return nil, fmt.Errorf("--tls-cipher-suites: %w", err)
		}
	}
	if len(f.SNI) > 0 {
		named, err := loadNamed(f.SNI)
		if err != nil {
			return nil, fmt.Errorf("--tls-sni-cert-key: %w", err)
		}
		c.GetCertificate = named.or(usual)
	}
	return c, nil
}

// certificateFunc is tls.Config.GetCertificate.
type certificateFunc = func(*tls.ClientHelloInfo) (*tls.Certificate, error)

// namedCertificates are certificates by what clients ask for: a name, a
// pattern such as *.example.com, or an address of this server.
type namedCertificates map[string]*tls.Certificate

// loadNamed reads the certificates. Names that were given go before names in
// certificates, and earlier ones before later ones.
func loadNamed(all []cliflag.NamedCertKey) (namedCertificates, error) {
	given, extracted := namedCertificates{}, namedCertificates{}
	for _, one := range all {
		pair, err := tls.LoadX509KeyPair(one.CertFile, one.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", one.String(), err)
		}
		for _, name := range one.Names {
			given.add(name, &pair)
		}
		if len(one.Names) > 0 {
			continue
		}
		for _, name := range pair.Leaf.DNSNames {
			extracted.add(name, &pair)
		}
		for _, ip := range pair.Leaf.IPAddresses {
			extracted.add(ip.String(), &pair)
		}
		if len(pair.Leaf.DNSNames)+len(pair.Leaf.IPAddresses) == 0 {
			extracted.add(pair.Leaf.Subject.CommonName, &pair)
		}
	}
	for name, pair := range extracted {
		given.add(name, pair)
	}
	return given, nil
}

func (n namedCertificates) add(name string, pair *tls.Certificate) {
	name = strings.ToLower(name)
	if n[name] == nil {
		n[name] = pair
	}
}

func (n namedCertificates) or(usual certificateFunc) certificateFunc {
	return func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		name := strings.TrimSuffix(strings.ToLower(hello.ServerName), ".")
		if name == "" { // who asks for an address sends no name
			name, _, _ = net.SplitHostPort(hello.Conn.LocalAddr().String())
		}
		if pair := n[name]; pair != nil {
			return pair, nil
		}
		if _, domain, ok := strings.Cut(name, "."); ok {
			if pair := n["*."+domain]; pair != nil {
				return pair, nil
			}
		}
		return usual(hello)
	}
}
