package devicetainteviction

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	library "k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/timespan"
)

// eviction is when a pod must be deleted: some time after the taint was added that is the first
// one to evict it.
type eviction struct {
	added   time.Time
	granted time.Duration
	// rules are those among the causes, each once.
	rules []*resourceapi.DeviceTaintRule
}

// add adds a cause. rule is nil if a slice has the taint.
func (e *eviction) add(added time.Time, granted time.Duration, rule *resourceapi.DeviceTaintRule) {
	if e.added.IsZero() || added.Add(granted).Before(e.added.Add(e.granted)) {
		e.added, e.granted = added, granted
	}
	if rule != nil && !slices.ContainsFunc(e.rules, func(r *resourceapi.DeviceTaintRule) bool { return r.UID == rule.UID }) {
		e.rules = append(e.rules, rule)
	}
}

// evictionOf returns when a pod on a node must be deleted because of taints of
// its devices and of the rules; found is false if it may stay.
func (c *evictor) evictionOf(pod *v1.Pod, rules []*resourceapi.DeviceTaintRule, now time.Time) (e eviction, found bool) {
	if pod.Spec.NodeName == "" || podquery.IsFinished(pod) {
		return eviction{}, false
	}
	for name, mustCheckOwner := range library.PodClaims(pod) {
		obj, exists, err := c.claims.GetByKey(pod.Namespace + "/" + name)
		if err != nil || !exists {
			continue
		}
		claim, ok := obj.(*resourceapi.ResourceClaim)
		if !ok || claim.Status.Allocation == nil || mustCheckOwner && library.IsForPod(pod, claim, true) != nil || !library.IsReservedForPod(pod, claim, true) {
			continue
		}
		for i := range claim.Status.Allocation.Devices.Results {
			c.addCauses(&e, &claim.Status.Allocation.Devices.Results[i], rules, now)
		}
	}
	return e, !e.added.IsZero()
}

// addCauses adds the taints of an allocated device that are not tolerated for ever.
func (c *evictor) addCauses(e *eviction, device *resourceapi.DeviceRequestAllocationResult, rules []*resourceapi.DeviceTaintRule, now time.Time) {
	for _, taint := range c.taintsOf(device) {
		if added, granted, evicts := evictionTime(taint, device.Tolerations, now); evicts {
			e.add(added, granted, nil)
		}
	}
	for _, rule := range rules {
		if !selectsDevice(rule, device.Driver, device.Pool, device.Device) {
			continue
		}
		if added, granted, evicts := evictionTime(&rule.Spec.Taint, device.Tolerations, now); evicts {
			e.add(added, granted, rule)
		}
	}
}

// evictionTime returns when a taint was added, and how long after that it evicts
// the users of a device: at once, or when the shortest of the tolerations that match
// has passed. A toleration without tolerationSeconds lasts for ever.
func evictionTime(taint *resourceapi.DeviceTaint, tolerations []resourceapi.DeviceToleration, now time.Time) (added time.Time, granted time.Duration, evicts bool) {
	if taint.Effect != resourceapi.DeviceTaintEffectNoExecute {
		return time.Time{}, 0, false
	}
	added = now
	if taint.TimeAdded != nil {
		added = taint.TimeAdded.Time
	}
	tolerated := false
	for i := range tolerations {
		t := &tolerations[i]
		if !library.ToleratesTaint(*t, *taint) {
			continue
		}
		if t.TolerationSeconds == nil || t.Effect != resourceapi.DeviceTaintEffectNoExecute { // seconds count only with NoExecute
			return time.Time{}, 0, false
		}
		if d := timespan.Seconds(max(0, *t.TolerationSeconds)); !tolerated || d < granted {
			granted, tolerated = d, true
		}
	}
	return added, granted, true
}

// taintsOf returns the taints of a device in the slices of its pool. Only
// slices of the latest generation count.
func (c *evictor) taintsOf(device *resourceapi.DeviceRequestAllocationResult) (taints []*resourceapi.DeviceTaint) {
	pool := c.slicesOf(poolKey(device.Driver, device.Pool))
	latest := latestGeneration(pool)
	for _, slice := range pool {
		if slice.Spec.Pool.Generation != latest {
			continue
		}
		for i := range slice.Spec.Devices {
			if slice.Spec.Devices[i].Name != device.Device {
				continue
			}
			for j := range slice.Spec.Devices[i].Taints {
				taints = append(taints, &slice.Spec.Devices[i].Taints[j])
			}
			return taints
		}
	}
	return nil
}

func latestGeneration(pool []*resourceapi.ResourceSlice) (latest int64) {
	for _, slice := range pool {
		latest = max(latest, slice.Spec.Pool.Generation)
	}
	return latest
}

func (c *evictor) slicesOf(pool string) []*resourceapi.ResourceSlice {
	objs, err := c.slices.ByIndex(byPool, pool)
	if err != nil {
		return nil
	}
	return typed[*resourceapi.ResourceSlice](objs)
}

// allRules returns the DeviceTaintRules.
func (c *evictor) allRules() []*resourceapi.DeviceTaintRule {
	if c.rules == nil {
		return nil
	}
	return typed[*resourceapi.DeviceTaintRule](c.rules.List())
}

func typed[T any](objs []any) []T {
	out := make([]T, 0, len(objs))
	for _, obj := range objs {
		if o, ok := obj.(T); ok {
			out = append(out, o)
		}
	}
	return out
}

func hasNoExecute(slice *resourceapi.ResourceSlice) bool {
	return slice != nil && slices.ContainsFunc(slice.Spec.Devices, func(d resourceapi.Device) bool {
		return slices.ContainsFunc(d.Taints, func(t resourceapi.DeviceTaint) bool { return t.Effect == resourceapi.DeviceTaintEffectNoExecute })
	})
}

// selectsDevice reports whether a rule is about a device. A rule without a
// selector selects no device.
func selectsDevice(rule *resourceapi.DeviceTaintRule, driver, pool, device string) bool {
	s := rule.Spec.DeviceSelector
	return s != nil && (s.Driver == nil || *s.Driver == driver) && (s.Pool == nil || *s.Pool == pool) && (s.Device == nil || *s.Device == device)
}

// selectsDeviceOf reports whether a rule is about a device of an allocated
// claim. rule may be nil.
func selectsDeviceOf(rule *resourceapi.DeviceTaintRule, claim *resourceapi.ResourceClaim) bool {
	return rule != nil && slices.ContainsFunc(claim.Status.Allocation.Devices.Results, func(r resourceapi.DeviceRequestAllocationResult) bool {
		return selectsDevice(rule, r.Driver, r.Pool, r.Device)
	})
}
