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
	"github.com/coracle-io/coracle/internal/flagvalue"
)

// AuthenticationOptions say how clients prove who they are.
type AuthenticationOptions struct {
	ClientCAFile    string
	Anonymous       bool
	TokenFile       string // CSV
	BootstrapTokens bool
	// ConfigFile is the file of an AuthenticationConfiguration, or empty.
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

	Webhook authn.Webhook // none without a ConfigFile

	commandLine base.CommandLine
}

func newAuthenticationOptions() AuthenticationOptions {
	return AuthenticationOptions{
		Anonymous: true, BootstrapTokens: true,
		OIDCUsernameClaim: "sub", OIDCSigningAlgs: []string{"RS256"},
		Webhook: authn.Webhook{Version: "v1beta1", CacheTTL: 2 * time.Minute, Backoff: *options.DefaultAuthWebhookRetryBackoff()},
	}
}

func (o *AuthenticationOptions) addFlags(fs *pflag.FlagSet) {
	o.commandLine.Bind(fs)
	fs.StringVar(&o.ClientCAFile, "client-ca-file", o.ClientCAFile, "authority of client certificates; the default is the cluster's own")
	fs.BoolVar(&o.Anonymous, "anonymous-auth", o.Anonymous, "accept requests without credentials as system:anonymous")
	fs.StringVar(&o.TokenFile, "token-auth-file", o.TokenFile, "CSV file of static tokens")
	fs.BoolVar(&o.BootstrapTokens, "enable-bootstrap-token-auth", o.BootstrapTokens, "accept the bootstrap tokens of kube-system")
	fs.StringVar(&o.ConfigFile, "authentication-config", o.ConfigFile, "AuthenticationConfiguration of the issuers of JWTs and of anonymous requests; read again when it changes")
	fs.StringVar(&o.OIDCIssuerURL, "oidc-issuer-url", o.OIDCIssuerURL, "URL of an OpenID issuer, with the scheme https, whose tokens are accepted")
	fs.StringVar(&o.OIDCClientID, "oidc-client-id", o.OIDCClientID, "client ID that the issuer's tokens must be for")
	fs.StringVar(&o.OIDCCAFile, "oidc-ca-file", o.OIDCCAFile, "authority of the issuer's certificate; the default is the host's authorities")
	fs.StringVar(&o.OIDCUsernameClaim, "oidc-username-claim", o.OIDCUsernameClaim, "claim that is the user's name")
	fs.StringVar(&o.OIDCUsernamePrefix, "oidc-username-prefix", o.OIDCUsernamePrefix, "prefix of user names; - means no prefix; the default is the issuer's URL and # unless the claim is email")
	fs.StringVar(&o.OIDCGroupsClaim, "oidc-groups-claim", o.OIDCGroupsClaim, "claim that lists the user's groups")
	fs.StringVar(&o.OIDCGroupsPrefix, "oidc-groups-prefix", o.OIDCGroupsPrefix, "prefix of group names")
	fs.StringSliceVar(&o.OIDCSigningAlgs, "oidc-signing-algs", o.OIDCSigningAlgs, "algorithms that may sign tokens: "+strings.Join(oidc.AllValidSigningAlgorithms(), ", "))
	fs.StringToStringVar(&o.OIDCRequiredClaims, "oidc-required-claim", o.OIDCRequiredClaims, "claims that a token must have, such as key=value")
	fs.StringVar(&o.Webhook.ConfigFile, "authentication-token-webhook-config-file", o.Webhook.ConfigFile, "kubeconfig of a server that authenticates tokens")
	fs.StringVar(&o.Webhook.Version, "authentication-token-webhook-version", o.Webhook.Version, "API version of the TokenReviews sent to the webhook: v1 or v1beta1")
	fs.DurationVar(&o.Webhook.CacheTTL, "authentication-token-webhook-cache-ttl", o.Webhook.CacheTTL, "how long responses of the webhook token authenticator are cached")
	flagvalue.Is(fs, flagvalue.File, "client-ca-file", "token-auth-file", "authentication-config", "oidc-ca-file", "authentication-token-webhook-config-file")
}

func (o *AuthenticationOptions) validate() []error {
	var errs []error
	var oidcFlags bool
	for _, name := range []string{"issuer-url", "client-id", "ca-file", "username-claim", "username-prefix", "groups-claim", "groups-prefix", "signing-algs", "required-claim"} {
		oidcFlags = oidcFlags || o.commandLine.Gave("oidc-"+name)
	}
	oidcFlags = oidcFlags || o.OIDCIssuerURL != "" || o.OIDCClientID != ""
	if oidcFlags && (o.OIDCIssuerURL == "" || o.OIDCClientID == "") {
		errs = append(errs, errors.New("oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set"))
	}
	if oidcFlags && o.ConfigFile != "" {
		errs = append(errs, errors.New("authentication-config file and oidc-* flags are mutually exclusive"))
	}
	for _, algorithm := range o.OIDCSigningAlgs {
		if !slices.Contains(oidc.AllValidSigningAlgorithms(), algorithm) {
			errs = append(errs, fmt.Errorf("--oidc-signing-algs=%s: want any of %s", algorithm, strings.Join(oidc.AllValidSigningAlgorithms(), ", ")))
		}
	}
	if o.Webhook.Version != "v1" && o.Webhook.Version != "v1beta1" {
		errs = append(errs, fmt.Errorf("--authentication-token-webhook-version=%s: want v1 or v1beta1", o.Webhook.Version))
	}
	return errs
}

