package configv1

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kubescheduler "k8s.io/kube-scheduler/config/v1"
	"k8s.io/utils/ptr"
	kjson "sigs.k8s.io/json"

	"github.com/coracle-io/coracle/internal/scheduler/config"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/timespan"
)

// point is the plugin set of an extension point by its name in the file.
type point struct {
	name string
	set  *kubescheduler.PluginSet
	to   func(*config.Plugins) *config.PluginSet // nil: the point does not exist here
}

// pointsOf lists the plugin sets in the order of the API; none if p is nil.
func pointsOf(p *kubescheduler.Plugins) []point {
	if p == nil {
		return nil
	}
	return []point{
		{"preEnqueue", &p.PreEnqueue, func(c *config.Plugins) *config.PluginSet { return &c.PreEnqueue }},
		{"queueSort", &p.QueueSort, func(c *config.Plugins) *config.PluginSet { return &c.QueueSort }},
		{"preFilter", &p.PreFilter, func(c *config.Plugins) *config.PluginSet { return &c.PreFilter }},
		{"filter", &p.Filter, func(c *config.Plugins) *config.PluginSet { return &c.Filter }},
		{"postFilter", &p.PostFilter, func(c *config.Plugins) *config.PluginSet { return &c.PostFilter }},
		{"preScore", &p.PreScore, func(c *config.Plugins) *config.PluginSet { return &c.PreScore }},
		{"score", &p.Score, func(c *config.Plugins) *config.PluginSet { return &c.Score }},
		{"reserve", &p.Reserve, func(c *config.Plugins) *config.PluginSet { return &c.Reserve }},
		{"permit", &p.Permit, func(c *config.Plugins) *config.PluginSet { return &c.Permit }},
		{"preBind", &p.PreBind, func(c *config.Plugins) *config.PluginSet { return &c.PreBind }},
		{"bind", &p.Bind, func(c *config.Plugins) *config.PluginSet { return &c.Bind }},
		{"postBind", &p.PostBind, func(c *config.Plugins) *config.PluginSet { return &c.PostBind }},
		{"multiPoint", &p.MultiPoint, func(c *config.Plugins) *config.PluginSet { return &c.MultiPoint }},
		{"placementGenerate", &p.PlacementGenerate, nil},
		{"placementScore", &p.PlacementScore, nil},
		{"podGroupPostFilter", &p.PodGroupPostFilter, func(c *config.Plugins) *config.PluginSet { return &c.PodGroupPostFilter }},
	}
}

// Convert sets in out what a validated configuration says. The warnings name what
// has no effect: plugins of upstream that do not exist here, and arguments that
// no plugin reads.
func Convert(cfg *kubescheduler.KubeSchedulerConfiguration, registry framework.Registry, out *config.Configuration) (warnings []string, err error) {
	c := converter{registry: registry}
	out.PercentageOfNodesToScore = ptr.Deref(cfg.PercentageOfNodesToScore, 0)
	out.PodInitialBackoff = timespan.Seconds(ptr.Deref(cfg.PodInitialBackoffSeconds, 0))
	out.PodMaxBackoff = timespan.Seconds(ptr.Deref(cfg.PodMaxBackoffSeconds, 0))
	cfg = cfg.DeepCopy()
	ignoreResources(cfg)
	for i := range cfg.Profiles {
		out.Profiles = append(out.Profiles, c.profile(field.NewPath("profiles").Index(i), &cfg.Profiles[i]))
	}
	for i := range cfg.Extenders {
		e := extender(&cfg.Extenders[i])
		if e.EnableHTTPS && (e.TLS == nil || e.TLS.CAFile == "" && len(e.TLS.CAData) == 0) {
			c.warn("extenders[%d].tlsConfig names no authority: the extender's certificate is not verified", i)
		}
		out.Extenders = append(out.Extenders, e)
	}
	return c.warnings, errors.Join(c.errs...)
}

// ignoreResources has NodeResourcesFit ignore the resources that extenders
// manage alone.
func ignoreResources(cfg *kubescheduler.KubeSchedulerConfiguration) {
	var ignored []string
	for i := range cfg.Extenders {
		for _, r := range cfg.Extenders[i].ManagedResources {
			if r.IgnoredByScheduler {
				ignored = append(ignored, r.Name)
			}
		}
	}
	for i := range cfg.Profiles {
		for _, a := range cfg.Profiles[i].PluginConfig {
			if fit, ok := a.Args.Object.(*kubescheduler.NodeResourcesFitArgs); ok {
				fit.IgnoredResources = append(fit.IgnoredResources, ignored...)
			}
		}
	}
}

type converter struct {
	registry framework.Registry
	warnings []string
	errs     []error
}

func (c *converter) warn(format string, arguments ...any) {
	c.warnings = append(c.warnings, fmt.Sprintf(format, arguments...))
}

func (c *converter) profile(path *field.Path, p *kubescheduler.KubeSchedulerProfile) config.Profile {
	out := config.Profile{SchedulerName: ptr.Deref(p.SchedulerName, ""), PercentageOfNodesToScore: p.PercentageOfNodesToScore}
	for _, point := range pointsOf(p.Plugins) {
		path := path.Child("plugins", point.name)
		if point.to == nil {
			if len(point.set.Enabled)+len(point.set.Disabled) > 0 {
				c.warn("%s has no effect: there is no such extension point", path)
			}
			continue
		}
		*point.to(&out.Plugins) = c.set(path, point.name, point.set)
	}
	for i, a := range p.PluginConfig {
		if arguments := c.arguments(path.Child("pluginConfig").Index(i), &a); arguments != nil {
			out.PluginConfig = append(out.PluginConfig, config.PluginConfig{Name: a.Name, Args: arguments})
		}
	}
	return out
}

