// Package proxy makes Services reachable on one node. It computes Rules, a
// value, out of Services, EndpointSlices and the node's pods, and hands each
// new value to a Backend, which brings the kernel from the last one to it.
//
//	informers ──changed Service──► state ──Rules──► Backend (nftables, ...)
//	                                 │                 one transaction
//	        only what changed is computed again        of the difference
package proxy

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/client"
	registry "github.com/coracle-io/coracle/internal/metrics"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Backend makes the kernel do what Rules say.
type Backend interface {
	// Apply brings the kernel from the Rules of the last successful Apply to
	// these, all or nothing. The first Apply replaces whatever an earlier
	// process left.
	Apply(rules Rules) error
	// Intact tells whether the kernel still holds what Apply put there. When
	// not, the next Apply puts all of it there anew.
	Intact() (bool, error)
	// Remove takes everything away.
	Remove() error
}

// Config of a proxy.
type Config struct {
	Client   *client.Client
	NodeName string
	Backend  Backend
	// Reserved are ports of this node on which the cluster itself serves:
	// neither host ports nor external addresses of Services take them.
	Reserved []int
	// Mode is what /proxyMode answers, such as nftables.
	Mode string
	// HealthzAddress and MetricsAddress are host:port; empty serves none.
	// Upstream's are 0.0.0.0:10256 and 127.0.0.1:10249.
	HealthzAddress string
	MetricsAddress string
	// Metrics is what MetricsAddress shows; nil is a registry of its own.
	Metrics *registry.Registry
	// CheckPeriod is how often the kernel is compared with what it should
	// hold (30 s if 0), RetryPeriod the wait after a failure (1 s if 0).
	CheckPeriod time.Duration
	RetryPeriod time.Duration
}

// Proxy is the service proxy of one node.
type Proxy struct {
	config  Config
	state   *state
	health  *health
	metrics *metrics
}

// New returns a proxy; Run does the work.
func New(config Config) *Proxy {
	if config.CheckPeriod == 0 {
		config.CheckPeriod = 3 * time.Second
	}
	if config.RetryPeriod == 0 {
		config.RetryPeriod = time.Second
	}
	if config.Metrics == nil {
		config.Metrics = registry.NewRegistry(nil)
	}
	return &Proxy{config: config, state: newState(config.NodeName, config.Reserved), health: newHealth(), metrics: newMetrics(config.Metrics)}
}

// Run applies the cluster's Services until ctx ends. The rules stay in the
// kernel then, so that connections survive a restart of the proxy; who wants
// them away calls Backend.Remove.
func (p *Proxy) Run(ctx context.Context) error { return supervise.Run(ctx, p.run) }

func (p *Proxy) run(ctx context.Context) error {
	servers, err := p.listen(ctx)
	if err != nil {
		return err
	}
	defer servers.stop()
	synced, err := p.watch(ctx)
	if err != nil {
		return err
	}
	if !cache.WaitFor(ctx, "", synced...) {
		return nil
	}
	p.applyLoop(ctx, servers.localHealth)
	return nil
}

// watch feeds the informers' events to the state.
func (p *Proxy) watch(ctx context.Context) ([]cache.DoneChecker, error) {
	factory := p.config.Client.Informers
	pods := p.config.Client.Watch(v1.SchemeGroupVersion.WithResource("pods"), "", fields.OneTermEqualSelector("spec.nodeName", p.config.NodeName))
	var synced []cache.DoneChecker
	for _, source := range []struct {
		subscribe func(context.Context, cache.SharedIndexInformer, cache.ResourceEventHandler) (cache.DoneChecker, error)
		informer  cache.SharedIndexInformer
		handler   cache.ResourceEventHandler
	}{
		{client.Subscribe, factory.Core().V1().Services().Informer(), handler(p.state.setService, p.state.deleteService)},
		{client.Subscribe, factory.Discovery().V1().EndpointSlices().Informer(), handler(p.state.setSlice, p.state.deleteSlice)},
		{client.Subscribe, factory.Core().V1().Nodes().Informer(), handler(p.state.setNode, p.state.deleteNode)},
		{client.Follow, pods, handler(p.state.setPod, p.state.deletePod)},
	} {
		heard, err := source.subscribe(ctx, source.informer, source.handler)
		if err != nil {
			return nil, fmt.Errorf("watching for the proxy: %w", err)
		}
		synced = append(synced, heard)
	}
	return synced, nil
}

// handler calls set for new and changed objects and remove for deleted ones.
func handler[T any](set, remove func(T)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { set(obj.(T)) },
		UpdateFunc: func(_, obj any) { set(obj.(T)) },
		DeleteFunc: func(obj any) {
			if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = unknown.Obj
			}
			if object, ok := obj.(T); ok {
				remove(object)
			}
		},
	}
}

// applyLoop applies each change as soon as the one before is done: what
// happens meanwhile is taken together.
func (p *Proxy) applyLoop(ctx context.Context, localHealth func(Rules)) {
	log := klog.FromContext(ctx)
	check := time.NewTicker(p.config.CheckPeriod)
	defer check.Stop()
	var retry <-chan time.Time
	p.state.wake()
	for {
		select {
		case <-ctx.Done():
			return
		case <-check.C:
			intact, err := p.config.Backend.Intact()
			if err != nil {
				log.Error(err, "Comparing the kernel's rules failed")
			}
			if intact || err != nil {
				continue
			}
			log.Info("The kernel's rules were changed by someone else; writing them again")
		case <-retry:
		case <-p.state.changed:
		}
		retry = nil
		rules := p.state.rules()
		p.health.queued()
		started := time.Now()
		if err := p.config.Backend.Apply(rules); err != nil {
			log.Error(err, "Applying the rules failed; trying again", "in", p.config.RetryPeriod)
			p.metrics.failed.Inc()
			retry = time.After(p.config.RetryPeriod)
			continue
		}
		p.health.applied()
		p.metrics.duration.Observe(time.Since(started).Seconds())
		p.metrics.lastApplied.SetToCurrentTime()
		localHealth(rules)
		log.V(4).Info("Applied rules", "servicePorts", len(rules.Services), "took", time.Since(started))
	}
}