// issuer returns the --oidc-* flags as an AuthenticationConfiguration.
func (o *AuthenticationOptions) issuer() (*apiserver.AuthenticationConfiguration, error) {
	prefix := o.OIDCUsernamePrefix
	switch {
	case prefix == "-":
		prefix = ""
	case prefix == "" && o.OIDCUsernameClaim != "email":
		prefix = o.OIDCIssuerURL + "#"
	}
	jwt := apiserver.JWTAuthenticator{
		Issuer:        apiserver.Issuer{URL: o.OIDCIssuerURL, Audiences: []string{o.OIDCClientID}},
		ClaimMappings: apiserver.ClaimMappings{Username: apiserver.PrefixedClaimOrExpression{Claim: o.OIDCUsernameClaim, Prefix: &prefix}},
	}
	if o.OIDCGroupsClaim != "" {
		jwt.ClaimMappings.Groups = apiserver.PrefixedClaimOrExpression{Claim: o.OIDCGroupsClaim, Prefix: &o.OIDCGroupsPrefix}
	}
	if o.OIDCCAFile != "" {
		pem, err := os.ReadFile(o.OIDCCAFile)
		if err != nil {
			return nil, fmt.Errorf("--oidc-ca-file: %w", err)
		}
		jwt.Issuer.CertificateAuthority = string(pem)
	}
	for claim, value := range o.OIDCRequiredClaims {
		jwt.ClaimValidationRules = append(jwt.ClaimValidationRules, apiserver.ClaimValidationRule{Claim: claim, RequiredValue: value})
	}
	slices.SortFunc(jwt.ClaimValidationRules, func(a, b apiserver.ClaimValidationRule) int { return strings.Compare(a.Claim, b.Claim) })
	return &apiserver.AuthenticationConfiguration{JWT: []apiserver.JWTAuthenticator{jwt}}, nil
}

// anonymous reports whether requests without credentials are allowed unless a
// configuration says otherwise. They are not with the mode AlwaysAllow.
func (o *Options) anonymous() bool {
	return o.Authentication.Anonymous && (o.Authorization.ConfigFile != "" || !slices.Contains(o.Authorization.Modes, authz.ModeAlwaysAllow))
}

// addIssuers adds the token authenticators of the options to c: the webhook and
// the issuers of JWTs.
func (a *Server) addIssuers(ctx context.Context, c *authn.Config, audiences authenticator.Audiences) error {
	o := &a.options.Authentication
	if o.Webhook.ConfigFile != "" {
		c.Webhook = &o.Webhook
	}
	server, err := serverID()
	if err != nil {
		return err
	}
	jwt := authn.JWTOptions{
		SigningAlgorithms: oidc.AllValidSigningAlgorithms(), OwnIssuers: a.options.ServiceAccounts.Issuers, Audiences: audiences,
		Anonymous: c.Anonymous, ServerID: server,
	}
	switch {
	case o.ConfigFile != "":
		return a.configureIssuers(ctx, c, jwt)
	case o.OIDCIssuerURL != "":
		jwt.SigningAlgorithms = o.OIDCSigningAlgs
		issuer, err := o.issuer()
		if err != nil {
			return err
		}
		if c.Configured, err = authn.NewConfigured(ctx, issuer, jwt); err != nil {
			return fmt.Errorf("--oidc-issuer-url=%s: %w", o.OIDCIssuerURL, err)
		}
	}
	return nil
}

// configureIssuers adds the issuers of --authentication-config to c.
func (a *Server) configureIssuers(ctx context.Context, c *authn.Config, jwt authn.JWTOptions) error {
	decode := func(content []byte) (*apiserver.AuthenticationConfiguration, error) {
		configuration, err := decodeConfiguration[apiserver.AuthenticationConfiguration](content)
		if err == nil && configuration.Anonymous != nil && a.options.Authentication.commandLine.Gave("anonymous-auth") {
			err = errors.New("--anonymous-auth flag cannot be set when anonymous field is configured in authentication configuration file")
		}
		return configuration, err
	}
	counts := reloadCounts{
		register: reloads.RegisterMetrics,
		read:     reloads.RecordAuthenticationConfigLastConfigInfo, again: reloads.RecordAuthenticationConfigAutomaticReloadSuccess,
		failed: reloads.RecordAuthenticationConfigAutomaticReloadFailure,
	}
	return a.configure("authentication-config", a.options.Authentication.ConfigFile, counts, func(content []byte) error {
		first, err := decode(content)
		if err == nil {
			c.Configured, err = authn.NewConfigured(ctx, first, jwt)
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
