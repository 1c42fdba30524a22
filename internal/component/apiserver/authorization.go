package apiserver

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	authorizationcel "k8s.io/apiserver/pkg/authorization/cel"
	"k8s.io/apiserver/pkg/server/options"
	reloads "k8s.io/apiserver/pkg/server/options/authorizationconfig/metrics"

	"github.com/coracle-io/coracle/internal/amount/celamount"
	"github.com/coracle-io/coracle/internal/apiserver/authz"
	"github.com/coracle-io/coracle/internal/apiserver/bootstrap"
	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/component/base"
	"github.com/coracle-io/coracle/internal/flagvalue"
)

// AuthorizationOptions say which authorizers decide what clients may do.
type AuthorizationOptions struct {
	Modes []string
	// ConfigFile is the file of an AuthorizationConfiguration that replaces
	// Modes, or empty.
	ConfigFile string
	PolicyFile string

	WebhookConfigFile           string
	WebhookVersion              string
	WebhookCacheAuthorizedTTL   time.Duration
	WebhookCacheUnauthorizedTTL time.Duration

	commandLine base.CommandLine
}

// webhookTimeout bounds a request to the authorization webhook.
const webhookTimeout = 30 * time.Second

func newAuthorizationOptions() AuthorizationOptions {
	return AuthorizationOptions{Modes: []string{authz.ModeNode, authz.ModeRBAC}, WebhookVersion: "v1beta1", WebhookCacheAuthorizedTTL: 5 * time.Minute, WebhookCacheUnauthorizedTTL: 30 * time.Second}
}

func (o *AuthorizationOptions) addFlags(fs *pflag.FlagSet) {
	o.commandLine.Bind(fs)
	fs.StringSliceVar(&o.Modes, "authorization-mode", o.Modes, "authorizers in order: "+strings.Join(authz.Modes(), ", "))
	fs.StringVar(&o.ConfigFile, "authorization-config", o.ConfigFile, "AuthorizationConfiguration of the authorizers, in place of --authorization-mode; read again when it changes")
	fs.StringVar(&o.PolicyFile, "authorization-policy-file", o.PolicyFile, "policies of --authorization-mode=ABAC, one JSON object a line")
	fs.StringVar(&o.WebhookConfigFile, "authorization-webhook-config-file", o.WebhookConfigFile, "kubeconfig of the server that --authorization-mode=Webhook asks")
	fs.StringVar(&o.WebhookVersion, "authorization-webhook-version", o.WebhookVersion, "API version of the SubjectAccessReviews sent to the webhook: v1 or v1beta1")
	fs.DurationVar(&o.WebhookCacheAuthorizedTTL, "authorization-webhook-cache-authorized-ttl", o.WebhookCacheAuthorizedTTL, "how long authorized responses of the webhook authorizer are cached")
	fs.DurationVar(&o.WebhookCacheUnauthorizedTTL, "authorization-webhook-cache-unauthorized-ttl", o.WebhookCacheUnauthorizedTTL, "how long unauthorized responses of the webhook authorizer are cached")
	flagvalue.Is(fs, flagvalue.File, "authorization-config", "authorization-policy-file", "authorization-webhook-config-file")
}

func (o *AuthorizationOptions) validate() []error {
	if o.ConfigFile != "" {
		return o.alone()
	}
	var errs []error
	if len(o.Modes) == 0 {
		errs = append(errs, errors.New("at least one authorization-mode must be passed"))
	}
	for i, mode := range o.Modes {
		if !slices.Contains(authz.Modes(), mode) {
			errs = append(errs, fmt.Errorf("--authorization-mode=%s: want any of %s", mode, strings.Join(authz.Modes(), ", ")))
		}
		if slices.Contains(o.Modes[:i], mode) {
			errs = append(errs, fmt.Errorf("authorization-mode %q has mode specified more than once", o.Modes))
		}
	}
	goesWith := func(mode, value, missing, flag string) {
		switch used := slices.Contains(o.Modes, mode); {
		case used && value == "":
			errs = append(errs, fmt.Errorf("authorization-mode %s's %s not passed", mode, missing))
		case !used && value != "":
			errs = append(errs, fmt.Errorf("cannot specify --%s without mode %s", flag, mode))
		}
	}
	goesWith(authz.ModeABAC, o.PolicyFile, "authorization policy file", "authorization-policy-file")
	goesWith(authz.ModeWebhook, o.WebhookConfigFile, "authorization config file", "authorization-webhook-config-file")
	if o.WebhookVersion != "v1" && o.WebhookVersion != "v1beta1" {
		errs = append(errs, fmt.Errorf("--authorization-webhook-version=%s: want v1 or v1beta1", o.WebhookVersion))
	}
	return errs
}

