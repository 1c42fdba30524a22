package proxy

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	checks "github.com/coracle-io/coracle/internal/health"
	"github.com/coracle-io/coracle/internal/httpserver"
	registry "github.com/coracle-io/coracle/internal/metrics"
	"github.com/coracle-io/coracle/internal/persistent"
	"github.com/coracle-io/coracle/internal/supervise"
)

// health reports whether the kernel follows the API: no change has waited to be
// applied for longer than timeout.
type health struct {
	timeout time.Duration

	mu          sync.Mutex // guards the following
	pending     time.Time  // since when a change waits; zero is none
	lastUpdated time.Time
	ineligible  bool // the node is about to be deleted
}

// healthTimeout is how long a change may wait by default.
const healthTimeout = time.Minute

func newHealth() *health { return &health{timeout: healthTimeout} }

func (h *health) queued() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.pending.IsZero() {
		h.pending = time.Now()
	}
}

func (h *health) applied() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pending, h.lastUpdated = time.Time{}, time.Now()
}

func (h *health) setEligible(eligible bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ineligible = !eligible
}

// isEligible reports whether load balancers may send new connections to a node
// (KEP-3836): not if it is being deleted, or the cluster autoscaler is about to
// delete it.
func isEligible(node *v1.Node) bool {
	const toBeDeleted = "ToBeDeletedByClusterAutoscaler"
	return node.DeletionTimestamp == nil && !slices.ContainsFunc(node.Spec.Taints, func(t v1.Taint) bool { return t.Key == toBeDeleted })
}

// healthy reports whether the kernel follows the API.
func (h *health) healthy() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.isHealthy(time.Now())
}

// isHealthy is healthy for a caller that holds the mutex.
func (h *health) isHealthy(now time.Time) bool {
	return !h.lastUpdated.IsZero() && (h.pending.IsZero() || now.Sub(h.pending) < h.timeout)
}

// healthz answers load balancers, which must not use a node that is about to be
// deleted.
func (h *health) healthz(w http.ResponseWriter, _ *http.Request) { h.answer(w, true) }

// livez answers liveness probes, after whose failure the proxy is restarted.
func (h *health) livez(w http.ResponseWriter, _ *http.Request) { h.answer(w, false) }

func (h *health) answer(w http.ResponseWriter, mustBeEligible bool) {
	now := time.Now()
	h.mu.Lock()
	healthy, eligible, updated := h.isHealthy(now), !h.ineligible, h.lastUpdated
	if healthy && h.pending.IsZero() {
		updated = now
	}
	h.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if !healthy || mustBeEligible && !eligible {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = fmt.Fprintf(w, `{"lastUpdated": %q,"currentTime": %q, "nodeEligible": %t}`, updated, now, eligible)
}

// servers are the proxy's HTTP servers.
type servers struct {
	ctx    context.Context
	health *health
	all    []*http.Server // except the servers in local

	mu    sync.Mutex // guards the following
	local map[uint16]*localServer
	// nodePorts are the ranges in which the local ones answer.
	nodePorts NodePortRanges
	// served are the ports of the last rules, checked those of them with a health check
	// node port.
	served  ServicePorts
	checked map[PortName]*ServicePort
	missing bool // a local server could not be started
}

// listen opens the health and metrics addresses, so that a taken port is an
// error of Run.
func (p *Proxy) listen(ctx context.Context) (*servers, error) {
	s := &servers{ctx: ctx, health: p.health, local: map[uint16]*localServer{}}
	healthz := http.NewServeMux()
	healthz.Handle("/healthz", counted(p.metrics.healthz, p.health.healthz))
	healthz.Handle("/livez", counted(p.metrics.livez, p.health.livez))
	metrics, results := http.NewServeMux(), registry.NewChecks()
	ping := checks.Handler("/healthz", results.Observed("healthz", []checks.Check{checks.Ping()})...)
	metrics.Handle("/healthz", ping)
	metrics.Handle("/healthz/", ping)
	metrics.Handle("/metrics", p.config.Metrics.Handler())
	metrics.Handle("/metrics/slis", results.Handler())
	metrics.HandleFunc("/proxyMode", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, p.config.Mode) })
	for path, page := range p.config.Pages {
		metrics.Handle(path, page)
	}
	for _, server := range []struct {
		name, address string
		handler       http.Handler
	}{{"healthz", p.config.HealthzAddress.String(), healthz}, {"metrics", p.config.MetricsAddress.String(), metrics}} {
		if server.address == "" {
			continue
		}
		running, err := s.serve(server.address, server.handler, nil)
		if err != nil {
			s.stop()
			return nil, fmt.Errorf("proxy's %s address %s cannot be used (choose another): %w", server.name, server.address, err)
		}
		s.all = append(s.all, running)
	}
	return s, nil
}

