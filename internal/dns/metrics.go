package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/coracle-io/coracle/internal/httpserver"
	"github.com/coracle-io/coracle/internal/version"
)

// counts are the metrics of a server under CoreDNS's names, so that its dashboards
// and alerts work. There is one zone, the root, and one view, as in the
// configuration that kubeadm gives to CoreDNS. A nil counts counts nothing.
type counts struct {
	requests, responses       *prometheus.CounterVec
	do                        prometheus.Counter // of clients that want signatures
	duration                  prometheus.Observer
	requestSize, responseSize [2]prometheus.Observer // by UDP and TCP
	panics                    prometheus.Counter
	looked                    prometheus.Counter // in the cache of answers
	successes, denials        prometheus.Counter // that were found there
	refused                   prometheus.Counter // questions to resolvers, because there are too many
	forwarded                 *prometheus.HistogramVec

	// requested and responded are the counters of requests and responses that were
	// used: by TCP, IPv6 and type, and by who made the answer and its code. Looking
	// them up by their labels costs more than some answers.
	requested [2][2][rareType + 1]series
	responded [4][rareCode + 1]series

	mu        sync.Mutex // guards resolvers
	resolvers map[string]bool
}

// series is a counter of a vector, nil before it is used for the first time: the page
// shows nothing that never happened.
type series struct {
	counter atomic.Pointer[prometheus.Counter]
}

// get returns the counter, which is looked up once.
func (s *series) get(lookUp func() prometheus.Counter) prometheus.Counter {
	if c := s.counter.Load(); c != nil {
		return *c
	}
	c := lookUp()
	s.counter.Store(&c)
	return c
}

// The indexes of all types and codes that are not below.
const (
	rareType = 256
	rareCode = 32
)

// Who made an answer, by the names of CoreDNS's plugins.
const (
	byZone    = "kubernetes"
	byCache   = "cache"
	byForward = "forward"
)

// newCounts returns the metrics of a server that listens on a port, and registers
// them with r. entries returns how many answers are cached.
func newCounts(r prometheus.Registerer, port int, entries func() int) *counts {
	constant := prometheus.Labels{"server": "dns://:" + strconv.Itoa(port), "zone": ".", "view": ""}
	cached := prometheus.Labels{"server": constant["server"], "zones": ".", "view": ""}
	counter := func(name, help string, constant prometheus.Labels, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "coredns_" + name, Help: help, ConstLabels: constant}, labels)
		r.MustRegister(c)
		return c
	}
	histogram := func(name, help string, buckets []float64, constant prometheus.Labels, labels ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "coredns_" + name, Help: help, ConstLabels: constant, Buckets: buckets}, labels)
		r.MustRegister(h)
		return h
	}
	byProtocol := func(h *prometheus.HistogramVec) [2]prometheus.Observer {
		return [2]prometheus.Observer{h.WithLabelValues(protocols(false)), h.WithLabelValues(protocols(true))}
	}
	hits := counter("cache_hits_total", "The count of cache hits.", cached, "type")
	times := prometheus.ExponentialBuckets(0.00025, 2, 16)
	sizes := []float64{0, 100, 200, 300, 400, 511, 1023, 2047, 4095, 8291, 16e3, 32e3, 48e3, 64e3}
	v := version.Info()
	r.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "coredns_build_info", Help: "A metric with a constant '1' value labeled by version, revision, and goversion from which the server was built.",
			ConstLabels: prometheus.Labels{"version": v.GitVersion, "revision": v.GitCommit, "goversion": runtime.Version()},
		}, func() float64 { return 1 }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "coredns_cache_entries", Help: "The number of elements in the cache.", ConstLabels: prometheus.Labels{"server": cached["server"], "zones": ".", "view": "", "type": "any"},
		}, func() float64 { return float64(entries()) }),
	)
	return &counts{
		requests:     counter("dns_requests_total", "Counter of DNS requests made per zone, protocol and family.", constant, "proto", "family", "type"),
		responses:    counter("dns_responses_total", "Counter of response status codes.", constant, "rcode", "plugin"),
		do:           counter("dns_do_requests_total", "Counter of DNS requests with DO bit set per zone.", constant).WithLabelValues(),
		duration:     histogram("dns_request_duration_seconds", "Histogram of the time (in seconds) each request took per zone.", times, constant).WithLabelValues(),
		requestSize:  byProtocol(histogram("dns_request_size_bytes", "Size of the EDNS0 UDP buffer in bytes (64K for TCP) per zone and protocol.", sizes, constant, "proto")),
		responseSize: byProtocol(histogram("dns_response_size_bytes", "Size of the returned response in bytes.", sizes, constant, "proto")),
		panics:       counter("panics_total", "A metrics that counts the number of panics.", nil).WithLabelValues(),
		looked:       counter("cache_requests_total", "The count of cache requests.", cached).WithLabelValues(),
		successes:    hits.WithLabelValues("success"),
		denials:      hits.WithLabelValues("denial"),
		refused:      counter("forward_max_concurrent_rejects_total", "Counter of the number of queries rejected because the concurrent queries were at maximum.", nil).WithLabelValues(),
		forwarded:    histogram("proxy_request_duration_seconds", "Histogram of the time each request took.", times, prometheus.Labels{"proxy_name": byForward}, "to", "rcode"),
		resolvers:    map[string]bool{},
	}
}

