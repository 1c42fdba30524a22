package main

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/component/base"
	"github.com/coracle-io/coracle/internal/proxy"
	"github.com/coracle-io/coracle/internal/proxy/iptables"
	"github.com/coracle-io/coracle/internal/proxy/nftables"
)

const (
	// mostServices is the number of Services of a crowded cluster, and
	// endpointsOfService how many endpoints each has.
	mostServices       = 10_000
	endpointsOfService = 10
	// servicesOfNamespace is how many Services a namespace has: a proxy serves so many
	// endpoints of one namespace only.
	servicesOfNamespace = 1000
	// changesMeasured is how many changes of endpoints are measured, as far as they fit
	// into changesTime. syncTimeout bounds the wait for one, and for the first rules.
	changesMeasured = 200
	changesTime     = time.Minute
	syncTimeout     = 5 * time.Minute
)

// benchService and benchSlice are a Service without a selector and its endpoints.
const (
	benchService = `{"apiVersion":"v1","kind":"Service","metadata":{"name":%q},"spec":{"ports":[{"name":"http","protocol":"TCP","port":80}]}}`
	benchSlice   = `{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":%q,"labels":{"kubernetes.io/service-name":%q}},
"addressType":"IPv4","ports":[{"name":"http","protocol":"TCP","port":8080}],"endpoints":[%s]}`
)

// serviceName returns the name of the i-th Service and of its EndpointSlice.
func serviceName(i int) types.NamespacedName {
	return types.NamespacedName{Namespace: fmt.Sprint("bench-services-", i/servicesOfNamespace), Name: fmt.Sprint("s", i)}
}

func slicePath(namespace string) string {
	return "/apis/discovery.k8s.io/v1/namespaces/" + namespace + "/endpointslices"
}

// endpointsOf returns the addresses of the endpoints of the i-th Service.
func endpointsOf(i int) []netip.Addr {
	var list []netip.Addr
	for k := range endpointsOfService {
		n := 1 + i*endpointsOfService + k
		list = append(list, netip.AddrFrom4([4]byte{10, byte(128 + n>>16), byte(n >> 8), byte(n)}))
	}
	return list
}

// endpointsJSON returns the elements of the field endpoints of an EndpointSlice.
func endpointsJSON(addresses []netip.Addr) string {
	var list []string
	for _, a := range addresses {
		list = append(list, fmt.Sprintf(`{"addresses":[%q],"conditions":{"ready":true}}`, a.String()))
	}
	return strings.Join(list, ",")
}

// fill creates Services until the cluster has n of them.
func (c *cluster) fill(ctx context.Context, s *settings, n int) error {
	if n <= c.services {
		return nil
	}
	l, err := newLoad(c.config)
	if err != nil {
		return err
	}
	defer l.close()
	for i := c.services; i < n; i++ {
		if i%servicesOfNamespace == 0 {
			if err := l.namespace(ctx, serviceName(i).Namespace); err != nil {
				return err
			}
		}
	}
	first := c.services
	if _, err := parallel(ctx, n-first, s.clients, func(ctx context.Context, i int) error {
		name := serviceName(first + i)
		if err := l.do(ctx, i, call{
			method: http.MethodPost, path: namespacesPath + "/" + name.Namespace + "/services", contentType: jsonType,
			body: fmt.Appendf(nil, benchService, name.Name),
		}); err != nil {
			return err
		}
		return l.do(ctx, i, call{
			method: http.MethodPost, path: slicePath(name.Namespace), contentType: jsonType,
			body: fmt.Appendf(nil, benchSlice, name.Name, name.Name, endpointsJSON(endpointsOf(first+i))),
		})
	}); err != nil {
		return err
	}
	c.services = n
	return nil
}

// proxyMode is a mode of the proxy that is measured.
type proxyMode struct {
	name, syncBudget, changeBudget string
	backend                        func(ns int) proxy.Backend
}

func proxyModes() []proxyMode {
	pods := []netip.Prefix{netip.MustParsePrefix("10.128.0.0/9")}
	return []proxyMode{
		{"nftables", "2 s", "20 ms", func(ns int) proxy.Backend {
			return nftables.New(nftables.Config{Table: "coracle-bench", ClusterCIDRs: pods, NetNS: ns})
		}},
		{"iptables", "", "", func(ns int) proxy.Backend {
			return iptables.New(iptables.Config{Owner: "coracle-bench", ClusterCIDRs: pods, NetNS: ns})
		}},
	}
}

// applied are rules that are in the kernel, and the time that the backend took for them.
type applied struct {
	rules proxy.Rules
	took  time.Duration
}

// observed is a backend that passes on what it has applied, the newest alone.
type observed struct {
	proxy.Backend
	applied chan applied // of one element
}

// Apply implements proxy.Backend.
func (o *observed) Apply(rules proxy.Rules) error {
	began := time.Now()
	if err := o.Backend.Apply(rules); err != nil {
		return err
	}
	took := time.Since(began)
	select {
	case <-o.applied:
	default:
	}
	o.applied <- applied{rules, took}
	return nil
}

