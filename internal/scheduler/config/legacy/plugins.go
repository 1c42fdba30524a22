package legacy

import (
	"slices"

	kubescheduler "k8s.io/kube-scheduler/config/v1"
)

// pointSets are changes to the default plugins, by the extension points of
// KubeSchedulerConfiguration v1alpha1.
type pointSets struct {
	QueueSort *kubescheduler.PluginSet `json:"queueSort,omitempty"`
	PreFilter *kubescheduler.PluginSet `json:"preFilter,omitempty"`
	Filter    *kubescheduler.PluginSet `json:"filter,omitempty"`
	// PostFilter is what PreScore is since v1alpha2: it ran if nodes passed the filters.
	PostFilter *kubescheduler.PluginSet `json:"postFilter,omitempty"`
	Score      *kubescheduler.PluginSet `json:"score,omitempty"`
	Reserve    *kubescheduler.PluginSet `json:"reserve,omitempty"`
	Permit     *kubescheduler.PluginSet `json:"permit,omitempty"`
	PreBind    *kubescheduler.PluginSet `json:"preBind,omitempty"`
	Bind       *kubescheduler.PluginSet `json:"bind,omitempty"`
	PostBind   *kubescheduler.PluginSet `json:"postBind,omitempty"`
	// Unreserve is part of Reserve since v1beta1.
	Unreserve *kubescheduler.PluginSet `json:"unreserve,omitempty"`
}

// addTo adds the changes to those of a profile.
func (p *pointSets) addTo(profile *kubescheduler.Plugins) {
	for _, point := range []struct{ from, into *kubescheduler.PluginSet }{
		{p.QueueSort, &profile.QueueSort}, {p.PreFilter, &profile.PreFilter}, {p.Filter, &profile.Filter}, {p.PostFilter, &profile.PreScore},
		{p.Score, &profile.Score}, {p.Reserve, &profile.Reserve}, {p.Unreserve, &profile.Reserve}, {p.Permit, &profile.Permit},
		{p.PreBind, &profile.PreBind}, {p.Bind, &profile.Bind}, {p.PostBind, &profile.PostBind},
	} {
		if point.from != nil {
			add(point.into, point.from)
		}
	}
}

// merge adds the changes of one profile to those of another.
func merge(into, from *kubescheduler.Plugins) {
	sets := func(p *kubescheduler.Plugins) []*kubescheduler.PluginSet {
		return []*kubescheduler.PluginSet{
			&p.QueueSort, &p.PreFilter, &p.Filter, &p.PostFilter, &p.PreScore, &p.Score, &p.Reserve, &p.Permit, &p.PreBind, &p.Bind, &p.PostBind,
		}
	}
	for i, set := range sets(into) {
		add(set, sets(from)[i])
	}
}

// add adds the changes of one set to another, each plugin once.
func add(into, from *kubescheduler.PluginSet) {
	for _, list := range []struct {
		into *[]kubescheduler.Plugin
		from []kubescheduler.Plugin
	}{{&into.Enabled, from.Enabled}, {&into.Disabled, from.Disabled}} {
		for _, plugin := range list.from {
			if !slices.ContainsFunc(*list.into, func(p kubescheduler.Plugin) bool { return p.Name == plugin.Name }) {
				*list.into = append(*list.into, plugin)
			}
		}
	}
}
