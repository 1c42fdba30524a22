package dynamicresources

import (
	"sync"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/dynamic-resource-allocation/structured/schedulerapi"
	"k8s.io/utils/ptr"
)

// claims holds all ResourceClaims for decisions: the claims of the informer,
// the claims that the plugin has written and the informer does not show yet,
// and the allocations that are not written yet.
//
//	Reserve ──► pending ──PreBind──► written ──► seen by the informer
//	               └── Unreserve ──► gone
//
// All profiles of a scheduler share one. It is safe for concurrent use.
type claims struct {
	indexer cache.Indexer

	// mu guards the following. It is also held while the informer is read: a
	// written claim that a newer version of the informer has replaced must not
	// be forgotten between the reading of an older one and its use.
	mu      sync.Mutex
	pending map[types.UID]*pendingAllocation
	writers map[types.UID]*writers
	written map[types.UID]*resourceapi.ResourceClaim
}

// pendingAllocation is an allocation that is not written yet.
type pendingAllocation struct {
	claim *resourceapi.ResourceClaim
	// holders is how many pods are assumed to use it: several pods of a group can.
	holders int
}

// writers are the bindings that write a claim or wait to.
type writers struct {
	sync.Mutex
	count int
}

func newClaims(indexer cache.Indexer) *claims {
	return &claims{indexer: indexer, pending: map[types.UID]*pendingAllocation{}, writers: map[types.UID]*writers{}, written: map[types.UID]*resourceapi.ResourceClaim{}}
}

// get returns the latest known version of a claim.
func (c *claims) get(namespace, name string) (*resourceapi.ResourceClaim, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := c.indexer.LastStoreSyncResourceVersion()
	obj, exists, err := c.indexer.GetByKey(cache.NewObjectName(namespace, name).String())
	if err != nil {
		return nil, err
	}
	if claim, ok := obj.(*resourceapi.ResourceClaim); ok && exists {
		return c.latest(claim), nil
	}
	for _, claim := range c.written {
		if claim.Namespace == namespace && claim.Name == name && !c.passed(claim, seen) {
			return claim, nil
		}
	}
	return nil, apierrors.NewNotFound(resourceapi.Resource("resourceclaim"), name)
}

// passed reports whether the informer was at the version of a written claim,
// and forgets the claim then: the informer does not show it because it was
// deleted. seen must be read before the informer is asked for the claim.
func (c *claims) passed(claim *resourceapi.ResourceClaim, seen string) bool {
	newer, err := resourceversion.CompareResourceVersion(claim.ResourceVersion, seen)
	if err != nil || newer > 0 {
		return false
	}
	delete(c.written, claim.UID)
	return true
}

// latest returns the version of a claim that the plugin wrote if that is newer
// than the informer's, with the lock held.
func (c *claims) latest(claim *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
	written, ok := c.written[claim.UID]
	if !ok {
		return claim
	}
	if newer, err := resourceversion.CompareResourceVersion(written.ResourceVersion, claim.ResourceVersion); err == nil && newer > 0 {
		return written
	}
	delete(c.written, claim.UID)
	return claim
}

