// Package fairness shares a server's capacity among its clients: API
// priority and fairness (KEP-1040).
//
//	request ─ classify ─► FlowSchema ─► PriorityLevelConfiguration
//	                          │               ├─ Exempt   starts at once
//	                          │               └─ Limited  takes seats ─┬─ none free, Reject: refused
//	                          ▼ flow                                   └─ none free, Queue: waits
//	                 hand of queues (shuffle sharding) ─► queue ─► the queue with the least service goes next
//
// Every ten seconds the seats are divided among the levels again, according to
// the recent demand of each, within the limits on lending and borrowing in the
// configuration.
//
// A request that does not wait costs a scan of the compiled schemas and two
// short locks of its level. It allocates nothing.
package fairness

import (
	"context"
	"hash/maphash"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/metrics"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Config configures a Controller. All fields are required.
type Config struct {
	// Seats is how many requests of width one the server executes concurrently.
	Seats int
	// QueueTimeout bounds the time in a queue of requests without a deadline.
	QueueTimeout time.Duration
	Clock        clock.PassiveClock
	Metrics      *metrics.Fairness
}

// Controller admits requests. It is safe for concurrent use.
type Controller struct {
	seats        int
	queueTimeout time.Duration
	clock        clock.PassiveClock
	metrics      *metrics.Fairness
	seed         maphash.Seed
	rules        atomic.Pointer[rules]

	mu      sync.Mutex // guards the following
	schemas []*flowcontrolv1.FlowSchema
	objects []*flowcontrolv1.PriorityLevelConfiguration
	// levels are the configured levels, and former ones that still have
	// requests.
	levels map[string]*level
	counts map[flowName]*metrics.Flow
}

// flowName identifies a schema of a level.
type flowName struct{ level, schema string }

// New returns a controller with the mandatory objects only.
func New(c Config) *Controller {
	controller := &Controller{
		seats: c.Seats, queueTimeout: c.QueueTimeout, clock: c.Clock, metrics: c.Metrics, seed: maphash.MakeSeed(),
		levels: map[string]*level{}, counts: map[flowName]*metrics.Flow{},
	}
	controller.Configure(nil, nil)
	return controller
}

// Configure replaces the flow schemas and priority levels, and adds mandatory
// ones that are missing. Requests in progress keep their level. The caller must
// not change the objects afterwards.
func (c *Controller) Configure(schemas []*flowcontrolv1.FlowSchema, levels []*flowcontrolv1.PriorityLevelConfiguration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.schemas = withMandatory(schemas, bootstrap.MandatoryFlowSchemas, (*flowcontrolv1.FlowSchema).GetName)
	c.objects = withMandatory(levels, bootstrap.MandatoryPriorityLevelConfigurations, (*flowcontrolv1.PriorityLevelConfiguration).GetName)
	c.configure()
}

// withMandatory adds the mandatory objects that are missing.
func withMandatory[T any](have, mandatory []T, name func(T) string) []T {
	all := slices.Clone(have)
	for _, m := range mandatory {
		if !slices.ContainsFunc(have, func(h T) bool { return name(h) == name(m) }) {
			all = append(all, m)
		}
	}
	return all
}

// configure builds levels and rules from the objects. Callers hold mu.
func (c *Controller) configure() {
	now := c.clock.Now()
	configured := map[string]*level{}
	parts := map[string]shares{}
	total := 0.0
	for _, o := range c.objects {
		if (o.Spec.Type == flowcontrolv1.PriorityLevelEnablementLimited) != (o.Spec.Limited != nil) {
			continue // validation refuses this
		}
		s := sharesOf(o)
		l := c.levels[o.Name]
		if l == nil || l.exempt != s.exempt {
			l = newLevel(o.Name, s.exempt, now)
		}
		configured[o.Name], parts[o.Name] = l, s
		total += float64(s.nominal)
	}
	for name, l := range c.levels {
		if configured[name] == nil && !l.idle() {
			total += float64(l.shares.nominal) // a former level keeps its seats while it has requests
		}
	}
	for _, o := range c.objects {
		l := configured[o.Name]
		if l == nil {
			continue
		}
		l.removed, l.uid = false, []string{string(o.UID)}
		l.shares = parts[o.Name]
		l.configure(l.shares.limits(c.seats, total), queueingOf(o))
	}
	for name, l := range c.levels {
		switch {
		case configured[name] != nil:
		case l.idle():
			c.metrics.Forget(name)
		default:
			configured[name] = l
			l.removed = true
		}
	}
	c.levels = configured
	c.rules.Store(c.newRules())
	c.adjust(now)
}

func (c *Controller) newRules() *rules {
	usable := maps.Clone(c.levels)
	maps.DeleteFunc(usable, func(_ string, l *level) bool { return l.removed })
	known := map[flowName]*metrics.Flow{}
	r := newRules(c.schemas, usable, c.seed, func(level, schema string) *metrics.Flow {
		name := flowName{level, schema}
		if known[name] = c.counts[name]; known[name] == nil {
			known[name] = c.metrics.Flow(level, schema)
		}
		return known[name]
	})
	c.counts = known
	return r
}

// period is how often the seats are divided.
const period = 10 * time.Second

// Run divides the seats by demand every ten seconds, until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	supervise.Every(ctx, period, func() { c.divide(klog.FromContext(ctx)) })
	return nil
}