// measureServices measures the proxy with several numbers of Services and in several
// modes: from its start to the first rules, and changes of one endpoint, from the request
// to the API server until they are in the kernel. The proxy is in this process, without
// a least time between two changes, and works in a network namespace of its own. CPU time
// is that of this process, the request included, and of the programs that it starts.
func measureServices(ctx context.Context, s *settings, c *cluster, t *table) error {
	b := &changing{c: c}
	used := map[string][]time.Duration{}
	counts := []int{mostServices / 100, mostServices / 10, mostServices}
	for _, n := range counts {
		if err := c.fill(ctx, s, n); err != nil {
			return err
		}
		for _, mode := range proxyModes() {
			if err := iptables.Installed(false); mode.name == "iptables" && err != nil {
				return err
			}
			cost, err := b.measure(ctx, mode, n, t)
			if err != nil {
				return fmt.Errorf("%s with %d Services: %w", mode.name, n, err)
			}
			used[mode.name] = append(used[mode.name], cost)
		}
	}
	for _, mode := range proxyModes() {
		costs := used[mode.name]
		budget := ""
		if mode.changeBudget != "" {
			budget = "1 (flat)"
		}
		t.add(fmt.Sprintf("CPU of a change, %d Services against %d, %s", counts[len(counts)-1], counts[0], mode.name), budget,
			"%.1f", float64(costs[len(costs)-1])/float64(costs[0]))
	}
	return nil
}

// changing changes endpoints of a cluster.
type changing struct {
	c       *cluster
	changes int // so far; each has an address of its own
}

// running is a proxy that runs.
type running struct {
	backend *observed
	ended   chan error // of one element
}

// await waits for rules that are in the kernel.
func (r *running) await(ctx context.Context, what string, met func(proxy.Rules) bool) (applied, error) {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	for {
		select {
		case a := <-r.backend.applied:
			if met(a.rules) {
				return a, nil
			}
		case err := <-r.ended:
			r.ended <- err
			return applied{}, fmt.Errorf("the proxy ended: %w", err)
		case <-ctx.Done():
			return applied{}, fmt.Errorf("wait for %s: %w", what, ctx.Err())
		}
	}
}

// measure measures a mode among n Services, and returns the CPU time of a change.
func (b *changing) measure(ctx context.Context, mode proxyMode, n int, t *table) (time.Duration, error) {
	ns, err := newNamespace()
	if err != nil {
		return 0, err
	}
	defer func() { _ = ns.Close() }()
	provider, err := client.NewRemote(b.c.config)
	if err != nil {
		return 0, err
	}
	own, err := provider.As("system:kube-proxy")
	if err != nil {
		return 0, err
	}
	r := &running{backend: &observed{Backend: mode.backend(int(ns)), applied: make(chan applied, 1)}, ended: make(chan error, 1)}
	p := proxy.New(proxy.Config{Client: own, NodeName: "bench", Backend: r.backend, Mode: mode.name})
	runContext, stop := context.WithCancel(ctx)
	began := time.Now()
	var running sync.WaitGroup
	running.Go(func() { r.ended <- base.Together(runContext, provider.Run, p.Run) })
	defer running.Wait()
	defer stop()

	first, err := r.await(ctx, "the first rules", func(rules proxy.Rules) bool { return rules.Services.Len() >= n })
	if err != nil {
		return 0, err
	}
	of := fmt.Sprintf("%d Services of %d endpoints, %s: ", n, endpointsOfService, mode.name)
	budget := ""
	if n == mostServices {
		budget = mode.syncBudget
	}
	t.add(of+"first sync", budget, "%.2f s, of which the kernel's %.2f s", time.Since(began).Seconds(), first.took.Seconds())

	before, err := ownCPU()
	if err != nil {
		return 0, err
	}
	took, applying, err := b.change(ctx, r, n)
	if err != nil {
		return 0, err
	}
	after, err := ownCPU()
	cost := (after - before) / time.Duration(len(took))
	t.add(of+"a change", mode.changeBudget, "p50 %.1f ms, p99 %.1f ms, of which the kernel's %.1f ms; CPU %.1f ms", milliseconds(took.quantile(0.5)),
		milliseconds(took.quantile(0.99)), milliseconds(applying.quantile(0.5)), milliseconds(cost))
	return cost, err
}

// change replaces endpoints of one after the other of n Services. It returns how long
// each change took, and how long the backend took for it.
func (b *changing) change(ctx context.Context, r *running, n int) (took, applying latencies, err error) {
	l, err := newLoad(b.c.config)
	if err != nil {
		return nil, nil, err
	}
	defer l.close()
	for began := time.Now(); len(took) == 0 || len(took) < changesMeasured && time.Since(began) < changesTime; {
		b.changes++
		i := b.changes * 37 % n
		to := netip.AddrFrom4([4]byte{10, 192, byte(b.changes >> 8), byte(b.changes)})
		name := proxy.PortName{NamespacedName: serviceName(i), Port: "http", Protocol: v1.ProtocolTCP, Family: v1.IPv4Protocol}
		sent := time.Now()
		if err := l.do(ctx, 0, call{
			method: http.MethodPatch, path: slicePath(name.Namespace) + "/" + name.Name, contentType: "application/merge-patch+json",
			body: fmt.Appendf(nil, `{"endpoints":[%s]}`, endpointsJSON(append(endpointsOf(i)[1:], to))),
		}); err != nil {
			return nil, nil, err
		}
		a, err := r.await(ctx, "a change", func(rules proxy.Rules) bool {
			p := rules.Services.Get(name)
			return p != nil && slices.Contains(p.Cluster, netip.AddrPortFrom(to, 8080))
		})
		if err != nil {
			return nil, nil, err
		}
		took, applying = append(took, time.Since(sent)), append(applying, a.took)
	}
	return sorted(took), sorted(applying), nil
}

// ownCPU returns the CPU time of this process and of the programs that it has run.
func ownCPU() (time.Duration, error) {
	var sum time.Duration
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var u unix.Rusage
		if err := unix.Getrusage(who, &u); err != nil {
			return 0, err
		}
		sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return sum, nil
}
