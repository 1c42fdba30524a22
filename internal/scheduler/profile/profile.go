// Package profile makes plugins of a configuration and runs them.
//
//	config.Profile + default plugins ──expand──► names by point ──Registry──► Profile
//	Profile.Run… (state, pod, …) ──► one Status per extension point
package profile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/coracle-io/coracle/internal/scheduler/config"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// Profile runs the plugins of one schedulerName.
type Profile struct {
	// Name is the schedulerName.
	Name string
	// PercentageOfNodesToScore is the profile's own; nil is the configuration's.
	PercentageOfNodesToScore *int32
	// Waiting are the pods of all profiles that Permit delays.
	Waiting *WaitingPods

	handle      *framework.Handle
	preBinding  *preBinding // of all profiles
	extenders   Extenders   // nil: none
	plugins     map[string]framework.Plugin
	points      points
	cycles      framework.StateKey[*cycle]
	observe     func(point string, code framework.Code, took time.Duration)
	observeWait func(code framework.Code, took time.Duration)
	// checkAll is Options.AlwaysCheckAllPredicates.
	checkAll bool
	sharing  *sharing // nil: every plugin is asked about every node
	samples  samples
	scores   []int64 // reused by RunScorePlugins
}

// points are the plugins of each extension point, in order.
type points struct {
	preEnqueue      []framework.PreEnqueuePlugin
	queueSort       []framework.QueueSortPlugin
	preFilter       []framework.PreFilterPlugin
	filter          []framework.FilterPlugin
	postFilter      []framework.PostFilterPlugin
	groupPostFilter []framework.PodGroupPostFilterPlugin
	preScore        []framework.PreScorePlugin
	score           []weightedScore
	reserve         []framework.ReservePlugin
	permit          []framework.PermitPlugin
	preBind         []framework.PreBindPlugin
	bind            []framework.BindPlugin
	postBind        []framework.PostBindPlugin
}

type weightedScore struct {
	framework.ScorePlugin
	normalize framework.ScoreNormalizer // nil: scores are in range
	weight    int64
}

// Options are the options of a profile.
type Options struct {
	Registry framework.Registry
	// Default is the multiPoint set of kube-scheduler, in its order.
	Default []config.Plugin
	Config  config.Profile
	// Handle is completed with FilterRunner, WaitingPods and CancelPreBind.
	Handle *framework.Handle
	// Extenders, if set, are asked after the plugins.
	Extenders Extenders
	// AlwaysCheckAllPredicates has every filter asked about a node.
	AlwaysCheckAllPredicates bool
	// Unshared has every plugin asked about every node, also for pods that are
	// alike.
	Unshared bool
	// Observe, if set, is called with the time that all plugins of an extension
	// point took.
	Observe func(point string, code framework.Code, took time.Duration)
	// ObserveWait, if set, is called with the time that a pod waited after
	// Permit.
	ObserveWait func(code framework.Code, took time.Duration)
	// ObservePlugin, if set, is called with the time that single plugins took,
	// for a sample of the attempts.
	ObservePlugin func(point, plugin string, code framework.Code, took time.Duration)
	// Evaluations, if set, returns the counter of a plugin's evaluations.
	Evaluations func(point, plugin string) Counter
}

// New makes the plugins. The error says which part of the configuration is wrong.
func New(ctx context.Context, o Options) (*Profile, error) {
	p := &Profile{
		Name: o.Config.SchedulerName, PercentageOfNodesToScore: o.Config.PercentageOfNodesToScore,
		Waiting: framework.Share(o.Handle, sharedWaiting, newWaitingPods), handle: o.Handle, plugins: map[string]framework.Plugin{}, observe: o.Observe, observeWait: o.ObserveWait, checkAll: o.AlwaysCheckAllPredicates,
		extenders: o.Extenders, preBinding: framework.Share(o.Handle, sharedPreBinding, newPreBinding),
	}
	p.cycles = framework.NewStateKey[*cycle](o.Handle)
	o.Handle.ProfileName, o.Handle.Filters, o.Handle.WaitingPods, o.Handle.CancelPreBind = p.Name, p, p.Waiting, p.preBinding.cancel
	multi := merge(o.Default, o.Config.Plugins.MultiPoint)
	for _, set := range slices.Concat([][]config.Plugin{multi}, enabled(&o.Config.Plugins)) {
		for _, plugin := range set {
			if err := p.make(ctx, &o, plugin.Name); err != nil {
				return nil, err
			}
		}
	}
	if err := p.expand(multi, &o.Config.Plugins); err != nil {
		return nil, err
	}
	switch {
	case len(p.points.queueSort) != 1:
		return nil, fmt.Errorf("profile %q: exactly one queue sort plugin is required, %d are enabled", p.Name, len(p.points.queueSort))
	case len(p.points.bind) == 0:
		return nil, fmt.Errorf("profile %q: at least one bind plugin is needed", p.Name)
	}
	if !o.Unshared {
		p.sharing = newSharing(&p.points)
	}
	p.samples = newSamples(&o, &p.points)
	return p, nil
}

