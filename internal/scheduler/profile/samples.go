package profile

import (
	"context"
	"time"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// sampleEvery is of how many attempts one is measured plugin by plugin.
const sampleEvery = 10

// Counter is a metric that grows.
type Counter interface{ Add(float64) }

// samples measures single plugins. The cost for every attempt is one increment
// for each node; Filter and Score are timed on one node of one attempt in ten.
//
// The scheduling goroutine owns it, except for observe.
type samples struct {
	observe  func(point, plugin string, code framework.Code, took time.Duration) // nil: nothing is timed
	attempts uint64

	preFilter, filter, preScore, score []Counter // by position; nil: nothing is counted
	current                            *cycle    // whose filters are not counted yet
	scored                             []int     // evaluations of each score plugin in this attempt
}

func newSamples(o *Options, points *points) samples {
	s := samples{observe: o.ObservePlugin, scored: make([]int, len(points.score))}
	if o.Evaluations == nil {
		return s
	}
	s.preFilter = counters(o, "PreFilter", points.preFilter)
	s.filter = counters(o, "Filter", points.filter)
	s.preScore = counters(o, "PreScore", points.preScore)
	s.score = counters(o, "Score", points.score)
	return s
}

func counters[T framework.Plugin](o *Options, point string, plugins []T) []Counter {
	out := make([]Counter, 0, len(plugins))
	for _, plugin := range plugins {
		out = append(out, o.Evaluations(point, plugin.Name()))
	}
	return out
}

// begin begins an attempt.
func (s *samples) begin(c *cycle) {
	s.flushFilters()
	s.attempts++
	c.timed = s.observe != nil && s.attempts%sampleEvery == 0
	c.timeFilters = c.timed
	s.current = c
}

// evaluated counts one evaluation.
func evaluated(of []Counter, position int) {
	if of != nil {
		of[position].Add(1)
	}
}

// flushFilters counts the evaluations of filters since the last call. Filters
// are asked in order, so that those before the last one asked were asked too.
func (s *samples) flushFilters() {
	c := s.current
	if c == nil {
		return
	}
	if s.filter != nil {
		flush(s.filter, c.filters, c.asked)
		var signed []filter
		for _, f := range c.filters {
			if f.signed {
				signed = append(signed, f)
			}
		}
		flush(s.filter, signed, c.askedSigned)
		flush(s.filter, c.unsigned, c.askedUnsigned)
	}
	clear(c.asked)
	clear(c.askedSigned)
	clear(c.askedUnsigned)
}

// flush counts the evaluations of filters of which asked[i] times the first i
// were asked.
func flush(counters []Counter, filters []filter, asked []int) {
	n := 0
	for i := len(filters); i > 0; i-- {
		if n += asked[i]; n > 0 {
			counters[filters[i-1].position].Add(float64(n))
		}
	}
}

// flushScores counts the evaluations of score plugins.
func (s *samples) flushScores() {
	for i, n := range s.scored {
		if n > 0 && s.score != nil {
			s.score[i].Add(float64(n))
		}
		s.scored[i] = 0
	}
}

// began returns the time, if the attempt is timed.
func (c *cycle) began() time.Time {
	if c == nil || !c.timed {
		return time.Time{}
	}
	return time.Now()
}

// ran notes how long a plugin took that began at a time of began.
func (s *samples) ran(point string, plugin framework.Plugin, status *framework.Status, began time.Time) {
	if !began.IsZero() {
		s.observe(point, plugin.Name(), status.Code(), time.Since(began))
	}
}

// askTimed is askFilters with the time of each filter.
func (p *Profile) askTimed(ctx context.Context, c *cycle, state *framework.CycleState, pod *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	c.timeFilters = false
	var rejected *framework.Status
	for i, f := range c.filters {
		began := time.Now()
		s := f.Filter(ctx, state, pod, node)
		p.samples.ran("Filter", f, s, began)
		if s.IsSuccess() {
			continue
		}
		if !c.checkAll || !s.IsRejected() {
			c.asked[i+1]++
			return s
		}
		rejected = rejected.And(s)
	}
	c.asked[len(c.filters)]++
	return rejected
}

// timeScores times the score plugins on a node, which are asked once more for it.
func (p *Profile) timeScores(ctx context.Context, state *framework.CycleState, pod *framework.PodInfo, node *framework.NodeInfo, active []int) {
	for _, i := range active {
		began := time.Now()
		_, s := p.points.score[i].Score(ctx, state, pod, node)
		p.samples.ran("Score", p.points.score[i], s, began)
	}
}
