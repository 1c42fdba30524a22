package dra

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	healthv1 "k8s.io/kubelet/pkg/apis/dra-health/v1"

	"github.com/coracle-io/coracle/internal/fairevict"
	"github.com/coracle-io/coracle/internal/printable"
	"github.com/coracle-io/coracle/internal/supervise"
)

// The health of a device counts for healthTimeout unless its driver says how
// long. The values are upstream's.
const (
	healthTimeout = 30 * time.Second
	healthRetry   = 5 * time.Second // after the end of a stream
	maxDevices    = 65536           // of all drivers
	maxDeviceName = 1024            // bytes
)

// device is a device of a driver.
type device struct{ driver, pool, name string }

// condition is the health of a device that a plugin has reported.
type condition struct {
	from    *plugin
	status  v1.ResourceHealthStatus
	message string
	expires time.Time
	place   *fairevict.Entry[string, device]
}

// health has what plugins have reported. A device without a report is Unknown.
type health struct {
	began time.Time // when the kubelet started

	mu      sync.Mutex // guards what follows
	devices map[device]condition
	places  fairevict.Set[string, device] // of devices, by driver
	drivers sets.Set[string]              // that have reported since the kubelet started
}

// get returns the health of a device.
func (h *health) get(d device) (v1.ResourceHealthStatus, string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c, ok := h.devices[d]; ok {
		return c.status, c.message
	}
	return v1.ResourceHealthStatusUnknown, ""
}

// early reports whether a driver may still be about to report for the first time
// since the kubelet started.
func (h *health) early(driver string, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return now.Before(h.began.Add(healthTimeout)) && !h.drivers.Has(driver)
}

// set records the report of a plugin and returns the devices whose health has
// changed.
func (h *health) set(p *plugin, reported []*healthv1.DeviceHealth, now time.Time) sets.Set[device] {
	h.mu.Lock()
	defer h.mu.Unlock()
	changed := sets.Set[device]{}
	h.drivers.Insert(p.driver)
	for _, report := range reported {
		d := device{p.driver, report.GetDevice().GetPoolName(), report.GetDevice().GetDeviceName()}
		before, known := h.devices[d]
		if len(d.pool)+len(d.name) > maxDeviceName || !known && !h.makeRoom(p.driver, changed) {
			continue
		}
		if !known {
			before.place = h.places.Add(p.driver, d)
		}
		timeout := healthTimeout
		if seconds := report.GetHealthCheckTimeoutSeconds(); seconds > 0 {
			timeout = time.Duration(min(seconds, int64(24*time.Hour/time.Second))) * time.Second
		}
		c := condition{from: p, status: statusOf(report.GetHealth()), message: truncated(report.GetMessage()), expires: now.Add(timeout), place: before.place}
		if !known || before.status != c.status || before.message != c.message {
			changed.Insert(d)
		}
		h.devices[d] = c
	}
	return changed
}

// makeRoom reports whether another device of a driver can be known. If too many
// are, the driver with the most loses one, which changes. h.mu is held.
func (h *health) makeRoom(driver string, changed sets.Set[device]) bool {
	if len(h.devices) < maxDevices {
		return true
	}
	victim := h.places.Victim()
	if h.places.GroupLen(driver) >= h.places.GroupLen(victim.Member.driver) {
		return false
	}
	victim.Remove()
	delete(h.devices, victim.Member)
	changed.Insert(victim.Member)
	return true
}

func statusOf(reported healthv1.HealthStatus) v1.ResourceHealthStatus {
	switch reported {
	case healthv1.HealthStatus_HEALTHY:
		return v1.ResourceHealthStatusHealthy
	case healthv1.HealthStatus_UNHEALTHY:
		return v1.ResourceHealthStatusUnhealthy
	}
	return v1.ResourceHealthStatusUnknown
}

// truncated returns a message as the status of a pod can have it.
func truncated(message string) string {
	const more = "..."
	if len(message) > v1.ResourceHealthMessageMaxLength {
		message = strings.ToValidUTF8(message[:v1.ResourceHealthMessageMaxLength-len(more)], "") + more
	}
	return printable.Line(message)
}

// expire forgets what was reported too long ago and returns the devices whose
// health has changed with it.
func (h *health) expire(now time.Time) sets.Set[device] {
	return h.forget(func(c condition) bool { return !now.Before(c.expires) })
}

func (h *health) forget(which func(c condition) bool) sets.Set[device] {
	h.mu.Lock()
	defer h.mu.Unlock()
	changed := sets.Set[device]{}
	for d, c := range h.devices {
		if !which(c) {
			continue
		}
		c.place.Remove()
		delete(h.devices, d)
		if c.status != v1.ResourceHealthStatusUnknown || c.message != "" {
			changed.Insert(d)
		}
	}
	return changed
}

// watchHealth follows the health of a plugin's devices until ctx ends.
func (m *Manager) watchHealth(ctx context.Context, p *plugin) {
	for logged := ""; ctx.Err() == nil; {
		err := m.receiveHealth(ctx, p)
		m.changed(m.health.forget(func(c condition) bool { return c.from == p }))
		if ctx.Err() != nil {
			return
		}
		if text := err.Error(); text != logged { // a driver that is away is not logged again and again
			klog.FromContext(ctx).Info("The health of a driver's devices is not known, will ask again", "driver", p.driver, "err", bounded(text), "every", healthRetry)
			logged = text
		}
		supervise.Pause(ctx, healthRetry)
	}
}

// receiveHealth records what a plugin reports until it ends the stream.
func (m *Manager) receiveHealth(ctx context.Context, p *plugin) error {
	stream, err := p.health.NodeWatchResources(ctx, &healthv1.NodeWatchResourcesRequest{})
	if err != nil {
		return err
	}
	for {
		report, err := stream.Recv()
		if err != nil {
			return err
		}
		m.changed(m.health.set(p, report.GetDevices(), time.Now()))
	}
}

// changed wakes the pods that use devices.
func (m *Manager) changed(devices sets.Set[device]) {
	if devices.Len() == 0 {
		return
	}
	pods := sets.Set[string]{}
	for _, c := range m.state.all() {
		for driver, prepared := range c.DriverState {
			for i := range prepared.Devices {
				if d := &prepared.Devices[i]; devices.Has(device{driver, d.PoolName, d.DeviceName}) {
					pods = pods.Union(c.PodUIDs)
				}
			}
		}
	}
	for _, uid := range slices.Sorted(slices.Values(pods.UnsortedList())) {
		m.config.Wake(types.UID(uid))
	}
}