func (p *Profile) make(ctx context.Context, o *Options, name string) error {
	if p.plugins[name] != nil {
		return nil
	}
	f, err := o.Registry.Find(name)
	if err != nil {
		return fmt.Errorf("profile %q: %w", p.Name, err)
	}
	arguments := f.DefaultArguments()
	for _, c := range o.Config.PluginConfig {
		if c.Name == name && c.Args != nil {
			arguments = c.Args
		}
	}
	plugin, err := f.New(ctx, arguments, o.Handle)
	if err != nil {
		return fmt.Errorf("profile %q: initializing plugin %q: %w", p.Name, name, err)
	}
	p.plugins[name] = plugin
	return nil
}

// merge applies a custom set to the default plugins of multiPoint.
func merge(defaults []config.Plugin, custom config.PluginSet) []config.Plugin {
	var out []config.Plugin
	replaced := map[string]bool{}
	if !slices.Contains(custom.Disabled, "*") {
		for _, d := range defaults {
			if slices.Contains(custom.Disabled, d.Name) {
				continue
			}
			if i := slices.IndexFunc(custom.Enabled, func(c config.Plugin) bool { return c.Name == d.Name }); i >= 0 {
				replaced[d.Name] = true
				d = custom.Enabled[i]
			}
			out = append(out, d)
		}
	}
	for _, c := range custom.Enabled {
		if !replaced[c.Name] {
			out = append(out, c)
		}
	}
	return out
}

func enabled(p *config.Plugins) [][]config.Plugin {
	return [][]config.Plugin{
		p.PreEnqueue.Enabled, p.QueueSort.Enabled, p.PreFilter.Enabled, p.Filter.Enabled, p.PostFilter.Enabled, p.PreScore.Enabled,
		p.Score.Enabled, p.Reserve.Enabled, p.Permit.Enabled, p.PreBind.Enabled, p.Bind.Enabled, p.PostBind.Enabled,
		p.PodGroupPostFilter.Enabled,
	}
}

