package authn

import (
	"net/http"
	"slices"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/request/x509"

	"github.com/coracle-io/coracle/internal/apiserver/headers"
)

// FrontProxy configures which clients may name the user of a request in its
// headers, and which headers (the --requestheader flags).
type FrontProxy struct {
	CA x509.VerifyOptionFunc // --requestheader-client-ca-file
	// AllowedNames are the common names of accepted certificates. An empty list
	// accepts every certificate of CA.
	AllowedNames        []string
	UsernameHeaders     []string
	UIDHeaders          []string
	GroupHeaders        []string
	ExtraHeaderPrefixes []string
}

// DefaultFrontProxy returns a FrontProxy with the usual headers.
func DefaultFrontProxy(ca x509.VerifyOptionFunc) *FrontProxy {
	return &FrontProxy{
		CA:                  ca,
		AllowedNames:        []string{"front-proxy-client"},
		UsernameHeaders:     []string{"X-Remote-User"},
		UIDHeaders:          []string{"X-Remote-Uid"},
		GroupHeaders:        []string{"X-Remote-Group"},
		ExtraHeaderPrefixes: []string{"X-Remote-Extra-"},
	}
}

// Headers returns the headers that identify the user: those configured, and the
// usual ones.
func (f *FrontProxy) Headers() headers.Set {
	return headers.FrontProxy().With(slices.Concat(f.UsernameHeaders, f.UIDHeaders, f.GroupHeaders), f.ExtraHeaderPrefixes)
}

// authenticator verifies certificates only for requests that name a user, so
// that others cost nothing.
func (f *FrontProxy) authenticator() authenticator.Request {
	verified := headerrequest.NewDynamicVerifyOptionsSecure(f.CA,
		headerrequest.StaticStringSlice(f.AllowedNames),
		headerrequest.StaticStringSlice(f.UsernameHeaders),
		headerrequest.StaticStringSlice(f.UIDHeaders),
		headerrequest.StaticStringSlice(f.GroupHeaders),
		headerrequest.StaticStringSlice(f.ExtraHeaderPrefixes))
	return authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		for _, h := range f.UsernameHeaders {
			if req.Header.Get(h) != "" {
				return verified.AuthenticateRequest(req)
			}
		}
		return nil, false, nil
	})
}
