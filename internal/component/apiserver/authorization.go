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

	"github.com/coracle-io/coracle/internal/apiserver/authz"
	"github.com/coracle-io/coracle/internal/apiserver/bootstrap"
	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/component/base"
)

// AuthorizationFlags are the API server's flags about who decides, besides
// --authorization-mode.
type AuthorizationFlags struct {
	ConfigFile string
	PolicyFile string

	WebhookConfigFile           string
	WebhookVersion              string
	WebhookCacheAuthorizedTTL   time.Duration
	WebhookCacheUnauthorizedTTL time.Duration

	commandLine base.CommandLine
}

// webhookTimeout bounds a question to the webhook of the flags.
const webhookTimeout = 30 * time.Second

func newAuthorizationFlags() AuthorizationFlags {
	return AuthorizationFlags{WebhookVersion: "v1beta1", WebhookCacheAuthorizedTTL: 5 * time.Minute, WebhookCacheUnauthorizedTTL: 30 * time.Second}
}

func (f *AuthorizationFlags) addFlags(fs *pflag.FlagSet) {
	f.commandLine.Bind(fs)
	fs.StringVar(&f.ConfigFile, "authorization-config", f.ConfigFile, "AuthorizationConfiguration of the authorizers, in place of --authorization-mode; read again when it changes")
	fs.StringVar(&f.PolicyFile, "authorization-policy-file", f.PolicyFile, "policies of --authorization-mode=ABAC, one JSON object a line")
	fs.StringVar(&f.WebhookConfigFile, "authorization-webhook-config-file", f.WebhookConfigFile, "kubeconfig of the server that --authorization-mode=Webhook asks")
	fs.StringVar(&f.WebhookVersion, "authorization-webhook-version", f.WebhookVersion, "version of the SubjectAccessReviews that it is sent: v1 or v1beta1")
	fs.DurationVar(&f.WebhookCacheAuthorizedTTL, "authorization-webhook-cache-authorized-ttl", f.WebhookCacheAuthorizedTTL, "how long it is remembered that it allows something")
	fs.DurationVar(&f.WebhookCacheUnauthorizedTTL, "authorization-webhook-cache-unauthorized-ttl", f.WebhookCacheUnauthorizedTTL, "how long it is remembered that it does not allow something")
}

func (f *Flags) validateAuthorization() []error {
	z := &f.Authorization
	if z.ConfigFile != "" {
		return z.alone()
	}
	var errs []error
	if len(f.AuthorizationMode) == 0 {
		errs = append(errs, errors.New("at least one authorization-mode must be passed"))
	}
	for i, mode := range f.AuthorizationMode {
		if !slices.Contains(authz.Modes, mode) {
			errs = append(errs, fmt.Errorf("--authorization-mode=%s: want any of %s", mode, strings.Join(authz.Modes, ", ")))
		}
		if slices.Contains(f.AuthorizationMode[:i], mode) {
			errs = append(errs, fmt.Errorf("authorization-mode %q has mode specified more than once", f.AuthorizationMode))
		}
	}
	goesWith := func(mode, value, missing, flag string) {
		switch used := slices.Contains(f.AuthorizationMode, mode); {
		case used && value == "":
			errs = append(errs, fmt.Errorf("authorization-mode %s's %s not passed", mode, missing))
		case !used && value != "":
			errs = append(errs, fmt.Errorf("cannot specify --%s without mode %s", flag, mode))
		}
	}
	goesWith(authz.ModeABAC, z.PolicyFile, "authorization policy file", "authorization-policy-file")
	goesWith(authz.ModeWebhook, z.WebhookConfigFile, "authorization config file", "authorization-webhook-config-file")
	if z.WebhookVersion != "v1" && z.WebhookVersion != "v1beta1" {
		errs = append(errs, fmt.Errorf("--authorization-webhook-version=%s: want v1 or v1beta1", z.WebhookVersion))
	}
	return errs
}