// expand fills the points: plugins of multiPoint that a point names itself come
// first, then the others of multiPoint, then the rest of the point's own.
func (p *Profile) expand(multi []config.Plugin, own *config.Plugins) error {
	errs := []error{
		fill(p, &p.points.preEnqueue, "preEnqueue", multi, own.PreEnqueue),
		fill(p, &p.points.queueSort, "queueSort", multi, own.QueueSort),
		fill(p, &p.points.preFilter, "preFilter", multi, own.PreFilter),
		fill(p, &p.points.filter, "filter", multi, own.Filter),
		fill(p, &p.points.postFilter, "postFilter", multi, own.PostFilter),
		fill(p, &p.points.groupPostFilter, "podGroupPostFilter", multi, own.PodGroupPostFilter),
		fill(p, &p.points.preScore, "preScore", multi, own.PreScore),
		fill(p, &p.points.reserve, "reserve", multi, own.Reserve),
		fill(p, &p.points.permit, "permit", multi, own.Permit),
		fill(p, &p.points.preBind, "preBind", multi, own.PreBind),
		fill(p, &p.points.bind, "bind", multi, own.Bind),
		fill(p, &p.points.postBind, "postBind", multi, own.PostBind),
	}
	var scores []framework.ScorePlugin
	errs = append(errs, fill(p, &scores, "score", multi, own.Score))
	for _, s := range scores {
		w := weightedScore{ScorePlugin: s, weight: weight(s.Name(), own.Score.Enabled, multi)}
		w.normalize, _ = s.(framework.ScoreNormalizer)
		p.points.score = append(p.points.score, w)
	}
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func fill[T framework.Plugin](p *Profile, point *[]T, name string, multi []config.Plugin, own config.PluginSet) error {
	has := func(set []config.Plugin, name string) bool {
		return slices.ContainsFunc(set, func(c config.Plugin) bool { return c.Name == name })
	}
	var names []string
	for _, c := range own.Enabled {
		if has(multi, c.Name) {
			names = append(names, c.Name)
		}
	}
	if !slices.Contains(own.Disabled, "*") {
		for _, c := range multi {
			if _, implements := p.plugins[c.Name].(T); implements && !has(own.Enabled, c.Name) && !slices.Contains(own.Disabled, c.Name) {
				names = append(names, c.Name)
			}
		}
	}
	for _, c := range own.Enabled {
		if !has(multi, c.Name) {
			names = append(names, c.Name)
		}
	}
	for _, n := range names {
		plugin, implements := p.plugins[n].(T)
		if !implements {
			return fmt.Errorf("profile %q: plugin %q does not extend %s plugin", p.Name, n, name)
		}
		*point = append(*point, plugin)
	}
	return nil
}

func weight(name string, sets ...[]config.Plugin) int64 {
	for _, set := range sets {
		for _, c := range set {
			if c.Name == name && c.Weight != 0 {
				return c.Weight
			}
		}
	}
	return 1
}

// PreEnqueue returns the plugins that may gate pods.
func (p *Profile) PreEnqueue() []framework.PreEnqueuePlugin { return p.points.preEnqueue }

// EventFilters returns the plugins that know which pods an event cannot help.
func (p *Profile) EventFilters() []framework.EventFilterPlugin {
	var filters []framework.EventFilterPlugin
	for _, name := range slices.Sorted(maps.Keys(p.plugins)) {
		if f, ok := p.plugins[name].(framework.EventFilterPlugin); ok {
			filters = append(filters, f)
		}
	}
	return filters
}

// HandlesDeferredResizes reports whether a Permit plugin keeps pods in the queue whose
// resize the kubelet has deferred. Otherwise they must not come there: nothing would
// keep them from being bound again.
func (p *Profile) HandlesDeferredResizes() bool {
	return slices.ContainsFunc(p.points.permit, func(plugin framework.PermitPlugin) bool { return framework.HandlesDeferredResizes(plugin) })
}

// HasPostFilterPlugins reports whether any plugin makes room for pods.
func (p *Profile) HasPostFilterPlugins() bool { return len(p.points.postFilter) > 0 }

// QueueSort returns the plugin that orders the queue.
func (p *Profile) QueueSort() framework.QueueSortPlugin { return p.points.queueSort[0] }

// EventsToRegister returns the events of each plugin that can reject pods. A
// plugin that does not say waits for every event.
func (p *Profile) EventsToRegister(ctx context.Context) (map[string][]framework.ClusterEventWithHint, error) {
	out := map[string][]framework.ClusterEventWithHint{}
	for name, plugin := range p.plugins {
		e, ok := plugin.(framework.EnqueueExtensions)
		if !ok {
			out[name] = []framework.ClusterEventWithHint{{Event: framework.ClusterEvent{Resource: framework.WildCard, Action: framework.All}}}
			continue
		}
		events, err := e.EventsToRegister(ctx)
		if err != nil {
			return nil, fmt.Errorf("profile %q: events of plugin %q: %w", p.Name, name, err)
		}
		out[name] = events
	}
	return out, nil
}

// NewCycleState returns the state of a new attempt.
func (p *Profile) NewCycleState() *framework.CycleState { return framework.NewCycleState(p.handle) }

// took tells how long an extension point took.
func (p *Profile) took(point string, status *framework.Status, began time.Time) {
	if p.observe != nil {
		p.observe(point, status.Code(), time.Since(began))
	}
}

// Took tells how long an extension point took that the caller runs node by
// node. err is nil, a *framework.FitError or a failure.
func (p *Profile) Took(point string, err error, began time.Time) {
	p.samples.flushFilters()
	if p.observe == nil {
		return
	}
	code := framework.Success
	var unfit *framework.FitError
	if errors.As(err, &unfit) {
		code = framework.Unschedulable
	} else if err != nil {
		code = framework.Error
	}
	p.observe(point, code, time.Since(began))
}