func (c *converter) set(path *field.Path, point string, set *kubescheduler.PluginSet) config.PluginSet {
	var out config.PluginSet
	seen := map[string]bool{}
	for _, p := range set.Enabled {
		_, err := c.registry.Find(p.Name)
		switch {
		case seen[p.Name]:
			c.errs = append(c.errs, fmt.Errorf("%s: plugin %q already registered as %q", path, p.Name, point))
		case err == nil:
			out.Enabled = append(out.Enabled, config.Plugin{Name: p.Name, Weight: int64(ptr.Deref(p.Weight, 0))})
		case slices.Contains(absent(), p.Name):
			c.warn("%s: plugin %q does not exist yet and is left out", path, p.Name)
		default:
			c.errs = append(c.errs, fmt.Errorf("%s: %s plugin %q does not exist", path, point, p.Name))
		}
		seen[p.Name] = true
	}
	for _, p := range set.Disabled {
		out.Disabled = append(out.Disabled, p.Name)
	}
	return out
}

// absent are plugins of kube-scheduler's default set that a configuration may
// name even while they do not exist here.
func absent() []string {
	return []string{"PodGroupCount"}
}

// arguments returns what the plugin reads, or nil.
func (c *converter) arguments(path *field.Path, p *kubescheduler.PluginConfig) any {
	f, err := c.registry.Find(p.Name)
	switch {
	case err != nil || f.NewArguments == nil:
		if p.Args.Object != nil || len(p.Args.Raw) > 0 {
			c.warn("%s has no effect: plugin %q takes no arguments", path, p.Name)
		}
		return nil
	case p.Args.Object != nil:
		return p.Args.Object
	case len(p.Args.Raw) == 0:
		return f.DefaultArguments()
	}
	// The arguments of a plugin that upstream does not have.
	arguments := f.NewArguments()
	strict, err := kjson.UnmarshalStrict(p.Args.Raw, arguments)
	if err := errors.Join(append(strict, err)...); err != nil {
		c.errs = append(c.errs, fmt.Errorf("%s.args: decoding args for plugin %s: %w", path, p.Name, err))
		return nil
	}
	f.SetDefaults(arguments)
	c.errs = append(c.errs, f.Validate(path.Child("args"), arguments).ToAggregate())
	return arguments
}

func extender(e *kubescheduler.Extender) config.Extender {
	out := config.Extender{
		URLPrefix: e.URLPrefix, FilterVerb: e.FilterVerb, PrioritizeVerb: e.PrioritizeVerb, PreemptVerb: e.PreemptVerb, BindVerb: e.BindVerb,
		Weight: e.Weight, EnableHTTPS: e.EnableHTTPS, HTTPTimeout: e.HTTPTimeout.Duration, NodeCacheCapable: e.NodeCacheCapable, Ignorable: e.Ignorable,
	}
	if t := e.TLSConfig; t != nil {
		out.TLS = &config.ExtenderTLS{
			Insecure: t.Insecure, ServerName: t.ServerName, CertFile: t.CertFile, KeyFile: t.KeyFile, CAFile: t.CAFile,
			CertData: t.CertData, KeyData: t.KeyData, CAData: t.CAData,
		}
	}
	for _, r := range e.ManagedResources {
		out.ManagedResources = append(out.ManagedResources, config.ExtenderResource{Name: r.Name, IgnoredByScheduler: r.IgnoredByScheduler})
	}
	return out
}

// Effective returns the configuration as /configz shows it: the multiPoint set
// of each profile holds the default plugins with the profile's changes.
func Effective(cfg *kubescheduler.KubeSchedulerConfiguration, defaults []config.Plugin) *kubescheduler.KubeSchedulerConfiguration {
	out := cfg.DeepCopy()
	for i := range out.Profiles {
		p := &out.Profiles[i]
		if p.Plugins == nil {
			p.Plugins = &kubescheduler.Plugins{}
		}
		p.Plugins.MultiPoint.Enabled = merged(defaults, p.Plugins.MultiPoint)
	}
	return out
}

func merged(defaults []config.Plugin, set kubescheduler.PluginSet) []kubescheduler.Plugin {
	var out []kubescheduler.Plugin
	custom := slices.Clone(set.Enabled)
	isDisabled := func(name string) bool {
		return slices.ContainsFunc(set.Disabled, func(p kubescheduler.Plugin) bool { return p.Name == "*" || p.Name == name })
	}
	for _, d := range defaults {
		if isDisabled(d.Name) {
			continue
		}
		one := kubescheduler.Plugin{Name: d.Name}
		if d.Weight != 0 {
			one.Weight = ptr.To(int32(d.Weight))
		}
		if i := slices.IndexFunc(custom, func(p kubescheduler.Plugin) bool { return p.Name == d.Name }); i >= 0 {
			one = custom[i]
			custom = slices.Delete(custom, i, i+1)
		}
		out = append(out, one)
	}
	return append(out, custom...)
}
