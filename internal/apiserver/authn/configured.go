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
)

// JWTOptions are what an AuthenticationConfiguration does not say.
type JWTOptions struct {
	// SigningAlgorithms may sign tokens.
	SigningAlgorithms []string
	// OwnIssuers issue service account tokens; no other may be configured
	// under their names.
	OwnIssuers []string
	Audiences  authenticator.Audiences
	// Anonymous counts where the configuration says nothing about it.
	Anonymous bool
	// ServerID tells this server's metrics from others'.
	ServerID string
}

// Configured authenticates by the AuthenticationConfiguration that holds now:
// the tokens of its issuers, and requests without a credential.
type Configured struct {
	options JWTOptions
	current atomic.Pointer[configuration]
}

// configuration is one AuthenticationConfiguration at work.
type configuration struct {
	tokens    authenticator.Token   // nil if there is no issuer
	anonymous authenticator.Request // nil if they are refused
	issuers   []oidc.AuthenticatorTokenWithHealthCheck
	cancel    context.CancelFunc
}

// NewConfigured begins with a configuration, whose issuers need not answer
// yet. What it starts ends with ctx.
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
	// reachIssuers is how long the issuers of a new configuration may take to answer.
	reachIssuers = time.Minute
	// finishRequests is how long requests that began under an old
	// configuration may still need it.
	finishRequests = time.Minute
	// remembered is how long a token that was accepted is not checked again.
	remembered = 10 * time.Second
)

// Set replaces the configuration once all its issuers answer. It blocks until
// then; if they do not, or the configuration is faulty, nothing changes.
func (a *Configured) Set(ctx context.Context, c *apiserver.AuthenticationConfiguration) error {
	next, err := a.build(ctx, c)
	if err != nil {
		return err
	}
	var unhealthy error
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, reachIssuers, true, func(context.Context) (bool, error) {
		unhealthy = nil
		for _, issuer := range next.issuers {
			unhealthy = errors.Join(unhealthy, issuer.HealthCheck())
		}
		return unhealthy == nil, nil
	})
	if err != nil {
		next.cancel()
		return fmt.Errorf("the issuers do not answer: %w", errors.Join(unhealthy, err))
	}
	before := a.current.Swap(next)
	time.AfterFunc(finishRequests, before.cancel)
	return nil
}

func (a *Configured) build(ctx context.Context, c *apiserver.AuthenticationConfiguration) (*configuration, error) {
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
		built.issuers = append(built.issuers, token)
		tokens = append(tokens, authenticator.WrapAudienceAgnosticToken(a.options.Audiences, token))
	}
	if len(tokens) > 0 {
		built.tokens = cache.New(tokenunion.New(tokens...), true, remembered, 0)
	}
	anyone := c.Anonymous
	if anyone == nil {
		anyone = &apiserver.AnonymousAuthConfig{Enabled: a.options.Anonymous}
	}
	if anyone.Enabled {
		built.anonymous = anonymous.NewAuthenticator(slices.Clone(anyone.Conditions))
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
	if anyone := a.current.Load().anonymous; anyone != nil {
		return anyone.AuthenticateRequest(r)
	}
	return nil, false, nil
}

// authority is the PEM of a certificate authority.
type authority string

// CurrentCABundleContent implements oidc.CAContentProvider.
func (a authority) CurrentCABundleContent() []byte { return []byte(a) }
