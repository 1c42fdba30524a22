// Package fairness divides a server's capacity among its clients: API
// priority and fairness (KEP-1040).
//
//	request ─ classify ─► FlowSchema ─► PriorityLevelConfiguration
//	                          │               ├─ Exempt   begins at once
//	                          │               └─ Limited  takes seats ─┬─ all taken, Reject: refused
//	                          ▼ flow                                   └─ all taken, Queue: waits
//	                 hand of queues (shuffle sharding) ─► queue ─► the one furthest behind goes next
//
// Every ten seconds the levels' seats are divided anew by what each could
// have used of late, within what the configuration lets it lend and borrow.
//
// A request that need not wait costs a walk along the compiled schemas and
// two short locks of its level. It allocates nothing.
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
)

// Config is what a controller is made of. All fields are required.
type Config struct {
	// Seats are how many requests of ordinary width the server executes at a time.
	Seats int
	// Patience bounds the time in a queue of requests without a deadline.
	Patience time.Duration
	Clock    clock.PassiveClock
	Metrics  *metrics.Fairness
}

// Controller lets requests begin. Its methods may be called from any
// goroutine.
type Controller struct {
	seats    int
	patience time.Duration
	clock    clock.PassiveClock
	metrics  *metrics.Fairness
	seed     maphash.Seed
	rules    atomic.Pointer[rules]

	mu      sync.Mutex // guards the following
	schemas []*flowcontrolv1.FlowSchema
	objects []*flowcontrolv1.PriorityLevelConfiguration
	// levels are those that are configured, and those that no longer are but
	// still have requests.
	levels map[string]*level
	counts map[flowName]*metrics.Flow
}

// flowName is a schema at a level.
type flowName struct{ level, schema string }

// New returns a controller that knows the mandatory objects alone.
func New(c Config) *Controller {
	controller := &Controller{
		seats: c.Seats, patience: c.Patience, clock: c.Clock, metrics: c.Metrics, seed: maphash.MakeSeed(),
		levels: map[string]*level{}, counts: map[flowName]*metrics.Flow{},
	}
	controller.Configure(nil, nil)
	return controller
}

// Configure replaces what requests are classified by. The mandatory objects
// are there even if they are missing. Requests under way stay where they are.
// The objects must not change afterwards.
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

// configure makes levels and rules of the objects. The caller holds mu.
func (c *Controller) configure() {
	now := c.clock.Now()
	configured := map[string]*level{}
	parts := map[string]shares{}
	total := 0.0
	for _, o := range c.objects {
		if (o.Spec.Type == flowcontrolv1.PriorityLevelEnablementLimited) != (o.Spec.Limited != nil) {
			continue // which validation does not let through
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
			total += float64(l.shares.nominal) // it keeps its seats as long as it has requests
		}
	}
	for _, o := range c.objects {
		l := configured[o.Name]
		if l == nil {
			continue
		}
		l.gone, l.uid = false, []string{string(o.UID)}
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
			l.gone = true
		}
	}
	c.levels = configured
	c.rules.Store(c.newRules())
	c.adjust(now)
}

func (c *Controller) newRules() *rules {
	usable := maps.Clone(c.levels)
	maps.DeleteFunc(usable, func(_ string, l *level) bool { return l.gone })
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

// period is how often the seats are divided anew.
const period = 10 * time.Second

// Run divides the seats by demand until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			c.divide(klog.FromContext(ctx))
		}
	}
}

func (c *Controller) divide(log klog.Logger) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, l := range c.levels {
		if l.gone && l.idle() {
			log.V(3).Info("The last request of a removed priority level has ended", "priorityLevel", name)
			c.configure()
			return
		}
	}
	c.adjust(c.clock.Now())
}

// adjust gives each level the seats that its demand since the last time calls
// for. The caller holds mu.
//
// A level keeps at least what it needed at most, up to its nominal seats, and
// what it does not lend. The rest is divided in proportion to the smoothed
// demands. Levels that are exempt take what they take.
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
		var wanted claim
		if l.exempt {
			wanted = claim{lower: max(lim.lower, o.highest)}
			wanted.target = float64(wanted.lower)
			remaining -= wanted.lower
			l.allow(wanted.lower, now)
		} else {
			wanted = claim{lower: max(lim.lower, min(lim.nominal, o.highest)), upper: lim.upper}
			wanted.target = max(float64(wanted.lower), l.smoothed)
			least += wanted.lower
			claims, limited = append(claims, wanted), append(limited, l)
		}
		demands[name] = metrics.SeatDemand{
			Highest: float64(o.highest), Average: o.average, Deviation: o.deviation, Smoothed: l.smoothed, Target: wanted.target,
		}
	}
	if remaining < least {
		// Not even what is needed is there: all lend the same part of it.
		for i, l := range limited {
			claims[i] = claim{target: float64(claims[i].lower), lower: l.bounds().lower, upper: claims[i].lower}
		}
	}
	allotted, fraction := allocate(remaining, claims)
	for i, l := range limited {
		l.allow(allotted[i], now)
	}
	c.metrics.FairFraction(fraction)
	for _, name := range names {
		l := c.levels[name]
		lim := l.bounds()
		c.metrics.Demand(name, demands[name])
		c.metrics.Limits(name, metrics.SeatLimits{Nominal: lim.nominal, Lower: lim.lower, Upper: lim.upper, Current: l.allowed()})
	}
}
