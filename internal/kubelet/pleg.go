package kubelet

import (
	"context"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/supervise"
)

// How often the runtime is listed while its events flow, and while they do not.
const (
	slowRelist = 10 * time.Second
	fastRelist = time.Second
)

// watchRuntime turns the runtime's events into looks at the pods they are of.
// A listing now and then finds what no event told.
func (k *Kubelet) watchRuntime(ctx context.Context) {
	events := make(chan *runtimeapi.ContainerEventResponse, 64)
	connected := make(chan bool, 1)
	done := make(chan struct{})
	supervise.Go(ctx, func() {
		defer close(done)
		for ctx.Err() == nil {
			err := supervise.Call(func() error {
				return k.runtime.GetContainerEvents(ctx, events, func(runtimeapi.RuntimeService_GetContainerEventsClient) { tell(connected, true) })
			})
			tell(connected, false)
			if ctx.Err() == nil {
				supervise.Failed(ctx, "events", err, "The runtime's event stream ended, listing until it is back")
				pause(ctx, fastRelist)
			}
		}
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
				k.wake(types.UID(uid))
			} else {
				timer.Reset(0)
			}
		case <-timer.C:
			began := time.Now()
			if !listed.IsZero() {
				k.metrics.relistInterval.Observe(began.Sub(listed).Seconds())
			}
			listed = began
			var now map[types.UID]*cri.Summary
			err := supervise.Call(func() (err error) {
				now, err = cri.List(ctx, k.runtime)
				return err
			})
			k.metrics.relist.Observe(time.Since(began).Seconds())
			if err != nil {
				supervise.Failed(ctx, "listings", err, "Listing the runtime's containers failed")
				k.node.RuntimeDown(err)
			} else {
				k.node.RuntimeUp()
				k.compare(last, now)
				last = now
			}
			timer.Reset(max(period, fastRelist))
		}
	}
}

func tell(c chan bool, value bool) {
	select {
	case <-c:
	default:
	}
	c <- value
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// compare wakes the pods that differ between two listings, and passes on the
// pods that nobody works on.
func (k *Kubelet) compare(before, now map[types.UID]*cri.Summary) {
	for uid, s := range now {
		old := before[uid]
		if k.worker(uid) == nil {
			select {
			case k.lost <- s:
			default:
			}
			continue
		}
		if old == nil || !maps.Equal(old.States, s.States) {
			k.wake(uid)
		}
	}
	for uid := range before {
		if now[uid] == nil {
			k.wake(uid)
		}
	}
}
