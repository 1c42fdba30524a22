// Package authn authenticates requests by the methods of upstream's API server,
// in the same order:
//
//	front-proxy headers ─ client certificate ─ bearer token ─ anonymous
//	                                            ├ token file
//	                                            ├ service account
//	                                            ├ bootstrap token
//	                                            ├ issuers of JWTs
//	                                            └ webhook
//
// The first method that recognises its credential decides. An invalid credential
// fails the request even if anonymous requests are allowed.
package authn

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/anonymous"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	"k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/token/tokenfile"
	tokenunion "k8s.io/apiserver/pkg/authentication/token/union"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/apiserver/authn/serviceaccount"
	"github.com/coracle-io/coracle/internal/apiserver/objects"
)

// Config configures the accepted credentials. Methods that are not set are off.
type Config struct {
	// ClientCA verifies client certificates.
	ClientCA x509.VerifyOptionFunc
	// FrontProxy accepts user names in headers from holders of certain
	// certificates.
	FrontProxy *FrontProxy
	// ServiceAccounts accepts service account tokens.
	ServiceAccounts *serviceaccount.Options
	// BootstrapTokens accepts bootstrap tokens, which are secrets in
	// kube-system.
	BootstrapTokens bool
	// TokenFile is a CSV file: token,user,uid,"group1,group2".
	TokenFile string
	// Anonymous accepts requests without a credential as system:anonymous.
	// Configured, if set, decides instead.
	Anonymous bool
	// Configured applies an AuthenticationConfiguration.
	Configured *Configured
	// Webhook authenticates tokens that no other method recognises.
	Webhook *Webhook

	// CertificateLeft, if set, is called for each request that is authenticated
	// by a client certificate, with the certificate's remaining lifetime.
	CertificateLeft func(time.Duration)

	Audiences authenticator.Audiences
	Objects   objects.Source
	Clock     clock.PassiveClock
}

// Authenticators are the configured methods, for requests and for TokenReviews.
type Authenticators struct {
	Request authenticator.Request
	Token   authenticator.Token // nil if there are no tokens
}

// New builds the authenticators of a configuration.
func New(c Config) (*Authenticators, error) {
	var tokens []authenticator.Token
	if c.TokenFile != "" {
		file, err := tokenfile.NewCSV(c.TokenFile)
		if err != nil {
			return nil, fmt.Errorf("--token-auth-file %s: %w", c.TokenFile, err)
		}
		tokens = append(tokens, authenticator.WrapAudienceAgnosticToken(c.Audiences, file))
	}
	if c.ServiceAccounts != nil {
		tokens = append(tokens, serviceaccount.NewAuthenticator(*c.ServiceAccounts))
	}
	if c.BootstrapTokens {
		tokens = append(tokens, authenticator.WrapAudienceAgnosticToken(c.Audiences, newBootstrapTokens(c.Objects, c.Clock)))
	}
	if c.Configured != nil {
		tokens = append(tokens, c.Configured)
	}
	if c.Webhook != nil {
		asked, err := newWebhook(c.Webhook, c.Audiences)
		if err != nil {
			return nil, err
		}
		tokens = append(tokens, asked)
	}

	var requests []authenticator.Request
	if c.FrontProxy != nil {
		requests = append(requests, authenticator.WrapAudienceAgnosticRequest(c.Audiences, c.FrontProxy.authenticator()))
	}
	if c.ClientCA != nil {
		requests = append(requests, authenticator.WrapAudienceAgnosticRequest(c.Audiences, newCertificates(c.ClientCA, c.Clock, c.CertificateLeft)))
	}
	out := &Authenticators{}
	if len(tokens) > 0 {
		token := tokenunion.New(tokens...)
		requests = append(requests, bearertoken.New(token), websocket.NewProtocolAuthenticator(token))
		out.Token = group.NewTokenGroupAdder(token, []string{user.AllAuthenticated})
	}
	switch {
	case len(requests) > 0:
		out.Request = group.NewAuthenticatedGroupAdder(union.New(requests...))
	case !c.Anonymous:
		return nil, errors.New("no way to authenticate is configured: give --client-ca-file or --token-auth-file, or allow --anonymous-auth")
	}
	var anyone authenticator.Request
	switch {
	case c.Configured != nil:
		anyone = c.Configured
	case c.Anonymous:
		anyone = anonymous.NewAuthenticator(nil)
	default:
		return out, nil
	}
	if out.Request == nil {
		out.Request = anyone
	} else {
		out.Request = union.NewFailOnError(out.Request, anyone)
	}
	return out, nil
}

// Audiences returns a request that must be authenticated for the API server's
// own audiences.
func Audiences(r *http.Request, audiences authenticator.Audiences) *http.Request {
	if len(audiences) == 0 {
		return r
	}
	return r.WithContext(authenticator.WithAudiences(r.Context(), audiences))
}
