package apiserver

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/server/options"
	certutil "k8s.io/client-go/util/cert"

	"github.com/coracle-io/coracle/internal/apiserver/authn"
	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/flagvalue"
	"github.com/coracle-io/coracle/internal/pki"
)

// FrontProxyOptions say which front proxies may name users in headers, and with
// which certificate this server proxies to aggregated API servers.
type FrontProxyOptions struct {
	options.RequestHeaderAuthenticationOptions
	CertFile string
	KeyFile  string
}

func newFrontProxyOptions() FrontProxyOptions {
	usual := authn.DefaultFrontProxy(nil)
	return FrontProxyOptions{RequestHeaderAuthenticationOptions: options.RequestHeaderAuthenticationOptions{
		UsernameHeaders: usual.UsernameHeaders, UIDHeaders: usual.UIDHeaders, GroupHeaders: usual.GroupHeaders, ExtraHeaderPrefixes: usual.ExtraHeaderPrefixes,
	}}
}

func (o *FrontProxyOptions) addFlags(fs *pflag.FlagSet) {
	o.AddFlags(fs)
	fs.StringVar(&o.CertFile, "proxy-client-cert-file", o.CertFile, "client certificate for aggregated API servers; the default is one signed by the cluster's front proxy authority")
	fs.StringVar(&o.KeyFile, "proxy-client-key-file", o.KeyFile, "key of --proxy-client-cert-file")
	flagvalue.Is(fs, flagvalue.File, "requestheader-client-ca-file", "proxy-client-cert-file", "proxy-client-key-file")
	flagvalue.Is(fs, flagvalue.Header, "requestheader-extra-headers-prefix", "requestheader-group-headers", "requestheader-uid-headers", "requestheader-username-headers")
}

func (o *FrontProxyOptions) validate(gates *feature.Set) []error {
	var errs []error
	headers := o.RequestHeaderAuthenticationOptions
	headers.UIDHeaders = o.uidHeaders(gates)
	if headers.UIDHeaders == nil && len(o.UIDHeaders) > 0 && !slices.Equal(o.UIDHeaders, authn.DefaultFrontProxy(nil).UIDHeaders) {
		errs = append(errs, fmt.Errorf("--requestheader-uid-headers requires the %q feature to be enabled", feature.RemoteRequestHeaderUID))
	}
	errs = append(errs, headers.Validate()...)
	if (o.CertFile == "") != (o.KeyFile == "") {
		errs = append(errs, errors.New("--proxy-client-cert-file and --proxy-client-key-file go together: give both or neither"))
	}
	return errs
}

// trusting returns the front proxies whose certificates ca signed. Without
// --requestheader-client-ca-file, only this cluster's servers are trusted unless
// names are given.
func (o *FrontProxyOptions) trusting(ca trusted, gates *feature.Set) *authn.FrontProxy {
	names := o.AllowedNames
	if o.ClientCAFile == "" && len(names) == 0 {
		names = authn.DefaultFrontProxy(nil).AllowedNames
	}
	return &authn.FrontProxy{
		CA: ca.verify, AllowedNames: names,
		UsernameHeaders: o.UsernameHeaders, UIDHeaders: o.uidHeaders(gates), GroupHeaders: o.GroupHeaders, ExtraHeaderPrefixes: o.ExtraHeaderPrefixes,
	}
}

// uidHeaders returns the headers that name UIDs: none with RemoteRequestHeaderUID off.
func (o *FrontProxyOptions) uidHeaders(gates *feature.Set) []string {
	if !gates.Enabled(feature.RemoteRequestHeaderUID) {
		return nil
	}
	return o.UIDHeaders
}

// checkAuthorities refuses front proxies without names whose authority also
// signs clients: any client could then name users in headers.
func (o *FrontProxyOptions) checkAuthorities(clients, proxies []byte) error {
	if o.ClientCAFile == "" || len(o.AllowedNames) > 0 || !shareCertificate(clients, proxies) {
		return nil
	}
	return errors.New("--requestheader-client-ca-file and --client-ca-file contain overlapping certificates; --requestheader-allowed-names must be specified " +
		"to ensure regular client certificates cannot set authenticating proxy headers for arbitrary users")
}

// shareCertificate reports whether a certificate is in both PEM bundles.
func shareCertificate(a, b []byte) bool {
	first, err := certutil.ParseCertsPEM(a)
	if err != nil {
		return false
	}
	second, err := certutil.ParseCertsPEM(b)
	return err == nil && slices.ContainsFunc(first, func(c *x509.Certificate) bool { return slices.ContainsFunc(second, c.Equal) })
}

// identity returns the client certificate for aggregated API servers.
func (o *FrontProxyOptions) identity(keys *pki.Directory) (func(*tls.CertificateRequestInfo) (*tls.Certificate, error), error) {
	if o.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("--proxy-client-cert-file: %w", err)
		}
		return func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }, nil
	}
	issued, err := keys.Issue(pki.FrontProxyClient())
	if err != nil {
		return nil, err
	}
	return issued.GetClientCertificate, nil
}
