// Package scheduler assigns pods to nodes.
//
//	informers ─► cache ──UpdateSnapshot──► Snapshot
//	    │                                     │
//	    ▼              ┌──── scheduling goroutine, one pod at a time ────┐      binding goroutines
//	  queue ──Pop────► PreFilter, Filter ─► Score ─► assume, Reserve, Permit ─► PreBind, Bind
//	    ▲                    │ no node fits                  │ rejected                │ failed
//	    │                    ▼                               ▼                         ▼
//	    └──AddUnschedulable─ PostFilter (preemption)      Unreserve, forget ◄──────────┘
//
// The scheduling goroutine owns the snapshot: it decides without locks, and
// pods that are assumed count in the next decision. Package framework and the
// plugins implement the profiles; this package names no plugin.
package scheduler

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/scheduler/cache"
	"github.com/coracle-io/coracle/internal/scheduler/config"
	"github.com/coracle-io/coracle/internal/scheduler/extender"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/all"
	"github.com/coracle-io/coracle/internal/scheduler/podgroup"
	"github.com/coracle-io/coracle/internal/scheduler/profile"
	"github.com/coracle-io/coracle/internal/scheduler/queue"
	"github.com/coracle-io/coracle/internal/supervise"
)

// DefaultName is the scheduler of pods that name none.
const DefaultName = v1.DefaultSchedulerName

// maxBindings and maxReports are how many bindings, and how many statuses of
// pods that were not scheduled, are written at a time. With more, the API
// server's fairness refuses some, which are then repeated a second later.
const (
	maxBindings = 64
	maxReports  = 64
)

// Config is the configuration of a scheduler.
type Config struct {
	Client *client.Client
	// Configuration has the profiles and settings. Its zero value is kube-scheduler's default.
	Configuration config.Configuration
	// Clock is for back-off; nil is the real one.
	Clock clock.WithTicker
	// Seed decides between equally good nodes.
	Seed uint64
	// Metrics counts what the scheduler does; nil is metrics of its own.
	Metrics *Metrics
	// Synced is called by Run once the cache and the queue have what is in the API
	// server; nil is not called.
	Synced func()
}

// Scheduler assigns the pods of its profiles' scheduler names.
type Scheduler struct {
	client    *client.Client
	profiles  map[string]*profile.Profile
	events    map[string][]framework.ClusterEventWithHint // all that are registered, by plugin
	recorders map[string]*recorder
	cache     *cache.Cache
	queue     *queue.Queue
	nominator *queue.Nominator
	groups    *podgroup.Groups
	statuses  *podStatuses
	algorithm *algorithm
	clock     clock.WithTicker
	metrics   *Metrics
	extenders *extender.Extenders // nil: none
	bindings  chan struct{}       // one for each binding that is being written
	writer    *statusWriter
	synced    func()
	features  *feature.Set
}

