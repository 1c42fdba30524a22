package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Fairness counts requests in API priority and fairness (KEP-1040). Its methods
// may be called from any goroutine.
type Fairness struct {
	dispatched, rejected, noRoom               *prometheus.CounterVec
	waited, executed, width, length            *prometheus.HistogramVec
	nominal, lower, upper, current             *prometheus.GaugeVec
	highest, average, deviation, smooth, share *prometheus.GaugeVec
	fraction                                   prometheus.Gauge
}

func newFairness(r *Registry) *Fairness {
	const level, schema = "priority_level", "flow_schema"
	durations := []float64{0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30}
	name := func(s string) string { return "apiserver_flowcontrol_" + s }
	fraction := r.gauge(name("seat_fair_frac"), alpha+"Fair fraction of server's concurrency to allocate to each priority level that can use it")
	return &Fairness{
		dispatched: r.counter(name("dispatched_requests_total"), beta+"Number of requests executed by API Priority and Fairness subsystem", level, schema),
		rejected:   r.counter(name("rejected_requests_total"), beta+"Number of requests rejected by API Priority and Fairness subsystem", level, schema, "reason"),
		noRoom:     r.counter(name("request_dispatch_no_accommodation_total"), alpha+"Number of times a dispatch attempt resulted in a non accommodation due to lack of available seats", level, schema),
		waited:     r.histogram(name("request_wait_duration_seconds"), beta+"Length of time a request spent waiting in its queue", durations, level, schema, "execute"),
		executed:   r.histogram(name("request_execution_seconds"), alpha+"Duration of initial stage (for a WATCH) or any (for a non-WATCH) stage of request execution in the API Priority and Fairness subsystem", durations, level, schema, "type"),
		width: r.histogram(name("work_estimated_seats"), alpha+"Number of estimated seats (maximum of initial and final seats) associated with requests in API Priority and Fairness",
			[]float64{1, 2, 4, 8, 16, 32, 64, 100}, level, schema),
		length: r.histogram(name("request_queue_length_after_enqueue"), alpha+"Length of queue in the API Priority and Fairness subsystem, as seen by each request after it is enqueued",
			[]float64{0, 10, 25, 50, 100, 250, 500, 1000}, level, schema),
		nominal:   r.gauge(name("nominal_limit_seats"), beta+"Nominal number of execution seats configured for each priority level", level),
		lower:     r.gauge(name("lower_limit_seats"), alpha+"Configured lower bound on number of execution seats available to each priority level", level),
		upper:     r.gauge(name("upper_limit_seats"), alpha+"Configured upper bound on number of execution seats available to each priority level", level),
		current:   r.gauge(name("current_limit_seats"), alpha+"current derived number of execution seats available to each priority level", level),
		highest:   r.gauge(name("demand_seats_high_watermark"), alpha+"High watermark, over last adjustment period, of demand_seats", level),
		average:   r.gauge(name("demand_seats_average"), alpha+"Time-weighted average, over last adjustment period, of demand_seats", level),
		deviation: r.gauge(name("demand_seats_stdev"), alpha+"Time-weighted standard deviation, over last adjustment period, of demand_seats", level),
		smooth:    r.gauge(name("demand_seats_smoothed"), alpha+"Smoothed seat demands", level),
		share:     r.gauge(name("target_seats"), alpha+"Seat allocation targets", level),
		fraction:  fraction.WithLabelValues(),
	}
}

// Flow counts the requests of a flow schema at a priority level. Counting does
// not allocate, except for rejections.
type Flow struct {
	Dispatched, NoRoom prometheus.Counter
	// Waited and GaveUp are the seconds in a queue: of requests that were
	// executed, and of requests that were not.
	Waited, GaveUp prometheus.Observer
	// Executed are the seconds that requests held their seats, Begun the seconds of
	// watches until they were initialized.
	Executed, Begun prometheus.Observer
	Width, Length   prometheus.Observer
	rejected        *prometheus.CounterVec
	level, schema   string
}

// Flow returns the counts of a flow schema at a priority level.
func (m *Fairness) Flow(level, schema string) *Flow {
	return &Flow{
		Dispatched: m.dispatched.WithLabelValues(level, schema), NoRoom: m.noRoom.WithLabelValues(level, schema),
		Waited: m.waited.WithLabelValues(level, schema, "true"), GaveUp: m.waited.WithLabelValues(level, schema, "false"),
		Executed: m.executed.WithLabelValues(level, schema, "regular"), Begun: m.executed.WithLabelValues(level, schema, "watch"),
		Width: m.width.WithLabelValues(level, schema), Length: m.length.WithLabelValues(level, schema),
		rejected: m.rejected, level: level, schema: schema,
	}
}

// Rejected counts a rejected request.
func (f *Flow) Rejected(reason string) {
	f.rejected.WithLabelValues(f.level, f.schema, reason).Inc()
}

// SeatLimits are the limits of a priority level's seats.
type SeatLimits struct{ Nominal, Lower, Upper, Current int }

// Limits sets the limits of a priority level.
func (m *Fairness) Limits(level string, l SeatLimits) {
	m.nominal.WithLabelValues(level).Set(float64(l.Nominal))
	m.lower.WithLabelValues(level).Set(float64(l.Lower))
	m.upper.WithLabelValues(level).Set(float64(l.Upper))
	m.current.WithLabelValues(level).Set(float64(l.Current))
}

// SeatDemand is the recent demand for seats of a priority level.
type SeatDemand struct{ Highest, Average, Deviation, Smoothed, Target float64 }

// Demand sets the demand of a priority level.
func (m *Fairness) Demand(level string, d SeatDemand) {
	m.highest.WithLabelValues(level).Set(d.Highest)
	m.average.WithLabelValues(level).Set(d.Average)
	m.deviation.WithLabelValues(level).Set(d.Deviation)
	m.smooth.WithLabelValues(level).Set(d.Smoothed)
	m.share.WithLabelValues(level).Set(d.Target)
}

// FairFraction sets the fraction of its target that each level gets if its
// limits allow it.
func (m *Fairness) FairFraction(f float64) { m.fraction.Set(f) }

// Forget removes the metrics of a deleted priority level.
func (m *Fairness) Forget(level string) {
	for _, g := range []*prometheus.GaugeVec{m.nominal, m.lower, m.upper, m.current, m.highest, m.average, m.deviation, m.smooth, m.share} {
		g.DeleteLabelValues(level)
	}
}
