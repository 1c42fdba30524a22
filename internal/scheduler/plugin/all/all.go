// Package all lists the scheduler's plugins.
package all

import (
	"slices"

	kubescheduler "k8s.io/kube-scheduler/config/v1"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/scheduler/config"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/defaultbinder"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/defaultpreemption"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/deferredpodscheduling"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/dynamicresources"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/gangscheduling"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/imagelocality"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/interpodaffinity"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/nodeaffinity"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/nodedeclaredfeatures"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/nodelabel"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/nodename"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/nodeports"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/nodepreferavoidpods"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/noderesources"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/nodeunschedulable"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/nodevolumelimits"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/podtopologyspread"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/prioritysort"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/schedulinggates"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/selectorspread"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/serviceaffinity"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/tainttoleration"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/volumebinding"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/volumerestrictions"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/volumezone"
)

// Registry lists every plugin that a profile can name.
func Registry() framework.Registry {
	return framework.Registry{
		framework.Simple(schedulinggates.Plugin{}),
		framework.Simple(prioritysort.Plugin{}),
		nodeunschedulable.Factory(),
		framework.Simple(nodename.Plugin{}),
		nodedeclaredfeatures.Factory(),
		gangscheduling.Factory(),
		deferredpodscheduling.Factory(),
		tainttoleration.Factory(),
		nodeaffinity.Factory(),
		nodeports.Factory(),
		noderesources.FitFactory(),
		volumerestrictions.Factory(),
		nodevolumelimits.Factory(),
		volumebinding.Factory(),
		volumezone.Factory(),
		podtopologyspread.Factory(),
		interpodaffinity.Factory(),
		dynamicresources.Factory(),
		defaultpreemption.Factory(),
		noderesources.BalancedFactory(),
		imagelocality.Factory(),
		defaultbinder.Factory(),
		// of Policy, in no default profile
		selectorspread.Factory(),
		serviceaffinity.Factory(),
		nodelabel.Factory(),
		nodepreferavoidpods.Factory(),
		noderesources.ScorerFactory(noderesources.LeastAllocatedName, kubescheduler.LeastAllocated),
		noderesources.ScorerFactory(noderesources.MostAllocatedName, kubescheduler.MostAllocated),
		noderesources.ScorerFactory(noderesources.RatioName, kubescheduler.RequestedToCapacityRatio),
	}
}

// Default is the multiPoint set of a profile that changes nothing, in
// upstream's order and with upstream's weights.
func Default(features *feature.Set) []config.Plugin {
	plugins := []config.Plugin{
		{Name: schedulinggates.Name},
		{Name: prioritysort.Name},
		{Name: nodeunschedulable.Name},
		{Name: nodename.Name},
		{Name: tainttoleration.Name, Weight: 3},
		{Name: nodeaffinity.Name, Weight: 2},
		{Name: nodeports.Name},
		{Name: noderesources.FitName, Weight: 1},
		{Name: volumerestrictions.Name},
		{Name: nodevolumelimits.Name},
		{Name: volumebinding.Name},
		{Name: volumezone.Name},
		{Name: podtopologyspread.Name, Weight: 2},
		{Name: interpodaffinity.Name, Weight: 2},
		{Name: dynamicresources.Name, Weight: 2},
		{Name: defaultpreemption.Name},
		{Name: noderesources.BalancedName, Weight: 1},
		{Name: imagelocality.Name, Weight: 1},
		{Name: defaultbinder.Name},
		{Name: nodedeclaredfeatures.Name},
	}
	if features.Enabled(feature.GenericWorkload) {
		plugins = append(plugins, config.Plugin{Name: gangscheduling.Name})
	}
	if features.Enabled(feature.InPlacePodVerticalScalingSchedulerPreemption) {
		// Before NodeResourcesFit: a pod that a node's policy rejects waits for a change of that.
		plugins = slices.Insert(plugins, 0, config.Plugin{Name: deferredpodscheduling.Name})
	}
	return plugins
}