// serve serves at an address. at reports at which addresses of the node the server
// answers; nil is all.
func (s *servers) serve(address string, handler http.Handler, at func(netip.Addr) bool) (*http.Server, error) {
	listener, err := (&net.ListenConfig{}).Listen(s.ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	if at != nil {
		listener = chosenAddresses{listener, at}
	}
	server := httpserver.New(s.ctx, handler, nil)
	supervise.Go(s.ctx, func() { _ = server.Serve(httpserver.NewListener(listener)) })
	return server, nil
}

// chosenAddresses accepts the connections to some addresses of the node, and closes
// all others.
type chosenAddresses struct {
	net.Listener
	has func(netip.Addr) bool
}

func (l chosenAddresses) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		at, err := netip.ParseAddrPort(conn.LocalAddr().String())
		if err == nil && l.has(at.Addr().Unmap().WithZone("")) {
			return conn, nil
		}
		_ = conn.Close()
	}
}

// hasNodePorts reports whether node ports answer at an address of the node.
func (s *servers) hasNodePorts(a netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodePorts.Contains(a)
}

// stop closes all servers.
func (s *servers) stop() {
	for _, server := range s.all {
		_ = server.Close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.local {
		_ = l.server.Close()
	}
	clear(s.local)
}

// localServer answers load balancers for a Service with externalTrafficPolicy
// Local.
type localServer struct {
	health *health
	server *http.Server

	mu        sync.Mutex // guards the following
	service   types.NamespacedName
	endpoints int
}

func (l *localServer) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	healthy := l.health.healthy()
	l.mu.Lock()
	defer l.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(l.endpoints))
	if l.endpoints == 0 || !healthy {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{
		"service":             map[string]string{"namespace": l.service.Namespace, "name": l.service.Name},
		"localEndpoints":      l.endpoints,
		"serviceProxyHealthy": healthy,
	})
}

// localHealth starts and stops the servers for the Services'
// healthCheckNodePorts.
func (s *servers) localHealth(rules Rules) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodePorts = rules.NodePortRanges
	if same := s.follow(rules); same && !s.missing {
		return
	}
	s.missing = false
	wanted := healthChecks(s.checked)
	for number, check := range wanted {
		l := s.local[number]
		if l == nil {
			l = &localServer{health: s.health}
			server, err := s.serve(net.JoinHostPort("", strconv.Itoa(int(number))), l, s.hasNodePorts)
			if err != nil {
				klog.FromContext(s.ctx).Error(err, "Health check node port cannot be served", "service", check.service, "port", number)
				s.missing = true
				continue
			}
			l.server = server
			s.local[number] = l
		}
		l.mu.Lock()
		l.service, l.endpoints = check.service, check.endpoints()
		l.mu.Unlock()
	}
	for number, l := range s.local {
		if wanted[number] == nil {
			_ = l.server.Close()
			delete(s.local, number)
		}
	}
}

// follow makes s.checked what rules say, and reports whether it was that before. The caller
// must hold the mutex.
func (s *servers) follow(rules Rules) (same bool) {
	if same = true; s.checked == nil {
		s.checked = map[PortName]*ServicePort{}
	}
	persistent.Diff(s.served, rules.Services, func(name PortName) {
		p := rules.Services.Get(name)
		if p != nil && p.HealthCheckNodePort != 0 {
			s.checked[name], same = p, false
		} else if s.checked[name] != nil {
			delete(s.checked, name)
			same = false
		}
	})
	s.served = rules.Services
	return same
}

// healthCheck holds the local endpoints that the health check node port of a
// Service reports.
type healthCheck struct {
	service types.NamespacedName
	ready   map[v1.IPFamily]map[netip.Addr]bool // local endpoints of any port
}

// endpoints returns the number of ready local endpoints, in the family that has
// more: an endpoint may have an address of each.
func (c *healthCheck) endpoints() int {
	return max(len(c.ready[v1.IPv4Protocol]), len(c.ready[v1.IPv6Protocol]))
}

// healthChecks returns the health check node ports of ports that have one, by number.
func healthChecks(ports map[PortName]*ServicePort) map[uint16]*healthCheck {
	all := map[uint16]*healthCheck{}
	for name, port := range ports {
		check := all[port.HealthCheckNodePort]
		if check == nil {
			check = &healthCheck{service: name.NamespacedName, ready: map[v1.IPFamily]map[netip.Addr]bool{v1.IPv4Protocol: {}, v1.IPv6Protocol: {}}}
			all[port.HealthCheckNodePort] = check
		}
		for _, e := range port.ReadyLocal {
			check.ready[name.Family][e.Addr()] = true
		}
	}
	return all
}
