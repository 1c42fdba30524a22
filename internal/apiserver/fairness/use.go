package fairness

import (
	"cmp"
	"maps"
	"slices"

	"github.com/coracle-io/coracle/internal/metrics"
)

// sortedLevels returns the levels, sorted by name.
func (c *Controller) sortedLevels() []*level {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.SortedFunc(maps.Values(c.levels), func(a, b *level) int { return cmp.Compare(a.name, b.name) })
}

// Usage returns what the requests of each flow schema are doing.
func (c *Controller) Usage() []metrics.FlowUse {
	uses := map[flowName]*metrics.FlowUse{}
	of := func(level, schema string) *metrics.FlowUse {
		name := flowName{level, schema}
		if uses[name] == nil {
			uses[name] = &metrics.FlowUse{Level: level, Schema: schema}
		}
		return uses[name]
	}
	for _, s := range c.rules.Load().schemas {
		of(s.level.name, s.name)
	}
	for _, l := range c.sortedLevels() {
		l.each(func(r *Request, _ int) {
			u := of(l.name, r.schema.name)
			switch {
			case r.stage == executing:
				u.Executing++
				u.ExecutingSeats += r.width
				return
			case isReading(r.info.Verb):
				u.WaitingReading++
			default:
				u.WaitingWriting++
			}
			u.Waiting++
			u.WaitingSeats += r.width
		})
	}
	all := make([]metrics.FlowUse, 0, len(uses))
	for _, u := range uses {
		all = append(all, *u)
	}
	return all
}

func isReading(verb string) bool {
	return verb == "get" || verb == "list" || verb == "watch" || verb == "head" || verb == "options"
}

// each visits the level's requests: those that wait, with their positions in
// their queues, and those that are executing, with -1.
func (l *level) each(visit func(r *Request, place int)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, q := range l.active {
		place := 0
		for r := range q.waiting.all {
			visit(r, place)
			place++
		}
	}
	for r := range l.executing.all {
		visit(r, -1)
	}
}
