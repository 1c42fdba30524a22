package configv1

import (
	"fmt"
	"reflect"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	componentconfig "k8s.io/component-base/config"
	componentv1alpha1 "k8s.io/component-base/config/v1alpha1"
	componentvalidation "k8s.io/component-base/config/validation"
	kubescheduler "k8s.io/kube-scheduler/config/v1"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/resource/core/resourcelist"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// Validate returns everything that is wrong with a configuration that has its
// defaults.
func Validate(cfg *kubescheduler.KubeSchedulerConfiguration, registry framework.Registry) error {
	var errs field.ErrorList
	errs = append(errs, validateConnections(cfg)...)
	if p := ptr.Deref(cfg.Parallelism, 0); p <= 0 {
		errs = append(errs, field.Invalid(field.NewPath("parallelism"), p, "should be an integer value greater than zero"))
	}
	errs = append(errs, validateProfiles(field.NewPath("profiles"), cfg.Profiles, registry)...)
	errs = append(errs, validatePercentage(field.NewPath("percentageOfNodesToScore"), cfg.PercentageOfNodesToScore)...)
	first, longest := ptr.Deref(cfg.PodInitialBackoffSeconds, 0), ptr.Deref(cfg.PodMaxBackoffSeconds, 0)
	if first <= 0 {
		errs = append(errs, field.Invalid(field.NewPath("podInitialBackoffSeconds"), first, "must be greater than 0"))
	}
	if longest < first {
		errs = append(errs, field.Invalid(field.NewPath("podMaxBackoffSeconds"), longest, "must be greater than or equal to PodInitialBackoffSeconds"))
	}
	return append(errs, validateExtenders(field.NewPath("extenders"), cfg.Extenders)...).ToAggregate()
}

func validateConnections(cfg *kubescheduler.KubeSchedulerConfiguration) field.ErrorList {
	var connection componentconfig.ClientConnectionConfiguration
	var election componentconfig.LeaderElectionConfiguration
	path := field.NewPath("leaderElection")
	if err := componentv1alpha1.Convert_v1alpha1_ClientConnectionConfiguration_To_config_ClientConnectionConfiguration(&cfg.ClientConnection, &connection, nil); err != nil {
		return field.ErrorList{field.InternalError(field.NewPath("clientConnection"), err)}
	}
	if err := componentv1alpha1.Convert_v1alpha1_LeaderElectionConfiguration_To_config_LeaderElectionConfiguration(&cfg.LeaderElection, &election, nil); err != nil {
		return field.ErrorList{field.InternalError(path, err)}
	}
	errs := componentvalidation.ValidateClientConnectionConfiguration(&connection, field.NewPath("clientConnection"))
	errs = append(errs, componentvalidation.ValidateLeaderElectionConfiguration(&election, path)...)
	if election.LeaderElect && election.ResourceLock != "leases" {
		errs = append(errs, field.Invalid(path.Child("resourceLock"), election.ResourceLock, `resourceLock value must be "leases"`))
	}
	return errs
}

func validatePercentage(path *field.Path, percentage *int32) field.ErrorList {
	if p := ptr.Deref(percentage, 0); p < 0 || p > 100 {
		return field.ErrorList{field.Invalid(path, p, "not in valid range [0-100]")}
	}
	return nil
}

func validateProfiles(path *field.Path, profiles []kubescheduler.KubeSchedulerProfile, registry framework.Registry) field.ErrorList {
	if len(profiles) == 0 {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	first := map[string]int{}
	for i := range profiles {
		p, path := &profiles[i], path.Index(i)
		errs = append(errs, validateProfile(path, p, registry)...)
		name := ptr.Deref(p.SchedulerName, "")
		if j, ok := first[name]; ok {
			errs = append(errs, field.Duplicate(path.Child("schedulerName"), field.NewPath("profiles").Index(j).Child("schedulerName").String()))
			continue
		}
		first[name] = i
	}
	return append(errs, validateCommonQueueSort(path, profiles)...)
}

func validateProfile(path *field.Path, p *kubescheduler.KubeSchedulerProfile, registry framework.Registry) field.ErrorList {
	var errs field.ErrorList
	if ptr.Deref(p.SchedulerName, "") == "" {
		errs = append(errs, field.Required(path.Child("schedulerName"), ""))
	}
	errs = append(errs, validatePercentage(path.Child("percentageOfNodesToScore"), p.PercentageOfNodesToScore)...)
	for _, point := range pointsOf(p.Plugins) {
		path := path.Child("plugins", point.name, "enabled")
		for i, plugin := range point.set.Enabled {
			if isRemoved(plugin.Name) {
				errs = append(errs, removed(path.Index(i), plugin.Name))
			}
		}
	}
	seen := map[string]bool{}
	for i, c := range p.PluginConfig {
		path := path.Child("pluginConfig").Index(i)
		if seen[c.Name] {
			errs = append(errs, field.Duplicate(path, c.Name))
			continue
		}
		seen[c.Name] = true
		if isRemoved(c.Name) {
			errs = append(errs, removed(path, c.Name))
		}
		if f, err := registry.Find(c.Name); err == nil && f.NewArguments != nil && c.Args.Object != nil {
			errs = append(errs, f.Validate(path.Child("args"), c.Args.Object)...)
		}
	}
	return errs
}

// isRemoved reports whether version v1 no longer has the plugin.
func isRemoved(name string) bool {
	switch name {
	case "AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits":
		return true
	}
	return false
}

func removed(path *field.Path, name string) *field.Error {
	version := kubescheduler.SchemeGroupVersion.String()
	return field.Invalid(path, name, fmt.Sprintf("was invalid in version %q (KubeSchedulerConfiguration is version %q)", version, version))
}

// validateCommonQueueSort checks that all profiles order the one queue alike.
func validateCommonQueueSort(path *field.Path, profiles []kubescheduler.KubeSchedulerProfile) field.ErrorList {
	var errs field.ErrorList
	set := func(p kubescheduler.KubeSchedulerProfile) kubescheduler.PluginSet {
		return ptr.Deref(p.Plugins, kubescheduler.Plugins{}).QueueSort
	}
	arguments := func(p kubescheduler.KubeSchedulerProfile) any {
		for _, plugin := range set(p).Enabled {
			for _, c := range p.PluginConfig {
				if c.Name == plugin.Name {
					return c.Args
				}
			}
		}
		return nil
	}
	for i := 1; i < len(profiles); i++ {
		if !apiequality.Semantic.DeepEqual(set(profiles[0]), set(profiles[i])) {
			errs = append(errs, field.Invalid(path.Index(i).Child("plugins", "queueSort"), set(profiles[i]), "has to match for all profiles"))
		}
		if a := arguments(profiles[i]); !reflect.DeepEqual(arguments(profiles[0]), a) {
			errs = append(errs, field.Invalid(path.Index(i).Child("pluginConfig", "args"), a, "has to match for all profiles"))
		}
	}
	return errs
}

func validateExtenders(path *field.Path, extenders []kubescheduler.Extender) field.ErrorList {
	var errs field.ErrorList
	binders := 0
	managed := map[string]bool{}
	for i, e := range extenders {
		path := path.Index(i)
		if e.PrioritizeVerb != "" && e.Weight <= 0 {
			errs = append(errs, field.Invalid(path.Child("weight"), e.Weight, "must have a positive weight applied to it"))
		}
		if e.BindVerb != "" {
			binders++
		}
		for j, r := range e.ManagedResources {
			path := path.Child("managedResources").Index(j).Child("name")
			problems := validation.IsQualifiedName(r.Name)
			for _, problem := range problems {
				errs = append(errs, field.Invalid(path, r.Name, problem))
			}
			if len(problems) == 0 && !resourcelist.IsExtended(v1.ResourceName(r.Name)) {
				errs = append(errs, field.Invalid(path, r.Name, "is an invalid extended resource name"))
			}
			if managed[r.Name] {
				errs = append(errs, field.Invalid(path, r.Name, "duplicate extender managed resource name"))
			}
			managed[r.Name] = true
		}
	}
	if binders > 1 {
		errs = append(errs, field.Invalid(path, fmt.Sprintf("found %d extenders implementing bind", binders), "only one extender can implement bind"))
	}
	return errs
}