func (c *Controller) divide(log klog.Logger) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, l := range c.levels {
		if l.removed && l.idle() {
			log.V(3).Info("The last request of a removed priority level has ended", "priorityLevel", name)
			c.configure()
			return
		}
	}
	c.adjust(c.clock.Now())
}

// adjust gives each level seats according to its demand since the last call.
// Callers hold mu.
//
// A level gets at least its highest demand, up to its nominal seats, and the
// seats that it does not lend. The rest is divided in proportion to the
// smoothed demands. Exempt levels get what they use.
func (c *Controller) adjust(now time.Time) {
	names := slices.Sorted(maps.Keys(c.levels))
	remaining, least := 0, 0
	var claims []claim
	var limited []*level
	demands := map[string]metrics.SeatDemand{}
	for _, name := range names {
		l := c.levels[name]
		o, lim := l.observe(now)
		l.smoothed = o.smoothed(l.smoothed)
		remaining += lim.nominal
		var demanded claim
		if l.exempt {
			demanded = claim{lower: max(lim.lower, o.highest)}
			demanded.target = float64(demanded.lower)
			remaining -= demanded.lower
			l.allow(demanded.lower, now)
		} else {
			demanded = claim{lower: max(lim.lower, min(lim.nominal, o.highest)), upper: lim.upper}
			demanded.target = max(float64(demanded.lower), l.smoothed)
			least += demanded.lower
			claims, limited = append(claims, demanded), append(limited, l)
		}
		demands[name] = metrics.SeatDemand{
			Highest: float64(o.highest), Average: o.average, Deviation: o.deviation, Smoothed: l.smoothed, Target: demanded.target,
		}
	}
	if remaining < least {
		// There are not enough seats for the lower bounds: reduce all in
		// proportion.
		for i, l := range limited {
			claims[i] = claim{target: float64(claims[i].lower), lower: l.bounds().lower, upper: claims[i].lower}
		}
	}
	allocated, fraction := allocate(remaining, claims)
	for i, l := range limited {
		l.allow(allocated[i], now)
	}
	c.metrics.FairFraction(fraction)
	for _, name := range names {
		l := c.levels[name]
		lim := l.bounds()
		c.metrics.Demand(name, demands[name])
		c.metrics.Limits(name, metrics.SeatLimits{Nominal: lim.nominal, Lower: lim.lower, Upper: lim.upper, Current: l.allowed()})
	}
}