// New makes a scheduler; it does nothing until Run. The error says what is
// wrong with the configuration.
func New(ctx context.Context, c Config) (*Scheduler, error) {
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Metrics == nil {
		c.Metrics = NewMetrics(prometheus.NewRegistry())
	}
	if c.Synced == nil {
		c.Synced = func() {}
	}
	s := &Scheduler{
		client: c.Client, profiles: map[string]*profile.Profile{}, events: map[string][]framework.ClusterEventWithHint{},
		recorders: map[string]*recorder{}, cache: cache.New(), nominator: queue.NewNominator(), groups: podgroup.New(), clock: c.Clock, metrics: c.Metrics,
		algorithm: &algorithm{percentage: c.Configuration.PercentageOfNodesToScore, random: rand.New(rand.NewPCG(c.Seed, 0))},
		bindings:  make(chan struct{}, maxBindings), synced: c.Synced, features: c.Configuration.Features,
	}
	if len(c.Configuration.Extenders) > 0 {
		var err error
		if s.extenders, err = extender.New(c.Configuration.Extenders); err != nil {
			return nil, err
		}
	}
	o := queue.Options{
		Clock: c.Clock, Profiles: map[string]queue.Profile{},
		InitialBackoff: c.Configuration.PodInitialBackoff, MaxBackoff: c.Configuration.PodMaxBackoff,
		MaxUnschedulable: c.Configuration.PodMaxInUnschedulablePods,
		PopFromBackoff:   c.Configuration.Features.Enabled(feature.SchedulerPopFromBackoffQ),
		ObserveHint:      c.Metrics.hinted,
		ObservePreEnqueue: func(profile string, code framework.Code, took time.Duration) {
			c.Metrics.point("PreEnqueue", profile, code, took)
		},
		ObservePlugin: c.Metrics.plugin,
		Incoming: func(pod *v1.Pod, queue, event string) {
			c.Metrics.entered(pod, queue, event)
			if log := klog.FromContext(ctx).V(5); log.Enabled() { // thousands of pods may move at once
				log.Info("Pod moved to an internal scheduling queue", "pod", klog.KObj(pod), "event", event, "queue", queue)
			}
		},
	}
	activator, shared := &activator{}, map[string]any{}
	var sort framework.QueueSortPlugin
	for _, one := range c.Configuration.Served() {
		p, err := s.addProfile(ctx, &c, one, activator, shared)
		if err != nil {
			return nil, err
		}
		if sort != nil && sort.Name() != p.QueueSort().Name() {
			return nil, fmt.Errorf("profile %q: all profiles must have the same queue sort plugin: %s, not %s", p.Name, sort.Name(), p.QueueSort().Name())
		}
		sort = p.QueueSort()
		hints, err := p.EventsToRegister(ctx)
		if err != nil {
			return nil, err
		}
		for plugin, events := range hints {
			s.events[plugin] = append(s.events[plugin], events...)
		}
		hints[noNodes] = []framework.ClusterEventWithHint{{Event: framework.ClusterEvent{Resource: framework.Node, Action: framework.Add}}}
		if s.extenders != nil && s.extenders.IsFilter() { // any event may help a pod that an extender rejected
			hints[framework.ExtenderName] = []framework.ClusterEventWithHint{{Event: framework.ClusterEvent{Resource: framework.WildCard, Action: framework.All}}}
		}
		o.Profiles[p.Name] = queue.Profile{PreEnqueue: p.PreEnqueue(), EventFilters: p.EventFilters(), Hints: hints}
	}
	o.Less = sort.Less
	s.queue = queue.New(o)
	activator.queue = s.queue
	s.statuses = newPodStatuses(s.queue.Has)
	s.writer = &statusWriter{
		client: c.Client, nominator: s.nominator, statuses: s.statuses, slots: make(chan struct{}, maxReports),
		nominatesDecided: c.Configuration.Features.Enabled(feature.NominatedNodeNameForExpectation),
	}
	return s, nil
}

