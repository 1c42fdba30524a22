package apiserver

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/coracle-io/coracle/internal/flagvalue"
)

// TLSOptions select the versions, cipher suites and certificates of TLS.
type TLSOptions struct {
	CertFile     string
	KeyFile      string
	MinVersion   string   // "" means TLS 1.2
	CipherSuites []string // none means Go's default
	Curves       []int32  // ids of key exchanges; none means Go's default
	SNI          []cliflag.NamedCertKey
}

func (o *TLSOptions) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.CertFile, "tls-cert-file", o.CertFile, "serving certificate; the default is one of the cluster's own authority")
	fs.StringVar(&o.KeyFile, "tls-private-key-file", o.KeyFile, "key of --tls-cert-file")
	fs.StringVar(&o.MinVersion, "tls-min-version", o.MinVersion, "lowest version of TLS to speak: "+strings.Join(cliflag.TLSPossibleVersions(), ", ")+" (default VersionTLS12)")
	fs.StringSliceVar(&o.CipherSuites, "tls-cipher-suites", o.CipherSuites, "cipher suites to speak up to TLS 1.2; the default is Go's choice; preferred: "+
		strings.Join(cliflag.PreferredTLSCipherNames(), ", ")+"; insecure: "+strings.Join(cliflag.InsecureTLSCipherNames(), ", "))
	fs.Int32SliceVar(&o.Curves, "tls-curve-preferences", o.Curves, "ids of the key exchanges of TLS to speak, as Go numbers them: 23 is P-256, 24 P-384, 25 P-521, 29 X25519, 4588 X25519MLKEM768; the default is Go's choice")
	fs.Var(cliflag.NewNamedCertKeyArray(&o.SNI), "tls-sni-cert-key", "certificate and key for clients that ask for certain names, such as CERT,KEY or CERT,KEY:*.example.com,example.com; without names those of the certificate; may be given several times")
	flagvalue.Is(fs, flagvalue.File, "tls-cert-file", "tls-private-key-file")
	flagvalue.Is(fs, flagvalue.KeyPair, "tls-sni-cert-key")
}

func (o *TLSOptions) validate() []error {
	var errs []error
	if (o.CertFile == "") != (o.KeyFile == "") {
		errs = append(errs, errors.New("--tls-cert-file and --tls-private-key-file go together: give both or neither"))
	}
	if _, err := cliflag.TLSVersion(o.MinVersion); err != nil {
		errs = append(errs, fmt.Errorf("--tls-min-version: %w", err))
	}
	for _, name := range o.CipherSuites {
		if _, err := cliflag.TLSCipherSuites([]string{name}); err != nil {
			errs = append(errs, fmt.Errorf("--tls-cipher-suites: %w", err))
		}
	}
	if _, err := cliflag.TLSCurvePreferences(o.Curves); err != nil {
		errs = append(errs, fmt.Errorf("--tls-curve-preferences: %w", err))
	}
	return errs
}

// config returns the TLS configuration. Clients whose server name matches no SNI
// certificate get the certificate that usual returns. Clients may present a
// certificate of any authority; the authenticator verifies it.
func (o *TLSOptions) config(usual certificateFunc) (*tls.Config, error) {
	version, err := cliflag.TLSVersion(o.MinVersion)
	if err != nil {
		return nil, fmt.Errorf("--tls-min-version: %w", err)
	}
	c := &tls.Config{MinVersion: version, GetCertificate: usual, ClientAuth: tls.RequestClientCert, NextProtos: []string{"h2", "http/1.1"}}
	if len(o.CipherSuites) > 0 {
		if c.CipherSuites, err = cliflag.TLSCipherSuites(o.CipherSuites); err != nil {
			return nil, fmt.Errorf("--tls-cipher-suites: %w", err)
		}
	}
	if c.CurvePreferences, err = cliflag.TLSCurvePreferences(o.Curves); err != nil {
		return nil, fmt.Errorf("--tls-curve-preferences: %w", err)
	}
	if len(o.SNI) > 0 {
		named, err := loadNamed(o.SNI)
		if err != nil {
			return nil, fmt.Errorf("--tls-sni-cert-key: %w", err)
		}
		c.GetCertificate = named.or(usual)
	}
	return c, nil
}

// certificateFunc is tls.Config.GetCertificate.
type certificateFunc = func(*tls.ClientHelloInfo) (*tls.Certificate, error)

// namedCertificates maps server names to certificates: a name, a pattern such as
// *.example.com, or an address of this server.
type namedCertificates map[string]*tls.Certificate

// loadNamed reads the certificates. Given names precede names in certificates,
// and earlier certificates precede later ones.
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
		if name == "" { // clients send no name for an address
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
