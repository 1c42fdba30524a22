// Package pleg observes changes in the container runtime and wakes the workers
// of the pods concerned. It corresponds to upstream's pod lifecycle event
// generator, both the evented and the generic one.
package pleg

import (
	"context"
	"maps"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/nativehistogram"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Relist periods with a working event stream, and without one.
const (
	slowRelist = 10 * time.Second
	fastRelist = time.Second
)

// Pods receive the changes.
type Pods interface {
	Has(uid types.UID) bool
	Wake(uid types.UID)
	// Listed reports all pods of the runtime that are not among the pods: those of
	// this kubelet, and those whose sandboxes do not say whose they are.
	Listed(orphans []*cri.Summary)
}

// Generator observes a runtime.
type Generator struct {
	runtime  internalapi.RuntimeService
	root     string
	pods     Pods
	answered func(err error)

	duration, interval prometheus.Histogram // of listings
}

// New returns a Generator for the kubelet with that root directory. It calls
// answered after each listing, with its error or nil.
func New(runtime internalapi.RuntimeService, root string, pods Pods, answered func(err error), r prometheus.Registerer) *Generator {
	g := &Generator{
		runtime: runtime, root: root, pods: pods, answered: answered,
		duration: nativehistogram.New(prometheus.HistogramOpts{Name: "kubelet_pleg_relist_duration_seconds", Help: "[ALPHA] Duration in seconds for relisting pods in PLEG.", Buckets: prometheus.DefBuckets}),
		interval: nativehistogram.New(prometheus.HistogramOpts{Name: "kubelet_pleg_relist_interval_seconds", Help: "[ALPHA] Interval in seconds between relisting in PLEG.", Buckets: prometheus.DefBuckets}),
	}
	r.MustRegister(g.duration, g.interval)
	return g
}

// Run receives the events of the runtime until ctx ends. Periodic listings find
// changes without events.
func (g *Generator) Run(ctx context.Context) {
	events := make(chan *runtimeapi.ContainerEventResponse, 64)
	connected := make(chan bool, 1)
	done := make(chan struct{})
	supervise.Go(ctx, func() {
		defer close(done)
		g.follow(ctx, events, connected)
	})
	var last map[types.UID]*cri.Summary
	period := time.Duration(0)
	var listed time.Time
	timer := time.NewTimer(period)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			for {
				select {
				case <-events:
				case <-done:
					return
				}
			}
		case ok := <-connected:
			period = slowRelist
			if !ok {
				period = fastRelist
			}
			timer.Reset(0)
		case e := <-events:
			if uid := e.GetPodSandboxStatus().GetMetadata().GetUid(); uid != "" {
				g.pods.Wake(types.UID(uid))
			} else {
				timer.Reset(0)
			}
		case <-timer.C:
			began := time.Now()
			if !listed.IsZero() {
				g.interval.Observe(began.Sub(listed).Seconds())
			}
			listed = began
			last = g.relist(ctx, last)
			timer.Reset(max(period, fastRelist))
		}
	}
}

// follow receives events, and sends on connected whether the event stream
// works.
func (g *Generator) follow(ctx context.Context, events chan *runtimeapi.ContainerEventResponse, connected chan bool) {
	for ctx.Err() == nil {
		err := supervise.Call(func() error {
			return g.runtime.GetContainerEvents(ctx, events, func(runtimeapi.RuntimeService_GetContainerEventsClient) { replace(connected, true) })
		})
		replace(connected, false)
		if ctx.Err() == nil {
			supervise.LogFailure(ctx, "events", err, "The runtime's event stream ended, listing until it is back")
			supervise.Pause(ctx, fastRelist)
		}
	}
}

// replace makes value the only one in the channel.
func replace(c chan bool, value bool) {
	select {
	case <-c:
	default:
	}
	c <- value
}

// relist lists the pods of the runtime and wakes those that differ from the
// last listing. It returns the new listing, or the last one if listing fails.
// Pods of other kubelets on the runtime are none of this one's.
func (g *Generator) relist(ctx context.Context, last map[types.UID]*cri.Summary) map[types.UID]*cri.Summary {
	began := time.Now()
	var now map[types.UID]*cri.Summary
	err := supervise.Call(func() (err error) {
		now, err = cri.List(ctx, g.runtime)
		return err
	})
	g.duration.Observe(time.Since(began).Seconds())
	g.answered(err)
	if err != nil {
		supervise.LogFailure(ctx, "listings", err, "Listing the runtime's containers failed")
		return last
	}
	var orphans []*cri.Summary
	for uid, s := range now {
		before := last[uid]
		if !g.pods.Has(uid) {
			if s.Root == g.root || s.Root == "" {
				orphans = append(orphans, s)
			}
		} else if before == nil || !maps.Equal(before.States, s.States) {
			g.pods.Wake(uid)
		}
	}
	g.pods.Listed(orphans)
	for uid := range last {
		if now[uid] == nil {
			g.pods.Wake(uid)
		}
	}
	return now
}
