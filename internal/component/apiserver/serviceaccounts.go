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
	"github.com/coracle-io/coracle/internal/pki"
)

// ServiceAccountFlags are the API server's flags about the tokens that it
// issues itself.
type ServiceAccountFlags struct {
	// Issuers are accepted; the first issues.
	Issuers       []string
	JWKSURI       string
	Audiences     []string // none are the issuers
	MaxExpiration time.Duration
	Extend        bool
	Lookup        bool

	// KeyFiles verify and SigningKeyFile signs, in place of the keys of --cert-dir.
	KeyFiles       []string
	SigningKeyFile string
}

func newServiceAccountFlags() ServiceAccountFlags {
	return ServiceAccountFlags{Issuers: []string{"https://kubernetes.default.svc.cluster.local"}, Extend: true, Lookup: true}
}

func (f *ServiceAccountFlags) addFlags(fs *pflag.FlagSet) {
	fs.StringArrayVar(&f.Issuers, "service-account-issuer", f.Issuers, "issuer of service account tokens; the first issues, all are accepted")
	fs.StringVar(&f.JWKSURI, "service-account-jwks-uri", f.JWKSURI, "where the discovery document says that the token keys are, with the scheme https; the default is this server")
	fs.StringArrayVar(&f.KeyFiles, "service-account-key-file", f.KeyFiles, "PEM file of public or private keys that verify service account tokens, besides that of --service-account-signing-key-file; may be given several times; the default is sa.pub of --cert-dir")
	fs.StringVar(&f.SigningKeyFile, "service-account-signing-key-file", f.SigningKeyFile, "PEM file of the private key that signs service account tokens; the default is sa.key of --cert-dir")
	fs.BoolVar(&f.Lookup, "service-account-lookup", f.Lookup, "refuse a token that is kept in a secret when the secret or the service account is gone; other tokens are always looked up")
	fs.DurationVar(&f.MaxExpiration, "service-account-max-token-expiration", f.MaxExpiration, "longest life of a service account token; 0 is no limit")
	fs.BoolVar(&f.Extend, "service-account-extend-token-expiration", f.Extend, "let pods' tokens for the API server live a year")
	fs.StringSliceVar(&f.Audiences, "api-audiences", f.Audiences, "audiences of this server; the default is the issuers")
}

func (f *ServiceAccountFlags) validate() []error {
	var errs []error
	if len(f.Issuers) == 0 {
		errs = append(errs, fmt.Errorf("--service-account-issuer: at least one is needed"))
	}
	for _, issuer := range f.Issuers {
		if issuer == "" {
			errs = append(errs, fmt.Errorf("service-account-issuer should not be an empty string"))
		} else if _, err := url.Parse(issuer); strings.Contains(issuer, ":") && err != nil {
			errs = append(errs, fmt.Errorf("service-account-issuer %q contained a ':' but was not a valid URL: %w", issuer, err))
		}
	}
	if f.JWKSURI != "" {
		if uri, err := url.Parse(f.JWKSURI); err != nil {
			errs = append(errs, fmt.Errorf("service-account-jwks-uri must be a valid URL: %w", err))
		} else if uri.Scheme != "https" {
			errs = append(errs, fmt.Errorf("service-account-jwks-uri requires https scheme, parsed as: %v", uri))
		}
	}
	if m := f.MaxExpiration; m != 0 && (m < time.Hour || m > 1<<32*time.Second) {
		errs = append(errs, fmt.Errorf("the service-account-max-token-expiration must be between 1 hour and 2^32 seconds"))
	}
	return errs
}

// options are what the flags say. Objects are for the caller to set.
func (f *ServiceAccountFlags) options(keys *pki.Directory) (serviceaccount.Options, error) {
	o := serviceaccount.Options{
		Issuers: f.Issuers, Audiences: f.Audiences, Keys: keys.TokenKeys(), Clock: clock.RealClock{},
		MaxExpiration: f.MaxExpiration, ExtendExpiration: f.Extend, LegacyUnchecked: !f.Lookup,
	}
	if len(o.Audiences) == 0 {
		o.Audiences = f.Issuers
	}
	if f.SigningKeyFile == "" && len(f.KeyFiles) == 0 {
		return o, nil
	}
	signing := f.SigningKeyFile
	if signing == "" {
		signing = keys.File("sa.key")
	}
	var err error
	o.Keys, err = pki.ReadTokenKeys(signing, f.KeyFiles...)
	if err != nil {
		err = fmt.Errorf("--service-account-signing-key-file, --service-account-key-file: %w", err)
	}
	return o, err
}

// noteTokenUses writes on secrets, until ctx ends, when their tokens are used.
func (a *Server) noteTokenUses(ctx context.Context) error {
	c, err := a.Provider.As("system:apiserver", "system:masters")
	if err != nil {
		return err
	}
	return a.identity.tokenUses.Run(ctx, c.Kubernetes.CoreV1())
}
