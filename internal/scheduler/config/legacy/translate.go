package legacy

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubescheduler "k8s.io/kube-scheduler/config/v1"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/scheduler/plugin/nodelabel"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/serviceaffinity"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/utilization"
)

// Apply writes the policy into a configuration: its plugins replace the default
// ones of every profile, whose changes to single plugins stay, and its extenders
// are added. The error lists everything that is wrong with the policy.
func (p *Policy) Apply(cfg *kubescheduler.KubeSchedulerConfiguration) error {
	t := translation{
		filters: map[string]bool{}, weights: map[string]int64{}, arguments: map[string]runtime.Object{},
		labels: nodelabel.Arguments{}, affinity: serviceaffinity.Arguments{}, scorers: map[string]*kubescheduler.ScoringStrategy{},
	}
	t.predicates(p.Predicates)
	t.priorities(p.Priorities)
	t.extenders(p.Extenders)
	if w := p.HardPodAffinitySymmetricWeight; w != nil && (*w < 0 || *w > 100) {
		t.fail("hardPodAffinitySymmetricWeight: invalid value %d: not in valid range [0, 100]", *w)
	} else if w != nil {
		t.arguments[interPodAffinity] = &kubescheduler.InterPodAffinityArgs{HardPodAffinityWeight: w}
	}
	if err := errors.Join(t.errs...); err != nil {
		return err
	}
	plugins, configs, err := t.plugins(p.Predicates != nil, p.Priorities != nil)
	if err != nil {
		return err
	}
	if len(cfg.Profiles) == 0 {
		cfg.Profiles = []kubescheduler.KubeSchedulerProfile{{}}
	}
	for i := range cfg.Profiles {
		profile := &cfg.Profiles[i]
		own := plugins.DeepCopy()
		if profile.Plugins != nil {
			merge(own, profile.Plugins)
		}
		profile.Plugins = own
		for _, c := range configs {
			if slices.ContainsFunc(profile.PluginConfig, func(old kubescheduler.PluginConfig) bool { return old.Name == c.Name && len(old.Args.Raw) > 0 }) {
				return fmt.Errorf("the policy and pluginConfig both have arguments of plugin %q: choose one of them", c.Name)
			}
			profile.PluginConfig = slices.DeleteFunc(profile.PluginConfig, func(old kubescheduler.PluginConfig) bool { return old.Name == c.Name })
		}
		profile.PluginConfig = append(profile.PluginConfig, configs...)
	}
	cfg.Extenders = append(cfg.Extenders, t.made...)
	return nil
}

// translation collects the plugins of a policy.
type translation struct {
	filters   map[string]bool
	weights   map[string]int64
	arguments map[string]runtime.Object
	labels    nodelabel.Arguments
	affinity  serviceaffinity.Arguments
	strategy  kubescheduler.ScoringStrategyType // of NodeResourcesFit
	scorers   map[string]*kubescheduler.ScoringStrategy
	made      []kubescheduler.Extender
	errs      []error
}

func (t *translation) fail(format string, arguments ...any) {
	t.errs = append(t.errs, fmt.Errorf(format, arguments...))
}

func (t *translation) predicates(list []Predicate) {
	for _, p := range list {
		if a := p.Argument; a != nil {
			switch {
			case a.ServiceAffinity != nil && a.LabelsPresence == nil:
				t.filters[serviceAffinity] = true
				t.affinity.AffinityLabels = append(t.affinity.AffinityLabels, a.ServiceAffinity.Labels...)
			case a.LabelsPresence != nil && a.ServiceAffinity == nil:
				t.filters[nodeLabel] = true
				into := &t.labels.AbsentLabels
				if a.LabelsPresence.Presence {
					into = &t.labels.PresentLabels
				}
				*into = append(*into, a.LabelsPresence.Labels...)
			default:
				t.fail("exactly 1 predicate argument is required for predicate %q", p.Name)
			}
			continue
		}
		plugins, exists := predicatePlugins(p.Name)
		if !exists {
			t.fail("predicate type not found for %q", p.Name)
		}
		for _, plugin := range plugins {
			t.filters[plugin] = true
		}
	}
	for _, plugin := range mandatory() {
		t.filters[plugin] = true
	}
}

func (t *translation) priorities(list []Priority) {
	for _, p := range list {
		if p.Weight <= 0 || p.Weight >= math.MaxInt32 {
			t.fail("priority %s should have a positive weight applied to it or it has overflown", p.Name)
			continue
		}
		plugin, exists := priorityPlugin(p.Name)
		if p.Argument != nil {
			plugin, exists = t.custom(&p)
		}
		if !exists {
			t.fail("priority type not found for %q", p.Name)
			continue
		}
		if plugin == fit && p.Argument == nil {
			plugin = t.score(strategyOf(p.Name), &kubescheduler.ScoringStrategy{})
		}
		if plugin != "" {
			t.weights[plugin] += p.Weight
		}
	}
}

func strategyOf(priority string) kubescheduler.ScoringStrategyType {
	switch shortPriority(priority) {
	case mostRequested:
		return kubescheduler.MostAllocated
	case capacityRatio:
		return kubescheduler.RequestedToCapacityRatio
	}
	return kubescheduler.LeastAllocated
}

