package apiserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/server/options"
	reloads "k8s.io/apiserver/pkg/server/options/authenticationconfig/metrics"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"

	"github.com/coracle-io/coracle/internal/apiserver/authn"
	"github.com/coracle-io/coracle/internal/apiserver/authz"
	"github.com/coracle-io/coracle/internal/component/base"
)

// AuthenticationFlags are the API server's flags about tokens of others.
type AuthenticationFlags struct {
	ConfigFile string

	OIDCIssuerURL      string
	OIDCClientID       string
	OIDCCAFile         string
	OIDCUsernameClaim  string
	OIDCUsernamePrefix string
	OIDCGroupsClaim    string
	OIDCGroupsPrefix   string
	OIDCSigningAlgs    []string
	OIDCRequiredClaims map[string]string

	WebhookConfigFile string
	WebhookVersion    string
	WebhookCacheTTL   time.Duration

	commandLine base.CommandLine
}

func newAuthenticationFlags() AuthenticationFlags {
	return AuthenticationFlags{
		OIDCUsernameClaim: "sub", OIDCSigningAlgs: []string{"RS256"},
		WebhookVersion: "v1beta1", WebhookCacheTTL: 2 * time.Minute,
	}
}

func (f *AuthenticationFlags) addFlags(fs *pflag.FlagSet) {
	f.commandLine.Bind(fs)
	fs.StringVar(&f.ConfigFile, "authentication-config", f.ConfigFile, "AuthenticationConfiguration of the issuers of JWTs and of anonymous requests; read again when it changes")
	fs.StringVar(&f.OIDCIssuerURL, "oidc-issuer-url", f.OIDCIssuerURL, "URL of an OpenID issuer, with the scheme https, whose tokens are accepted")
	fs.StringVar(&f.OIDCClientID, "oidc-client-id", f.OIDCClientID, "client ID that the issuer's tokens must be for")
	fs.StringVar(&f.OIDCCAFile, "oidc-ca-file", f.OIDCCAFile, "authority of the issuer's certificate; the default is the host's authorities")
	fs.StringVar(&f.OIDCUsernameClaim, "oidc-username-claim", f.OIDCUsernameClaim, "claim that is the user's name")
	fs.StringVar(&f.OIDCUsernamePrefix, "oidc-username-prefix", f.OIDCUsernamePrefix, "put before the names of users, - for nothing; the default is the issuer's URL and # unless the claim is email")
	fs.StringVar(&f.OIDCGroupsClaim, "oidc-groups-claim", f.OIDCGroupsClaim, "claim that lists the user's groups")
	fs.StringVar(&f.OIDCGroupsPrefix, "oidc-groups-prefix", f.OIDCGroupsPrefix, "put before the names of groups")
	fs.StringSliceVar(&f.OIDCSigningAlgs, "oidc-signing-algs", f.OIDCSigningAlgs, "algorithms that may sign tokens: "+strings.Join(oidc.AllValidSigningAlgorithms(), ", "))
	fs.StringToStringVar(&f.OIDCRequiredClaims, "oidc-required-claim", f.OIDCRequiredClaims, "claims that a token must have, as key=value")
	fs.StringVar(&f.WebhookConfigFile, "authentication-token-webhook-config-file", f.WebhookConfigFile, "kubeconfig of a server that is asked whose a token is")
	fs.StringVar(&f.WebhookVersion, "authentication-token-webhook-version", f.WebhookVersion, "version of the TokenReviews that it is sent: v1 or v1beta1")
	fs.DurationVar(&f.WebhookCacheTTL, "authentication-token-webhook-cache-ttl", f.WebhookCacheTTL, "how long its answers are remembered")
}

func (f *AuthenticationFlags) validate() []error {
	var errs []error
	var oidcFlags bool
	for _, name := range []string{"issuer-url", "client-id", "ca-file", "username-claim", "username-prefix", "groups-claim", "groups-prefix", "signing-algs", "required-claim"} {
		oidcFlags = oidcFlags || f.commandLine.Gave("oidc-"+name)
	}
	oidcFlags = oidcFlags || f.OIDCIssuerURL != "" || f.OIDCClientID != ""
	if oidcFlags && (f.OIDCIssuerURL == "" || f.OIDCClientID == "") {
		errs = append(errs, errors.New("oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set"))
	}
	if oidcFlags && f.ConfigFile != "" {
		errs = append(errs, errors.New("authentication-config file and oidc-* flags are mutually exclusive"))
	}
	for _, algorithm := range f.OIDCSigningAlgs {
		if !slices.Contains(oidc.AllValidSigningAlgorithms(), algorithm) {
			errs = append(errs, fmt.Errorf("--oidc-signing-algs=%s: want any of %s", algorithm, strings.Join(oidc.AllValidSigningAlgorithms(), ", ")))
		}
	}
	if f.WebhookVersion != "v1" && f.WebhookVersion != "v1beta1" {
		errs = append(errs, fmt.Errorf("--authentication-token-webhook-version=%s: want v1 or v1beta1", f.WebhookVersion))
	}
	return errs
}

