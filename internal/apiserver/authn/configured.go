package authn

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	"k8s.io/apiserver/pkg/authentication/request/anonymous"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	tokenunion "k8s.io/apiserver/pkg/authentication/token/union"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"

	"github.com/coracle-io/coracle/internal/amount/celamount"
)

// JWTOptions are the settings of Configured that an AuthenticationConfiguration
// does not contain.
type JWTOptions struct {
	// SigningAlgorithms are the algorithms with which tokens may be signed.
	SigningAlgorithms []string
	// OwnIssuers are the issuers of service account tokens. A configuration
	// must not name them.
	OwnIssuers []string
	Audiences  authenticator.Audiences
	// Anonymous applies if the configuration does not mention anonymous
	// requests.
	Anonymous bool
	// ServerID labels the metrics of this server.
	ServerID string
}

// Configured authenticates by the current AuthenticationConfiguration: tokens
// of its issuers, and requests without a credential.
type Configured struct {
	options JWTOptions
	current atomic.Pointer[configuration]
}

// configuration is one AuthenticationConfiguration with its authenticators.
type configuration struct {
	tokens    authenticator.Token   // nil if there is no issuer
	anonymous authenticator.Request // nil if anonymous requests are refused
	issuers   []oidc.AuthenticatorTokenWithHealthCheck
	urls      []string // of the issuers
	cancel    context.CancelFunc
}

// NewConfigured returns a Configured with a first configuration, whose issuers
// need not be reachable yet. Its goroutines end with ctx.
func NewConfigured(ctx context.Context, c *apiserver.AuthenticationConfiguration, o JWTOptions) (*Configured, error) {
	a := &Configured{options: o}
	first, err := a.build(ctx, c)
	if err != nil {
		return nil, err
	}
	a.current.Store(first)
	return a, nil
}

const (
	// issuerTimeout bounds the time in which the issuers of a new configuration
	// must respond.
	issuerTimeout = time.Minute
	// requestTimeout is how long requests that began under an old configuration
	// may still use it.
	requestTimeout = time.Minute
	// tokenCacheTTL is how long an accepted token is not checked again.
	tokenCacheTTL = 10 * time.Second
)

// Set replaces the configuration once all its issuers respond, and blocks until
// then. On an error the old configuration stays. The metrics of issuers that the
// new one does not have are removed.
func (a *Configured) Set(ctx context.Context, c *apiserver.AuthenticationConfiguration) error {
	next, err := a.build(ctx, c)
	if err != nil {
		return err
	}
	var unhealthy error
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, issuerTimeout, true, func(context.Context) (bool, error) {
		unhealthy = nil
		for _, issuer := range next.issuers {
			unhealthy = errors.Join(unhealthy, issuer.HealthCheck())
		}
		return unhealthy == nil, nil
	})
	if err != nil {
		next.cancel()
		return fmt.Errorf("the issuers do not respond: %w", errors.Join(unhealthy, err))
	}
	before := a.current.Swap(next)
	time.AfterFunc(requestTimeout, before.cancel)
	for _, url := range before.urls {
		if !slices.Contains(next.urls, url) {
			oidc.DeleteJWKSFetchMetrics(url, a.options.ServerID)
		}
	}
	return nil
}

func (a *Configured) build(ctx context.Context, c *apiserver.AuthenticationConfiguration) (*configuration, error) {
	celamount.Bound()
	compiler := authenticationcel.NewDefaultCompiler()
	if err := validation.ValidateAuthenticationConfiguration(compiler, c, a.options.OwnIssuers).ToAggregate(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	built := &configuration{cancel: cancel}
	var tokens []authenticator.Token
	for _, issuer := range c.JWT {
		o := oidc.Options{
			JWTAuthenticator: issuer, Compiler: compiler, SupportedSigningAlgs: a.options.SigningAlgorithms,
			DisallowedIssuers: a.options.OwnIssuers, APIServerID: a.options.ServerID,
		}
		if issuer.Issuer.CertificateAuthority != "" {
			o.CAContentProvider = authority(issuer.Issuer.CertificateAuthority)
		}
		token, err := oidc.New(ctx, o)
		if err != nil {
			cancel()
			return nil, fmt.Errorf("issuer %s: %w", issuer.Issuer.URL, err)
		}
		built.issuers, built.urls = append(built.issuers, token), append(built.urls, issuer.Issuer.URL)
		tokens = append(tokens, authenticator.WrapAudienceAgnosticToken(a.options.Audiences, token))
	}
	if len(tokens) > 0 {
		built.tokens = cache.New(tokenunion.New(tokens...), true, tokenCacheTTL, 0)
	}
	anonymousConfig := c.Anonymous
	if anonymousConfig == nil {
		anonymousConfig = &apiserver.AnonymousAuthConfig{Enabled: a.options.Anonymous}
	}
	if anonymousConfig.Enabled {
		built.anonymous = anonymous.NewAuthenticator(slices.Clone(anonymousConfig.Conditions))
	}
	return built, nil
}

// AuthenticateToken implements authenticator.Token.
func (a *Configured) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	if tokens := a.current.Load().tokens; tokens != nil {
		return tokens.AuthenticateToken(ctx, token)
	}
	return nil, false, nil
}

// AuthenticateRequest implements authenticator.Request for a request without
// a credential.
func (a *Configured) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	if anonymousConfig := a.current.Load().anonymous; anonymousConfig != nil {
		return anonymousConfig.AuthenticateRequest(r)
	}
	return nil, false, nil
}

// authority is a certificate authority in PEM.
type authority string

// CurrentCABundleContent implements oidc.CAContentProvider.
func (a authority) CurrentCABundleContent() []byte { return []byte(a) }
