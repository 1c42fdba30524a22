package metrics

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coracle-io/coracle/internal/nativehistogram"
)

// Queues exposes the work queues of a component. It implements
// prometheus.Collector.
//
// Queues count by themselves. Values that depend on the current time, such as
// the age of unfinished work, are computed when they are scraped, so that idle
// queues cost nothing.
type Queues struct {
	mu     sync.Mutex // guards queues
	queues map[*Queue]bool
}

var (
	depth      = prometheus.NewDesc("workqueue_depth", beta+"Current depth of workqueue", []string{"name"}, nil)
	adds       = prometheus.NewDesc("workqueue_adds_total", beta+"Total number of adds handled by workqueue", []string{"name"}, nil)
	retries    = prometheus.NewDesc("workqueue_retries_total", beta+"Total number of retries handled by workqueue", []string{"name"}, nil)
	unfinished = prometheus.NewDesc("workqueue_unfinished_work_seconds", beta+"How many seconds of work has done that is in progress and hasn't been observed by work_duration. Large values indicate stuck threads. One can deduce the number of stuck threads by observing the rate at which this increases.", []string{"name"}, nil)
	longest    = prometheus.NewDesc("workqueue_longest_running_processor_seconds", beta+"How many seconds has the longest running processor for workqueue been running.", []string{"name"}, nil)
)

const (
	waitedName, waitedHelp = "workqueue_queue_duration_seconds", beta + "How long in seconds an item stays in workqueue before being requested."
	workedName, workedHelp = "workqueue_work_duration_seconds", beta + "How long in seconds processing an item from workqueue takes."
)

// NewQueues returns the queues of a component and registers them with r.
func NewQueues(r *Registry) *Queues {
	q := &Queues{queues: map[*Queue]bool{}}
	r.MustRegister(q)
	return q
}

// Describe implements prometheus.Collector.
func (q *Queues) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		depth, adds, retries, unfinished, longest,
		prometheus.NewDesc(waitedName, waitedHelp, []string{"name"}, nil), prometheus.NewDesc(workedName, workedHelp, []string{"name"}, nil),
	} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (q *Queues) Collect(out chan<- prometheus.Metric) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for s := range q.queues {
		s.collect(out)
	}
}

// Show shows a queue until hide is called. If several queues have the same
// name, only the latest is shown. A nil Queues shows nothing.
func (q *Queues) Show(s *Queue) (hide func()) {
	if q == nil {
		return func() {}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for other := range q.queues {
		if other.name == s.name {
			delete(q.queues, other)
		}
	}
	q.queues[s] = true
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.queues, s)
	}
}

// Queue counts the work of a work queue. Its methods may be called from any
// goroutine.
type Queue struct {
	name           string
	length         func() int
	adds, retries  atomic.Int64
	waited, worked prometheus.Histogram

	mu      sync.Mutex // guards the following
	working map[int]time.Time
	next    int
}

// NewQueue returns the counters of a queue. length returns how many items wait.
func NewQueue(name string, length func() int) *Queue {
	histogram := func(metric, help string) prometheus.Histogram {
		return nativehistogram.New(prometheus.HistogramOpts{
			Name: metric, Help: help, Buckets: prometheus.ExponentialBuckets(10e-9, 10, 10), ConstLabels: prometheus.Labels{"name": name},
		})
	}
	return &Queue{
		name: name, length: length, working: map[int]time.Time{},
		waited: histogram(waitedName, waitedHelp), worked: histogram(workedName, workedHelp),
	}
}

// Added counts an item that was added to the queue.
func (s *Queue) Added() { s.adds.Add(1) }

// Retried counts an item that will be added again later.
func (s *Queue) Retried() { s.retries.Add(1) }

// Taken records how long an item waited for a worker.
func (s *Queue) Taken(waited time.Duration) { s.waited.Observe(waited.Seconds()) }

// Work records that a worker starts on an item. The caller calls end when it is
// done.
func (s *Queue) Work() (end func()) {
	began := time.Now()
	s.mu.Lock()
	id := s.next
	s.next++
	s.working[id] = began
	s.mu.Unlock()
	return func() {
		s.mu.Lock()
		delete(s.working, id)
		s.mu.Unlock()
		s.worked.Observe(time.Since(began).Seconds())
	}
}

func (s *Queue) collect(out chan<- prometheus.Metric) {
	var total, most float64
	s.mu.Lock()
	for _, began := range s.working {
		running := time.Since(began).Seconds()
		total += running
		most = max(most, running)
	}
	s.mu.Unlock()
	gauge := func(d *prometheus.Desc, value float64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, s.name)
	}
	gauge(depth, float64(s.length()))
	gauge(unfinished, total)
	gauge(longest, most)
	out <- prometheus.MustNewConstMetric(adds, prometheus.CounterValue, float64(s.adds.Load()), s.name)
	out <- prometheus.MustNewConstMetric(retries, prometheus.CounterValue, float64(s.retries.Load()), s.name)
	out <- s.waited
	out <- s.worked
}