func (s *Scheduler) addProfile(ctx context.Context, c *Config, one config.Profile, activator *activator, shared map[string]any) (*profile.Profile, error) {
	name := one.SchedulerName
	if s.profiles[name] != nil {
		return nil, fmt.Errorf("profile %q is there twice", name)
	}
	s.recorders[name] = newRecorder(c.Client.Kubernetes, name)
	o := profile.Options{
		Registry: all.Registry(), Default: all.Default(c.Configuration.Features), Config: one, AlwaysCheckAllPredicates: c.Configuration.AlwaysCheckAllPredicates,
		Handle: &framework.Handle{
			Client: c.Client.Kubernetes, Informers: c.Client.Informers, Recorder: s.recorders[name],
			Nominator: s.nominator, Queue: activator, WriteNomination: func(ctx context.Context, pod *framework.PodInfo) {
				if pod.IsResizing() {
					return // its nomination is not written, and it keeps its room
				}
				s.writer.writeNomination(ctx, pod)
				s.event(framework.AssignedPod, framework.Delete, pod.Pod, nil)
			},
			Shared: shared, PodGroups: podGroups{s.groups, s.cache}, Bound: s.cache,
			Preemptions: preemptionMetrics{c.Metrics, c.Configuration.Features.Enabled(feature.GenericWorkload)}, Features: c.Configuration.Features,
			IsWanted:           activator.isWanted,
			ObserveVolumeError: func(operation string) { c.Metrics.volumeErrors.WithLabelValues(operation).Inc() },
			ObserveBindingConditions: func(driver, result string, took time.Duration) {
				c.Metrics.waitedForDevices(name, driver, result, took)
			},
			ObserveClaim: c.Metrics.claimed,
		},
		Observe: func(point string, code framework.Code, took time.Duration) { c.Metrics.point(point, name, code, took) },
		ObserveWait: func(code framework.Code, took time.Duration) {
			c.Metrics.permitWait.WithLabelValues(code.String()).Observe(took.Seconds())
		},
		ObservePlugin: c.Metrics.plugin,
		Evaluations: func(point, plugin string) profile.Counter {
			return c.Metrics.evaluations.WithLabelValues(plugin, point, name)
		},
	}
	if s.extenders != nil { // no interface may hold a nil pointer
		o.Extenders, o.Handle.Extenders = s.extenders, s.extenders
	}
	p, err := profile.New(ctx, o)
	s.profiles[name] = p
	return p, err
}

// podGroups implements framework.PodGroups.
type podGroups struct {
	*podgroup.Groups
	cache *cache.Cache
}

// NumPlaced implements framework.PodGroups.
func (g podGroups) NumPlaced(group types.NamespacedName) int { return g.cache.NumPlaced(group) }

// activator passes on to the queue, which is made after the plugins.
type activator struct{ queue *queue.Queue }

func (a *activator) Activate(pods ...*v1.Pod) { a.queue.Activate(pods...) }

func (a *activator) isWanted(pod types.UID) bool { return a.queue.Expects(pod) }

// Run schedules until ctx ends. It returns once everything it started has ended.
func (s *Scheduler) Run(ctx context.Context) error {
	defer s.metrics.show(s)()
	if s.extenders != nil {
		defer s.extenders.CloseIdleConnections()
	}
	return supervise.Run(ctx, func(ctx context.Context) error {
		for _, r := range s.recorders {
			supervise.Go(ctx, func() { r.run(ctx) })
		}
		return s.work(ctx)
	})
}

// work schedules pod after pod.
func (s *Scheduler) work(ctx context.Context) error {
	if err := s.watch(ctx); err != nil {
		return err
	}
	s.synced()
	supervise.Go(ctx, func() { s.forgetGonePods(ctx) })
	for name := range s.profiles {
		klog.FromContext(ctx).V(1).Info("Scheduling", "schedulerName", name)
	}
	for {
		pod, err := s.queue.Pop(ctx)
		if err != nil {
			return nil // ctx ended
		}
		s.schedule(ctx, pod)
	}
}

// runAsync runs work for an attempt in its own goroutine. A panic over one pod
// must not keep others from being scheduled: the attempt fails, and the pod is
// tried again later.
func (s *Scheduler) runAsync(ctx context.Context, a *attempt, work func()) {
	supervise.Go(ctx, func() {
		err := supervise.Call(func() error { work(); return nil })
		if err == nil {
			return
		}
		if a.bound { // a plugin panicked over a pod that has its node
			supervise.RecordPanic(ctx, err)
			return
		}
		again := supervise.Call(func() error { s.fail(ctx, a, err, nil); return nil })
		if again == nil {
			return
		}
		supervise.RecordPanic(ctx, again)
		pod := a.pod.Pod
		s.cache.Forget(pod.UID)
		a.pod.UnschedulablePlugins, a.pod.PendingPlugins = nil, nil
		s.queue.AddUnschedulable(a.pod)
		if !s.queue.Has(pod.UID) {
			s.leaveGroup(pod)
		}
		s.move(framework.ClusterEvent{Resource: framework.WildCard, Action: framework.All, Label: "AssignedPodDelete"}, nil, nil)
	})
}