// alone refuses flags for which the configuration's file leaves no place.
func (f *AuthorizationFlags) alone() []error {
	var errs []error
	for _, flag := range []string{"authorization-mode", "authorization-webhook-config-file", "authorization-webhook-version",
		"authorization-webhook-cache-authorized-ttl", "authorization-webhook-cache-unauthorized-ttl"} {
		if f.commandLine.Gave(flag) {
			errs = append(errs, fmt.Errorf("--authorization-config can not be specified when --%s is: the file says it all", flag))
		}
	}
	return errs
}

// authorizers is what the flags say, as a configuration says it.
func (f *Flags) authorizers() []apiserver.AuthorizerConfiguration {
	all := authz.InOrder(f.AuthorizationMode...)
	for i := range all {
		if all[i].Type != apiserver.TypeWebhook {
			continue
		}
		z := &f.Authorization
		all[i].Name = "default"
		all[i].Webhook = &apiserver.WebhookConfiguration{
			AuthorizedTTL: metav1.Duration{Duration: z.WebhookCacheAuthorizedTTL}, CacheAuthorizedRequests: true,
			UnauthorizedTTL: metav1.Duration{Duration: z.WebhookCacheUnauthorizedTTL}, CacheUnauthorizedRequests: true,
			Timeout: metav1.Duration{Duration: webhookTimeout}, FailurePolicy: apiserver.FailurePolicyNoOpinion,
			SubjectAccessReviewVersion: z.WebhookVersion, MatchConditionSubjectAccessReviewVersion: "v1",
			ConnectionInfo: apiserver.WebhookConnectionInfo{Type: apiserver.AuthorizationWebhookConnectionInfoTypeKubeConfigFile, KubeConfigFile: &z.WebhookConfigFile},
		}
	}
	return all
}

// configured reads what is in the file of --authorization-config.
func (f *AuthorizationFlags) configured(content []byte) ([]apiserver.AuthorizerConfiguration, error) {
	c, err := decodeConfiguration[apiserver.AuthorizationConfiguration](content)
	if err != nil {
		return nil, err
	}
	errs := validation.ValidateAuthorizationConfiguration(authorizationcel.NewDefaultCompiler(), nil, c, sets.New(authz.Modes...), sets.New(authz.ModeWebhook))
	if err := errs.ToAggregate(); err != nil {
		return nil, err
	}
	for _, z := range c.Authorizers {
		if z.Type == authz.ModeABAC && f.PolicyFile == "" {
			return nil, fmt.Errorf("%s needs --authorization-policy-file", authz.ModeABAC)
		}
	}
	return c.Authorizers, nil
}

// newAuthorizer makes the authorizers that the flags ask for, and notes what
// follows the configuration's file.
func (a *Server) newAuthorizer(source objects.Source) (*authz.Authorizer, error) {
	f := a.flags
	c := authz.Config{
		Authorizers: f.authorizers(), Source: source, NodeRules: bootstrap.NodeRules(), PolicyFile: f.Authorization.PolicyFile,
		WebhookBackoff: *options.DefaultAuthWebhookRetryBackoff(), Metrics: a.metrics.Access,
	}
	if f.Authorization.ConfigFile == "" {
		return authz.New(c)
	}
	var z *authz.Authorizer
	counts := reloadCounts{
		register: reloads.RegisterMetrics,
		read:     reloads.RecordAuthorizationConfigLastConfigInfo, again: reloads.RecordAuthorizationConfigAutomaticReloadSuccess,
		failed: reloads.RecordAuthorizationConfigAutomaticReloadFailure,
	}
	err := a.configure("authorization-config", f.Authorization.ConfigFile, counts, func(content []byte) (err error) {
		if c.Authorizers, err = f.Authorization.configured(content); err == nil {
			z, err = authz.New(c)
		}
		return err
	}, func(content []byte) error {
		next, err := f.Authorization.configured(content)
		if err == nil {
			err = z.Set(next)
		}
		return err
	})
	return z, err
}
