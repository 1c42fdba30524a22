package apiserver

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/apiserver/authn/serviceaccount"
	"github.com/coracle-io/coracle/internal/flagvalue"
	"github.com/coracle-io/coracle/internal/pki"
)

// ServiceAccountOptions configure the tokens that the API server issues.
type ServiceAccountOptions struct {
	serviceaccount.Options // Audiences default to Issuers
	JWKSURI                string
	Lookup                 bool

	// KeyFiles verify and SigningKeyFile signs, in place of the keys of --cert-dir.
	KeyFiles       []string
	SigningKeyFile string
}

func newServiceAccountOptions() ServiceAccountOptions {
	return ServiceAccountOptions{
		Options: serviceaccount.Options{Issuers: []string{"https://kubernetes.default.svc.cluster.local"}, ExtendExpiration: true}, Lookup: true,
	}
}

func (o *ServiceAccountOptions) addFlags(fs *pflag.FlagSet) {
	fs.StringArrayVar(&o.Issuers, "service-account-issuer", o.Issuers, "issuer of service account tokens; the first issues, all are accepted")
	fs.StringVar(&o.JWKSURI, "service-account-jwks-uri", o.JWKSURI, "where the discovery document says that the token keys are, with the scheme https; the default is this server")
	fs.StringArrayVar(&o.KeyFiles, "service-account-key-file", o.KeyFiles, "PEM file of public or private keys that verify service account tokens, besides that of --service-account-signing-key-file; may be given several times; the default is sa.pub of --cert-dir")
	fs.StringVar(&o.SigningKeyFile, "service-account-signing-key-file", o.SigningKeyFile, "PEM file of the private key that signs service account tokens; the default is sa.key of --cert-dir")
	fs.BoolVar(&o.Lookup, "service-account-lookup", o.Lookup, "refuse a token that is kept in a secret when the secret or the service account is gone; other tokens are always looked up")
	fs.DurationVar(&o.MaxExpiration, "service-account-max-token-expiration", o.MaxExpiration, "longest life of a service account token; 0 is no limit")
	fs.BoolVar(&o.ExtendExpiration, "service-account-extend-token-expiration", o.ExtendExpiration, "extend the expiration of pods' tokens for the API server to a year")
	fs.StringSliceVar(&o.Audiences, "api-audiences", o.Audiences, "audiences of this server; the default is the issuers")
	flagvalue.Is(fs, flagvalue.File, "service-account-key-file", "service-account-signing-key-file")
}

func (o *ServiceAccountOptions) validate() []error {
	var errs []error
	if len(o.Issuers) == 0 {
		errs = append(errs, fmt.Errorf("--service-account-issuer: at least one is needed"))
	}
	for _, issuer := range o.Issuers {
		if issuer == "" {
			errs = append(errs, fmt.Errorf("service-account-issuer should not be an empty string"))
		} else if _, err := url.Parse(issuer); strings.Contains(issuer, ":") && err != nil {
			errs = append(errs, fmt.Errorf("service-account-issuer %q contained a ':' but was not a valid URL: %w", issuer, err))
		}
	}
	if o.JWKSURI != "" {
		if uri, err := url.Parse(o.JWKSURI); err != nil {
			errs = append(errs, fmt.Errorf("service-account-jwks-uri must be a valid URL: %w", err))
		} else if uri.Scheme != "https" {
			errs = append(errs, fmt.Errorf("service-account-jwks-uri requires https scheme, parsed as: %v", uri))
		}
	}
	if m := o.MaxExpiration; m != 0 && (m < time.Hour || m > 1<<32*time.Second) {
		errs = append(errs, fmt.Errorf("the service-account-max-token-expiration must be between 1 hour and 2^32 seconds"))
	}
	return errs
}

// options completes the options. The caller must set Objects.
func (o *ServiceAccountOptions) options(keys *pki.Directory) (serviceaccount.Options, error) {
	config := o.Options
	config.Keys, config.Clock, config.LegacyUnchecked = keys.TokenKeys(), clock.RealClock{}, !o.Lookup
	if len(config.Audiences) == 0 {
		config.Audiences = o.Issuers
	}
	if o.SigningKeyFile == "" && len(o.KeyFiles) == 0 {
		return config, nil
	}
	signing := o.SigningKeyFile
	if signing == "" {
		signing = keys.File("sa.key")
	}
	var err error
	config.Keys, err = pki.ReadTokenKeys(signing, o.KeyFiles...)
	if err != nil {
		err = fmt.Errorf("--service-account-signing-key-file, --service-account-key-file: %w", err)
	}
	return config, err
}

// noteTokenUses records on secrets when their tokens were last used, until ctx
// ends.
func (a *Server) noteTokenUses(ctx context.Context) error {
	c, err := a.Provider.As("system:apiserver", "system:masters")
	if err != nil {
		return err
	}
	return a.identity.tokenUses.Run(ctx, c.Kubernetes.CoreV1())
}
