package apiserver

import (
	"errors"

	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/server/options"

	"github.com/coracle-io/coracle/internal/component/base"
	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource/all"
	"github.com/coracle-io/coracle/internal/resource/runtimeconfig"
)

// Options configure an API server. They are grouped by the stage that takes
// them (see Server), and AddFlags binds upstream's flags to them. Fields
// without a flag say so.
type Options struct {
	APIs            APIOptions
	Storage         StorageOptions
	Authentication  AuthenticationOptions
	FrontProxy      FrontProxyOptions
	ServiceAccounts ServiceAccountOptions
	Authorization   AuthorizationOptions
	Admission       AdmissionOptions
	Audit           *options.AuditOptions
	Tracing         TracingOptions
	Services        ServiceOptions
	KubeletClient   KubeletClientOptions
	Requests        RequestOptions
	Serving         ServingOptions
	Profiling       ProfilingOptions
	Logging         base.Logging
	Logs            bool // /logs/ serves the files of /var/log
	Ignored         IgnoredOptions
	// Components are the addresses (host:port) of the health endpoints of other
	// components by name, for the list of component statuses. It has no flag.
	Components map[string]string
}

// NewOptions returns upstream's defaults, except that privileged containers are
// allowed.
func NewOptions() *Options {
	return &Options{
		Storage:         newStorageOptions(),
		Authentication:  newAuthenticationOptions(),
		FrontProxy:      newFrontProxyOptions(),
		ServiceAccounts: newServiceAccountOptions(),
		Authorization:   newAuthorizationOptions(),
		Admission:       AdmissionOptions{AllowPrivileged: true, NotReadySeconds: 300, UnreachableSeconds: 300},
		Audit:           options.NewAuditOptions(),
		Services:        newServiceOptions(),
		KubeletClient:   newKubeletClientOptions(),
		Requests:        newRequestOptions(),
		Serving:         newServingOptions(),
		Profiling:       ProfilingOptions{Enabled: true},
		Logging:         base.NewLogging(),
		Ignored:         newIgnoredOptions(),
		Components:      map[string]string{"controller-manager": "127.0.0.1:10257", "scheduler": "127.0.0.1:10259"},
	}
}

// AddFlags binds the flags of all groups to fs.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	o.APIs.addFlags(fs)
	o.Storage.addFlags(fs)
	o.Authentication.addFlags(fs)
	o.FrontProxy.addFlags(fs)
	o.ServiceAccounts.addFlags(fs)
	o.Authorization.addFlags(fs)
	o.Admission.addFlags(fs)
	o.Audit.AddFlags(fs)
	auditFlags(fs)
	o.Tracing.addFlags(fs)
	o.Services.addFlags(fs)
	o.KubeletClient.addFlags(fs)
	o.Requests.addFlags(fs)
	o.Serving.addFlags(fs)
	o.Profiling.addFlags(fs)
	o.Logging.AddFlags(fs)
	fs.AddFlagSet(base.IgnoredLogFlags())
	fs.BoolVar(&o.Logs, "enable-logs-handler", o.Logs, "serve the files of /var/log at /logs/ to users who may get that path")
	o.Ignored.addFlags(fs)
}

// Validate returns all errors in the options, joined, or nil.
func (o *Options) Validate() error {
	gates, _ := feature.Parse(o.APIs.FeatureGates) // o.APIs.validate returns the error
	errs := o.FrontProxy.validate(gates)
	for _, validate := range []func() []error{
		o.Serving.validate, o.Services.validate, o.Storage.validate, o.Authorization.validate, o.Requests.validate,
		o.Authentication.validate, o.ServiceAccounts.validate, o.Audit.Validate, o.Tracing.validate, o.APIs.validate, o.KubeletClient.validate,
		o.Admission.validate, o.Ignored.validate,
	} {
		errs = append(errs, validate()...)
	}
	return errors.Join(append(errs, o.Logging.Validate())...)
}

// APIOptions select the built-in APIs that are served.
type APIOptions struct {
	RuntimeConfig []string // as group/version=false
	FeatureGates  []string // as Name=true
}

func (o *APIOptions) addFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&o.RuntimeConfig, "runtime-config", o.RuntimeConfig, "API groups and versions to turn on or off, such as apps/v1=false")
	fs.StringSliceVar(&o.FeatureGates, "feature-gates", o.FeatureGates, "features to turn on or off, such as Name=true")
}

func (o *APIOptions) validate() []error {
	var errs []error
	gates, err := feature.Parse(o.FeatureGates)
	if err != nil {
		errs = append(errs, err)
	}
	if _, err := runtimeconfig.Serve(all.All(), o.RuntimeConfig, gates); err != nil {
		errs = append(errs, err)
	}
	return errs
}

// ProfilingOptions say what /debug/pprof/ serves.
type ProfilingOptions struct {
	Enabled    bool
	Contention bool // record where goroutines block; needs Enabled
}

func (o *ProfilingOptions) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.Enabled, "profiling", o.Enabled, "serve profiles at /debug/pprof/ to users who may get that path")
	fs.BoolVar(&o.Contention, "contention-profiling", o.Contention, "record where goroutines block on each other, for /debug/pprof/block, if --profiling is on")
}