// protocols returns the names of TCP and UDP.
func protocols(isTCP bool) string {
	if isTCP {
		return "tcp"
	}
	return "udp"
}

// answered counts an answer of so many bytes with a response code. by is who made it,
// "" for an answer of the server itself.
func (c *counts) answered(from net.Addr, query *dns.Msg, code, size int, by string, took time.Duration) {
	if c == nil {
		return
	}
	_, isTCP := from.(*net.TCPAddr)
	isIPv6 := addressOf(from).Is6()
	qtype := dns.TypeNone
	if len(query.Question) > 0 {
		qtype = query.Question[0].Qtype
	}
	if opt := query.IsEdns0(); opt != nil && opt.Do() {
		c.do.Inc()
	}
	c.requested[number(isTCP)][number(isIPv6)][min(int(qtype), rareType)].get(func() prometheus.Counter {
		family := "1"
		if isIPv6 {
			family = "2"
		}
		return c.requests.WithLabelValues(protocols(isTCP), family, typeName(qtype))
	}).Inc()
	index := rareCode
	if code >= 0 && code < rareCode {
		index = code
	}
	c.responded[makerNumber(by)][index].get(func() prometheus.Counter {
		return c.responses.WithLabelValues(codeName(code), by)
	}).Inc()
	c.duration.Observe(took.Seconds())
	c.requestSize[number(isTCP)].Observe(float64(query.Len()))
	c.responseSize[number(isTCP)].Observe(float64(size))
}

func number(is bool) int {
	if is {
		return 1
	}
	return 0
}

// makerNumber returns the index of who made an answer.
func makerNumber(by string) int {
	switch by {
	case byZone:
		return 1
	case byCache:
		return 2
	case byForward:
		return 3
	}
	return 0
}

// typeName returns the name of a query's type. Clients can ask for any number: rare
// types have one name.
func typeName(qtype uint16) string {
	switch qtype {
	case dns.TypeAAAA, dns.TypeA, dns.TypeCNAME, dns.TypeDNSKEY, dns.TypeDS, dns.TypeHTTPS, dns.TypeMX, dns.TypeNSEC3, dns.TypeNSEC, dns.TypeNS, dns.TypePTR,
		dns.TypeRRSIG, dns.TypeSOA, dns.TypeSRV, dns.TypeTXT, dns.TypeIXFR, dns.TypeAXFR, dns.TypeANY:
		return dns.TypeToString[qtype]
	}
	return "other"
}

// codeName returns the name of a response code, one name for all that have none.
func codeName(rcode int) string {
	if name, ok := dns.RcodeToString[rcode]; ok {
		return name
	}
	return "other"
}

func (c *counts) panicked() {
	if c != nil {
		c.panics.Inc()
	}
}

// lookedUp counts a look into the cache of answers, and what was found there; nil is
// nothing.
func (c *counts) lookedUp(found *dns.Msg) {
	if c == nil {
		return
	}
	c.looked.Inc()
	switch {
	case found == nil:
	case found.Rcode == dns.RcodeNameError || len(found.Answer) == 0:
		c.denials.Inc()
	default:
		c.successes.Inc()
	}
}

// tooMany counts a query that was not forwarded.
func (c *counts) tooMany() {
	if c != nil {
		c.refused.Inc()
	}
}

// maxResolvers bounds the names of resolvers: those of a machine that visits many
// networks change.
const maxResolvers = 32

// asked counts the answer of a resolver, or its failure.
func (c *counts) asked(server string, reply *dns.Msg, took time.Duration) {
	if c == nil {
		return
	}
	c.mu.Lock()
	if !c.resolvers[server] {
		if len(c.resolvers) < maxResolvers {
			c.resolvers[server] = true
		} else {
			server = "other"
		}
	}
	c.mu.Unlock()
	code := codeName(dns.RcodeServerFailure)
	if reply != nil {
		code = codeName(reply.Rcode)
	}
	c.forwarded.WithLabelValues(server, code).Observe(took.Seconds())
}

// How many connections of all clients, and of each, ask for metrics at a time.
const (
	maxScrapes          = 64
	maxScrapesPerClient = 8
)

// listenForMetrics opens the port of /metrics on each address: all of them or, with
// an error, none.
func (s *Server) listenForMetrics() (listeners []net.Listener, err error) {
	if s.config.MetricsPort == 0 {
		return nil, nil
	}
	defer func() {
		if err != nil {
			for _, l := range listeners {
				err = errors.Join(err, l.Close())
			}
		}
	}()
	scrapes := newQuota(maxScrapes, maxScrapesPerClient)
	for _, address := range s.config.Addresses {
		at := net.JoinHostPort(address, strconv.Itoa(s.config.MetricsPort))
		l, err := net.Listen("tcp", at)
		if err != nil {
			return listeners, fmt.Errorf("listen for requests for metrics on %s: %w", at, err)
		}
		listeners = append(listeners, listener{l, s.clients, scrapes})
	}
	return listeners, nil
}

// serveMetrics serves /metrics at a listener until ctx ends.
func (s *Server) serveMetrics(ctx context.Context, l net.Listener) error {
	pages := http.NewServeMux()
	pages.Handle("GET /metrics", s.config.Metrics.Handler())
	server := httpserver.New(ctx, pages, nil)
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
