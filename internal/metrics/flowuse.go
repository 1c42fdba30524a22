package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
)

// FlowUse counts the requests of a flow schema at a priority level that wait or
// execute now, and their seats.
type FlowUse struct {
	Level, Schema                  string
	Waiting, WaitingSeats          int
	Executing, ExecutingSeats      int
	WaitingReading, WaitingWriting int
}

// FlowUses computes the current use when it is scraped, so that requests need
// not count it. It implements prometheus.Collector.
type FlowUses func() []FlowUse

var (
	inQueue        = flowDesc("current_inqueue_requests", beta+"Number of requests currently pending in queues of the API Priority and Fairness subsystem")
	inQueueSeats   = flowDesc("current_inqueue_seats", alpha+"Number of seats currently pending in queues of the API Priority and Fairness subsystem")
	executing      = flowDesc("current_executing_requests", beta+"Number of requests in initial (for a WATCH) or any (for a non-WATCH) execution stage in the API Priority and Fairness subsystem")
	executingSeats = flowDesc("current_executing_seats", beta+"Concurrency (number of seats) occupied by the currently executing (initial stage for a WATCH, any stage otherwise) requests in the API Priority and Fairness subsystem")
	allInQueue     = prometheus.NewDesc("apiserver_current_inqueue_requests", alpha+"Maximal number of queued requests in this apiserver per request kind in last second.", []string{"request_kind"}, nil)
)

func flowDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("apiserver_flowcontrol_"+name, help, []string{"priority_level", "flow_schema"}, nil)
}

// Describe implements prometheus.Collector.
func (FlowUses) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{inQueue, inQueueSeats, executing, executingSeats, allInQueue} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (uses FlowUses) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value int, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(value), labels...)
	}
	reading, writing := 0, 0
	for _, u := range uses() {
		gauge(inQueue, u.Waiting, u.Level, u.Schema)
		gauge(inQueueSeats, u.WaitingSeats, u.Level, u.Schema)
		gauge(executing, u.Executing, u.Level, u.Schema)
		gauge(executingSeats, u.ExecutingSeats, u.Level, u.Schema)
		reading += u.WaitingReading
		writing += u.WaitingWriting
	}
	gauge(allInQueue, reading, "readOnly")
	gauge(allInQueue, writing, "mutating")
}