// extendedOf returns the claim that was created for the extended resources of
// a pod, or nil.
func (c *claims) extendedOf(pod metav1.Object) *resourceapi.ResourceClaim {
	var found *resourceapi.ResourceClaim
	consider := func(claim *resourceapi.ResourceClaim) {
		if claim.Annotations[resourceapi.ExtendedResourceClaimAnnotation] != "true" || !metav1.IsControlledBy(claim, pod) || claim.DeletionTimestamp != nil {
			return
		}
		if found == nil || found.Status.Allocation == nil {
			found = claim
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := c.indexer.LastStoreSyncResourceVersion()
	objs, err := c.indexer.ByIndex(cache.NamespaceIndex, pod.GetNamespace())
	if err != nil {
		return nil
	}
	for _, obj := range objs {
		if claim, ok := obj.(*resourceapi.ResourceClaim); ok {
			consider(c.latest(claim)) // latest leaves only newer ones in written
		}
	}
	for _, claim := range c.written {
		if claim.Namespace == pod.GetNamespace() && !c.passed(claim, seen) {
			consider(claim)
		}
	}
	return found
}

// pendingOf returns the allocation of a claim that is not written yet, or nil.
func (c *claims) pendingOf(uid types.UID) *resourceapi.AllocationResult {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.pending[uid]; p != nil {
		return p.claim.Status.Allocation
	}
	return nil
}

// lock waits until no other binding writes the claim. The pods of a large group
// that share a claim would use up their retries for conflicts otherwise.
func (c *claims) lock(uid types.UID) (unlock func()) {
	c.mu.Lock()
	w := c.writers[uid]
	if w == nil {
		w = &writers{}
		c.writers[uid] = w
	}
	w.count++
	c.mu.Unlock()
	w.Lock()
	return func() {
		w.Unlock()
		c.mu.Lock()
		defer c.mu.Unlock()
		if w.count--; w.count == 0 {
			delete(c.writers, uid)
		}
	}
}

// reserve makes an allocation count that is not written yet, until it is written
// or each pod that reserved it has released it.
func (c *claims) reserve(claim *resourceapi.ResourceClaim) *pendingAllocation {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.pending[claim.UID]
	if p == nil {
		p = &pendingAllocation{claim: claim}
		c.pending[claim.UID] = p
	}
	p.holders++
	return p
}

// release forgets an allocation that the pod will not write, unless other pods hold
// it. A claim that was written and deallocated since may have a newer allocation.
func (c *claims) release(p *pendingAllocation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.holders--; p.holders == 0 && c.pending[p.claim.UID] == p {
		delete(c.pending, p.claim.UID)
	}
}

// wrote takes a version of a claim that the plugin wrote. Its
// pending allocation is kept under uid.
func (c *claims) wrote(uid types.UID, claim *resourceapi.ResourceClaim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pending, uid)
	c.written[claim.UID] = claim
}

// deleted forgets a claim that the plugin deleted.
func (c *claims) deleted(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.written, uid)
}

// allocated returns all devices and capacities that are taken.
func (c *claims) allocated(consumableCapacity bool) structured.AllocatedState {
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := c.indexer.LastStoreSyncResourceVersion()
	objs := c.indexer.List()
	known := make(map[types.UID]bool, len(c.written))
	for _, obj := range objs {
		claim, ok := obj.(*resourceapi.ResourceClaim)
		if !ok || c.pending[claim.UID] != nil {
			continue
		}
		if _, ok := c.written[claim.UID]; ok {
			claim = c.latest(claim)
			known[claim.UID] = true
		}
		take(&state, claim, consumableCapacity)
	}
	for uid, claim := range c.written {
		if !known[uid] && !c.passed(claim, seen) {
			take(&state, claim, consumableCapacity)
		}
	}
	for _, p := range c.pending {
		take(&state, p.claim, consumableCapacity)
	}
	return state
}

// take adds what a claim has to the state. Access of administrators takes
// nothing.
func take(state *structured.AllocatedState, claim *resourceapi.ResourceClaim, consumableCapacity bool) {
	if claim.Status.Allocation == nil {
		return
	}
	results := claim.Status.Allocation.Devices.Results
	for i := range results {
		r := &results[i]
		if ptr.Deref(r.AdminAccess, false) {
			continue
		}
		id := structured.MakeDeviceID(r.Driver, r.Pool, r.Device)
		if !consumableCapacity || r.ShareID == nil {
			state.AllocatedDevices.Insert(id)
			continue
		}
		state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, r.ShareID))
		state.AggregatedCapacity.Insert(schedulerapi.NewDeviceConsumedCapacity(id, r.ConsumedCapacity))
	}
}
