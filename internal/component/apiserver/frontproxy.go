package apiserver

import (
	"crypto/tls"
	"errors"
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/server/options"

	"github.com/coracle-io/coracle/internal/apiserver/authn"
	"github.com/coracle-io/coracle/internal/pki"
)

// FrontProxyFlags are the API server's flags about front proxies: whose
// requests name their users in headers, and as which of them this server
// speaks to aggregated ones.
type FrontProxyFlags struct {
	options.RequestHeaderAuthenticationOptions
	CertFile string
	KeyFile  string
}

func newFrontProxyFlags() FrontProxyFlags {
	usual := authn.DefaultFrontProxy(nil)
	return FrontProxyFlags{RequestHeaderAuthenticationOptions: options.RequestHeaderAuthenticationOptions{
		UsernameHeaders: usual.UsernameHeaders, UIDHeaders: usual.UIDHeaders, GroupHeaders: usual.GroupHeaders, ExtraHeaderPrefixes: usual.ExtraHeaderPrefixes,
	}}
}

func (f *FrontProxyFlags) addFlags(fs *pflag.FlagSet) {
	f.AddFlags(fs)
	fs.StringVar(&f.CertFile, "proxy-client-cert-file", f.CertFile, "certificate to show to aggregated API servers; the default is one of the cluster's own front proxy authority")
	fs.StringVar(&f.KeyFile, "proxy-client-key-file", f.KeyFile, "key of --proxy-client-cert-file")
}

func (f *FrontProxyFlags) validate() []error {
	errs := f.Validate()
	if (f.CertFile == "") != (f.KeyFile == "") {
		errs = append(errs, errors.New("--proxy-client-cert-file and --proxy-client-key-file go together: give both or neither"))
	}
	return errs
}

// trusting is who may name users, by certificates of an authority. With the
// cluster's own authority, only this cluster's servers may unless names are
// given.
func (f *FrontProxyFlags) trusting(ca trusted) *authn.FrontProxy {
	names := f.AllowedNames
	if f.ClientCAFile == "" && len(names) == 0 {
		names = authn.DefaultFrontProxy(nil).AllowedNames
	}
	return &authn.FrontProxy{
		CA: ca.verify, AllowedNames: names,
		UsernameHeaders: f.UsernameHeaders, UIDHeaders: f.UIDHeaders, GroupHeaders: f.GroupHeaders, ExtraHeaderPrefixes: f.ExtraHeaderPrefixes,
	}
}

// identity is what this server shows to aggregated ones.
func (f *FrontProxyFlags) identity(keys *pki.Directory) (func(*tls.CertificateRequestInfo) (*tls.Certificate, error), error) {
	if f.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(f.CertFile, f.KeyFile)
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