// alone returns errors for flags that conflict with --authorization-config.
func (o *AuthorizationOptions) alone() []error {
	var errs []error
	for _, flag := range []string{"authorization-mode", "authorization-webhook-config-file", "authorization-webhook-version",
		"authorization-webhook-cache-authorized-ttl", "authorization-webhook-cache-unauthorized-ttl"} {
		if o.commandLine.Gave(flag) {
			errs = append(errs, fmt.Errorf("--authorization-config can not be specified when --%s is; configure it in the file", flag))
		}
	}
	return errs
}

// authorizers returns the options as an AuthorizationConfiguration's authorizers.
func (o *AuthorizationOptions) authorizers() []apiserver.AuthorizerConfiguration {
	all := authz.InOrder(o.Modes...)
	for i := range all {
		if all[i].Type != apiserver.TypeWebhook {
			continue
		}
		all[i].Name = "default"
		all[i].Webhook = &apiserver.WebhookConfiguration{
			AuthorizedTTL: metav1.Duration{Duration: o.WebhookCacheAuthorizedTTL}, CacheAuthorizedRequests: true,
			UnauthorizedTTL: metav1.Duration{Duration: o.WebhookCacheUnauthorizedTTL}, CacheUnauthorizedRequests: true,
			Timeout: metav1.Duration{Duration: webhookTimeout}, FailurePolicy: apiserver.FailurePolicyNoOpinion,
			SubjectAccessReviewVersion: o.WebhookVersion, MatchConditionSubjectAccessReviewVersion: "v1",
			ConnectionInfo: apiserver.WebhookConnectionInfo{Type: apiserver.AuthorizationWebhookConnectionInfoTypeKubeConfigFile, KubeConfigFile: &o.WebhookConfigFile},
		}
	}
	return all
}

// configured decodes and validates the content of --authorization-config.
func (o *AuthorizationOptions) configured(content []byte) ([]apiserver.AuthorizerConfiguration, error) {
	c, err := decodeConfiguration[apiserver.AuthorizationConfiguration](content)
	if err != nil {
		return nil, err
	}
	celamount.Bound()
	errs := validation.ValidateAuthorizationConfiguration(authorizationcel.NewDefaultCompiler(), nil, c, sets.New(authz.Modes()...), sets.New(authz.ModeWebhook))
	if err := errs.ToAggregate(); err != nil {
		return nil, err
	}
	for _, z := range c.Authorizers {
		if z.Type == authz.ModeABAC && o.PolicyFile == "" {
			return nil, fmt.Errorf("%s needs --authorization-policy-file", authz.ModeABAC)
		}
	}
	return c.Authorizers, nil
}

// newAuthorizer returns the authorizer of the options. It registers the file of
// --authorization-config to be reloaded.
func (a *Server) newAuthorizer(source objects.Source) (*authz.Authorizer, error) {
	o := a.options
	c := authz.Config{
		Authorizers: o.Authorization.authorizers(), Source: source, NodeRules: bootstrap.NodeRules(), PolicyFile: o.Authorization.PolicyFile,
		WebhookBackoff: *options.DefaultAuthWebhookRetryBackoff(), Metrics: a.metrics.Access,
	}
	if o.Authorization.ConfigFile == "" {
		return authz.New(c)
	}
	var z *authz.Authorizer
	counts := reloadCounts{
		register: reloads.RegisterMetrics,
		read:     reloads.RecordAuthorizationConfigLastConfigInfo, again: reloads.RecordAuthorizationConfigAutomaticReloadSuccess,
		failed: reloads.RecordAuthorizationConfigAutomaticReloadFailure,
	}
	err := a.configure("authorization-config", o.Authorization.ConfigFile, counts, func(content []byte) (err error) {
		if c.Authorizers, err = o.Authorization.configured(content); err == nil {
			z, err = authz.New(c)
		}
		return err
	}, func(content []byte) error {
		next, err := o.Authorization.configured(content)
		if err == nil {
			err = z.Set(next)
		}
		return err
	})
	return z, err
}