// issuer is what the --oidc-* flags say, as a configuration says it.
func (f *AuthenticationFlags) issuer() (*apiserver.AuthenticationConfiguration, error) {
	prefix := f.OIDCUsernamePrefix
	switch {
	case prefix == "-":
		prefix = ""
	case prefix == "" && f.OIDCUsernameClaim != "email":
		prefix = f.OIDCIssuerURL + "#"
	}
	jwt := apiserver.JWTAuthenticator{
		Issuer:        apiserver.Issuer{URL: f.OIDCIssuerURL, Audiences: []string{f.OIDCClientID}},
		ClaimMappings: apiserver.ClaimMappings{Username: apiserver.PrefixedClaimOrExpression{Claim: f.OIDCUsernameClaim, Prefix: &prefix}},
	}
	if f.OIDCGroupsClaim != "" {
		jwt.ClaimMappings.Groups = apiserver.PrefixedClaimOrExpression{Claim: f.OIDCGroupsClaim, Prefix: &f.OIDCGroupsPrefix}
	}
	if f.OIDCCAFile != "" {
		pem, err := os.ReadFile(f.OIDCCAFile)
		if err != nil {
			return nil, fmt.Errorf("--oidc-ca-file: %w", err)
		}
		jwt.Issuer.CertificateAuthority = string(pem)
	}
	for claim, value := range f.OIDCRequiredClaims {
		jwt.ClaimValidationRules = append(jwt.ClaimValidationRules, apiserver.ClaimValidationRule{Claim: claim, RequiredValue: value})
	}
	slices.SortFunc(jwt.ClaimValidationRules, func(a, b apiserver.ClaimValidationRule) int { return strings.Compare(a.Claim, b.Claim) })
	return &apiserver.AuthenticationConfiguration{JWT: []apiserver.JWTAuthenticator{jwt}}, nil
}

// anonymous says whether requests without a credential are let through where
// no configuration says so. Where everything is allowed, they are not.
func (f *Flags) anonymous() bool {
	return f.AnonymousAuth && (f.Authorization.ConfigFile != "" || !slices.Contains(f.AuthorizationMode, authz.ModeAlwaysAllow))
}

// addIssuers adds to c what the flags say about the tokens of others, and
// notes what follows the configuration's file.
func (a *Server) addIssuers(ctx context.Context, c *authn.Config, audiences authenticator.Audiences) error {
	f := &a.flags.Authentication
	if f.WebhookConfigFile != "" {
		c.Webhook = &authn.Webhook{
			ConfigFile: f.WebhookConfigFile, Version: f.WebhookVersion, CacheTTL: f.WebhookCacheTTL, Backoff: *options.DefaultAuthWebhookRetryBackoff(),
		}
	}
	server, err := serverID()
	if err != nil {
		return err
	}
	o := authn.JWTOptions{
		SigningAlgorithms: oidc.AllValidSigningAlgorithms(), OwnIssuers: a.flags.ServiceAccounts.Issuers, Audiences: audiences,
		Anonymous: c.Anonymous, ServerID: server,
	}
	switch {
	case f.ConfigFile != "":
		return a.configureIssuers(ctx, c, o)
	case f.OIDCIssuerURL != "":
		o.SigningAlgorithms = f.OIDCSigningAlgs
		issuer, err := f.issuer()
		if err != nil {
			return err
		}
		if c.Configured, err = authn.NewConfigured(ctx, issuer, o); err != nil {
			return fmt.Errorf("--oidc-issuer-url=%s: %w", f.OIDCIssuerURL, err)
		}
	}
	return nil
}

// configureIssuers adds to c what --authentication-config says.
func (a *Server) configureIssuers(ctx context.Context, c *authn.Config, o authn.JWTOptions) error {
	decode := func(content []byte) (*apiserver.AuthenticationConfiguration, error) {
		configuration, err := decodeConfiguration[apiserver.AuthenticationConfiguration](content)
		if err == nil && configuration.Anonymous != nil && a.flags.Authentication.commandLine.Gave("anonymous-auth") {
			err = errors.New("--anonymous-auth flag cannot be set when anonymous field is configured in authentication configuration file")
		}
		return configuration, err
	}
	counts := reloadCounts{
		register: reloads.RegisterMetrics,
		read:     reloads.RecordAuthenticationConfigLastConfigInfo, again: reloads.RecordAuthenticationConfigAutomaticReloadSuccess,
		failed: reloads.RecordAuthenticationConfigAutomaticReloadFailure,
	}
	return a.configure("authentication-config", a.flags.Authentication.ConfigFile, counts, func(content []byte) error {
		first, err := decode(content)
		if err == nil {
			c.Configured, err = authn.NewConfigured(ctx, first, o)
		}
		return err
	}, func(content []byte) error {
		next, err := decode(content)
		if err == nil {
			err = c.Configured.Set(ctx, next)
		}
		return err
	})
}