// score returns the plugin that scores resources by a strategy: NodeResourcesFit
// for the first strategy of the policy, a plugin of its own for another one.
func (t *translation) score(kind kubescheduler.ScoringStrategyType, s *kubescheduler.ScoringStrategy) string {
	if s.Type = kind; kind == kubescheduler.RequestedToCapacityRatio && s.RequestedToCapacityRatio == nil {
		s.RequestedToCapacityRatio = &kubescheduler.RequestedToCapacityRatioParam{Shape: utilization.LeastFirst()}
	}
	if t.strategy == "" || t.strategy == kind {
		t.strategy = kind
		t.arguments[fit] = &kubescheduler.NodeResourcesFitArgs{ScoringStrategy: s}
		return fit
	}
	plugin := scorerOf(kind)
	t.scorers[plugin] = s
	return plugin
}

// custom returns the plugin of a priority with an argument.
func (t *translation) custom(p *Priority) (plugin string, ok bool) {
	a := p.Argument
	given := 0
	for _, there := range []bool{a.ServiceAntiAffinity != nil, a.LabelPreference != nil, a.RequestedToCapacityRatio != nil} {
		if there {
			given++
		}
	}
	if given != 1 {
		t.fail("exactly 1 priority argument is required for priority %q", p.Name)
		return "", true
	}
	switch {
	case a.ServiceAntiAffinity != nil:
		t.affinity.AntiAffinityLabelsPreference = append(t.affinity.AntiAffinityLabelsPreference, a.ServiceAntiAffinity.Label)
		return serviceAffinity, true
	case a.LabelPreference != nil:
		into := &t.labels.AbsentLabelsPreference
		if a.LabelPreference.Presence {
			into = &t.labels.PresentLabelsPreference
		}
		*into = append(*into, a.LabelPreference.Label)
		return nodeLabel, true
	}
	r := a.RequestedToCapacityRatio
	return t.score(kubescheduler.RequestedToCapacityRatio, &kubescheduler.ScoringStrategy{
		Resources: r.Resources, RequestedToCapacityRatio: &kubescheduler.RequestedToCapacityRatioParam{Shape: r.Shape},
	}), true
}

func (t *translation) extenders(list []Extender) {
	for i, e := range list {
		out := e.Extender
		if e.EnableHTTPS != nil {
			out.EnableHTTPS = *e.EnableHTTPS
		}
		out.TLSConfig = e.TLSConfig
		timeout, err := duration(e.HTTPTimeout)
		if err != nil {
			t.fail("extenders[%d].httpTimeout: %w", i, err)
		}
		out.HTTPTimeout = timeout
		if out.PrioritizeVerb != "" && out.Weight <= 0 {
			t.fail("priority for extender %s should have a positive weight applied to it", out.URLPrefix)
		}
		t.made = append(t.made, out)
	}
}

// duration reads nanoseconds, as Policy wrote them, or a string such as "5s".
func duration(value any) (metav1.Duration, error) {
	var d metav1.Duration
	var err error
	switch v := value.(type) {
	case nil:
	case int64:
		d.Duration = time.Duration(v)
	case float64:
		d.Duration = time.Duration(v)
	case string:
		d.Duration, err = time.ParseDuration(v)
	default:
		err = fmt.Errorf("%v: want a duration such as 5s", v)
	}
	return d, err
}

// plugins returns the plugin sets and arguments. Plugins that are neither
// predicates nor priorities stay as they are by default.
func (t *translation) plugins(ownFilters, ownScores bool) (*kubescheduler.Plugins, []kubescheduler.PluginConfig, error) {
	p := &kubescheduler.Plugins{}
	enabled := map[string]*int32{}
	if ownFilters {
		off := missing(filters(), func(name string) bool { return t.filters[name] })
		p.PreFilter.Disabled, p.Filter.Disabled = off, slices.Clone(off)
		for name := range t.filters {
			if !slices.Contains(filters(), name) {
				enabled[name] = nil
			}
		}
	}
	if ownScores {
		off := missing(scores(), func(name string) bool { return t.weights[name] > 0 })
		p.PreScore.Disabled, p.Score.Disabled = off, slices.Clone(off)
		for name, weight := range t.weights {
			enabled[name] = ptr.To(int32(min(weight, math.MaxInt32)))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(enabled)) {
		p.MultiPoint.Enabled = append(p.MultiPoint.Enabled, kubescheduler.Plugin{Name: name, Weight: enabled[name]})
	}
	raw := map[string]any{}
	if t.filters[nodeLabel] || t.weights[nodeLabel] > 0 {
		raw[nodeLabel] = t.labels
	}
	if t.filters[serviceAffinity] || t.weights[serviceAffinity] > 0 {
		raw[serviceAffinity] = t.affinity
	}
	for name, strategy := range t.scorers {
		raw[name] = strategy
	}
	var configs []kubescheduler.PluginConfig
	for _, name := range slices.Sorted(maps.Keys(t.arguments)) {
		configs = append(configs, kubescheduler.PluginConfig{Name: name, Args: runtime.RawExtension{Object: t.arguments[name]}})
	}
	for _, name := range slices.Sorted(maps.Keys(raw)) {
		data, err := json.Marshal(raw[name])
		if err != nil {
			return nil, nil, err
		}
		configs = append(configs, kubescheduler.PluginConfig{Name: name, Args: runtime.RawExtension{Raw: data}})
	}
	return p, configs, nil
}

// missing lists the names that are not kept, as plugins to disable.
func missing(names []string, kept func(string) bool) []kubescheduler.Plugin {
	var out []kubescheduler.Plugin
	for _, name := range names {
		if !kept(name) {
			out = append(out, kubescheduler.Plugin{Name: name})
		}
	}
	return out
}
