// Package config holds the configuration of a scheduler: the internal form of
// KubeSchedulerConfiguration, without flags, versions or defaults of files.
// Decoders of files and flags fill it in; the scheduler only reads it.
package config

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/feature"
)

// Configuration configures one scheduler process. The zero value of each field
// is kube-scheduler's default.
type Configuration struct {
	// Profiles are the scheduler names that are served, over one queue and one
	// cache. Without any there is one, of the name default-scheduler.
	Profiles []Profile
	// PercentageOfNodesToScore is the share of the nodes that, once found
	// feasible, are enough; 0 lets it fall from 50 to 5 % as the cluster grows.
	PercentageOfNodesToScore int32
	// PodInitialBackoff is the back-off after the first failed attempt, doubled
	// by each further one up to PodMaxBackoff. 0 is 1 s and 10 s.
	PodInitialBackoff, PodMaxBackoff time.Duration
	// PodMaxInUnschedulablePods is how long a pod waits for an event before it
	// is tried all the same; 0 is 5 minutes.
	PodMaxInUnschedulablePods time.Duration
	// AlwaysCheckAllPredicates has every filter asked about a node, even if one
	// has rejected it. It is the field of Policy v1.
	AlwaysCheckAllPredicates bool
	// Extenders are asked after the plugins, in this order.
	Extenders []Extender
	// Features are the feature gates; nil is their defaults.
	Features *feature.Set
}

// Served returns the profiles with their defaults.
func (c *Configuration) Served() []Profile {
	if len(c.Profiles) == 0 {
		return []Profile{{SchedulerName: v1.DefaultSchedulerName}}
	}
	served := slices.Clone(c.Profiles)
	for i := range served {
		served[i].SchedulerName = cmp.Or(served[i].SchedulerName, v1.DefaultSchedulerName)
	}
	return served
}

// Profile is the behaviour of one schedulerName.
type Profile struct {
	SchedulerName string
	// PercentageOfNodesToScore overrides the value of the configuration.
	PercentageOfNodesToScore *int32
	// Plugins are changes to the default plugins.
	Plugins Plugins
	// PluginConfig holds arguments of plugins, each at most once.
	PluginConfig []PluginConfig
}

// Plugins changes the set of plugins of each extension point. MultiPoint
// changes all points that a plugin implements; the set of a point is stronger.
type Plugins struct {
	PreEnqueue, QueueSort, PreFilter, Filter, PostFilter, PreScore, Score PluginSet
	Reserve, Permit, PreBind, Bind, PostBind, MultiPoint                  PluginSet
	PodGroupPostFilter                                                    PluginSet
}

// PluginSet lists the plugins to add to the defaults and the defaults to leave
// out.
type PluginSet struct {
	// Enabled follow the defaults; one that is a default is moved and given its weight.
	Enabled []Plugin
	// Disabled are the names of defaults to leave out; "*" is all.
	Disabled []string
}

// Plugin names a plugin. Weight counts for Score alone; 0 is 1.
type Plugin struct {
	Name   string
	Weight int64
}

// PluginConfig is the arguments of a plugin.
type PluginConfig struct {
	Name string
	// Args is of the type that the Factory's NewArguments returns, with defaults
	// filled in, and valid.
	Args any
}

// Extender is a webhook that takes part in decisions (requirements of
// kubescheduler.config.k8s.io/v1 Extender).
type Extender struct {
	URLPrefix                                         string
	FilterVerb, PrioritizeVerb, PreemptVerb, BindVerb string
	Weight                                            int64
	EnableHTTPS                                       bool
	TLS                                               *ExtenderTLS
	HTTPTimeout                                       time.Duration
	NodeCacheCapable                                  bool
	ManagedResources                                  []ExtenderResource
	Ignorable                                         bool
}

// ExtenderTLS is the client side of an extender's HTTPS.
type ExtenderTLS struct {
	Insecure                  bool
	ServerName                string
	CertFile, KeyFile, CAFile string
	CertData, KeyData, CAData []byte
}

// ExtenderResource is an extended resource that an extender manages.
type ExtenderResource struct {
	Name string
	// IgnoredByScheduler leaves the resource out of NodeResourcesFit.
	IgnoredByScheduler bool
}
