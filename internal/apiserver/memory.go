package apiserver

import (
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/coracle-io/coracle/internal/apiserver/codec"
	"github.com/coracle-io/coracle/internal/apiserver/registry"
	"github.com/coracle-io/coracle/internal/memory"
)

// A request that needs much memory reserves it in the server's memory.Budget. It
// is refused with 429 if the memory is not available. The server always serves
// small requests, requests of the control plane, and those of a node unless that
// holds as much as a tenant may.
//
//	list    the encodings of the entries, shared by lists of the same kind,
//	        and the buffers of this request alone
//	write   a large body and its decoded form; any body once the heap is full
//
// Memory that a client can hold as long as it likes counts for its tenant:
//
//	head    a large URL, or large headers, until the request is answered
//	watch   the watcher, its selectors, and the events sent to a slow client
//	answer  the answer; of a list only the buffer of one write
const (
	// unaccountedUse is how many bytes a request may use without a reservation.
	unaccountedUse = 1 << 20
	// encodedCost is the ratio of encoded to stored bytes.
	encodedCost = 3
	// decodedCost is the least memory per byte of a body until its object is
	// stored.
	decodedCost = 10
	// entryCost is the memory of a listed entry besides its encoding.
	entryCost = 16
	// unstoredCost is the memory of a listed entry that is not stored, such as
	// the metrics of a pod, with its encoding.
	unstoredCost = 3 << 10
	// watchCost is the memory of a watch with its goroutine and buffers.
	watchCost = 32 << 10
	// selectorCost is the memory of a selector per byte of its text.
	selectorCost = 24
	// answerCost is the memory of a request whose answer is not read.
	answerCost = 32 << 10
)

// errOutOfMemory is the error of a request that does not fit into memory.
var errOutOfMemory = apierrors.NewTooManyRequests("there is not enough memory for this request now, please try again later or ask for less at a time", 1)

// encodings identifies the encodings that entries cache for a version in a
// media type.
type encodings struct {
	endpoint *registry.Endpoint
	media    codec.Media
	partial  bool
}

// releaseMemory releases the reserved memory.
func (h *holdings) releaseMemory() {
	h.working.Release()
	h.unread.Release()
}

// memoryTenant returns the tenant whose memory the request uses. It returns ""
// for the control plane's components, administrators and unauthenticated requests.
// A node has a bound of its own, because it may be somebody else's by now.
func (h *holdings) memoryTenant() string {
	switch {
	case h.sender == nil || isPrivileged(h.sender):
		return ""
	case !isCritical(h.sender):
		return tenant(h.sender)
	case isNode(h.sender):
		return "itself " + h.sender.GetName()
	}
	return ""
}

// watchTenant returns the tenant that a watch in a namespace, "" for all, counts
// for. A node watches what its pods refer to, one object at a time, and its pods
// choose how much that is: such watches count for the node, apart from what it
// watches for itself.
func (h *holdings) watchTenant(namespace string) string {
	if namespace != "" && h.sender != nil && isNode(h.sender) {
		return h.sender.GetName()
	}
	return h.memoryTenant()
}

func isNode(u user.Info) bool { return slices.Contains(u.GetGroups(), user.NodesGroup) }

// reserve reserves memory to serve the request. It is released while the answer
// is sent.
func (h *holdings) reserve(need memory.Need) error {
	if need == (memory.Need{}) {
		return nil
	}
	need.Tenant, need.Critical = h.memoryTenant(), isCritical(h.sender)
	working, ok := h.server.memory.Reserve(need, h.server.registry.Clock.Now())
	if !ok {
		return errOutOfMemory
	}
	h.working = working
	return nil
}

// retain counts bytes that the tenant's client has not read yet. It returns
// false if the tenant has too many of them.
func (h *holdings) retain(bytes int) (memory.Reservation, bool) {
	return h.server.memory.Retain(h.memoryTenant(), int64(bytes))
}

// retainAnswer counts an answer, with the head of its request, for its tenant until the
// client has read it.
// private is the number of bytes that only this answer holds. If the tenant has
// too many unread answers, retainAnswer refuses an answer that is refusable.
func (h *holdings) retainAnswer(size, private int, refusable bool) error {
	if size <= promptAnswer {
		return nil
	}
	tenant, use := h.memoryTenant(), int64(answerCost+private+h.head)
	h.unread.Release() // the head alone, a watch that has not begun, or an answer that was not sent
	unread, ok := h.server.memory.Retain(tenant, use)
	if !ok {
		if refusable {
			return errOutOfMemory
		}
		unread = h.server.memory.RetainUnchecked(tenant, use)
	}
	h.unread = unread
	return nil
}

// checkBody refuses a body if the tenant has too many unread answers or, for an
// object that is stored, if the heap is full.
func (h *holdings) checkBody(stored bool, now time.Time) error {
	if stored && h.server.memory.Full(now) && !isPrivileged(h.sender) && !isCritical(h.sender) || h.server.memory.AtRetainLimit(h.memoryTenant()) {
		return errOutOfMemory
	}
	return nil
}

// listNeed returns the memory that listing a page needs, or zero if it is small.
func listNeed(e *registry.Endpoint, p *registry.Page, o codec.Output) memory.Need {
	if e.Kind == nil { // not stored: entries and encodings are this request's own
		if own := int64(len(p.Entries)) * unstoredCost; own >= unaccountedUse {
			return memory.Need{Own: own}
		}
		return memory.Need{}
	}
	stored := storedBytes(e, p)
	if stored*encodedCost < unaccountedUse {
		return memory.Need{}
	}
	encoded := stored * encodedCost
	need := memory.Need{Own: int64(len(p.Entries)) * entryCost}
	if o.Convert.Kind == "Table" || o.Media == codec.YAML || !o.Plain() {
		need.Own += 2 * encoded // the whole answer is buffered
	} else {
		// A page makes only the encodings of its entries. Concurrent lists
		// share them, so the reservation is for all entries of the kind.
		need.Shared = e.Kind.Stored() * encodedCost
		need.Key = encodings{e, o.Media, o.Convert.Kind != ""}
		if need.Shared > 2*encoded {
			need.Own, need.Shared = need.Own+encoded, 0
		}
	}
	return need
}

// initialNeed returns the memory that the initial events of a watch need.
func initialNeed(e *registry.Endpoint, o codec.Output) memory.Need {
	encoded := e.Kind.Stored() * encodedCost
	if encoded < unaccountedUse {
		return memory.Need{}
	}
	return memory.Need{Own: batchSize, Shared: encoded, Key: encodings{e, o.Media, o.Convert.Kind != ""}}
}

// storedBytes estimates the size of a page's objects in the store.
func storedBytes(e *registry.Endpoint, p *registry.Page) int64 {
	const exactly = 1000 // up to so many objects are summed one by one
	if n := len(p.Entries); n > exactly {
		return e.Kind.Stored() / int64(max(e.Kind.Snapshot().Len(), 1)) * int64(n)
	}
	sum := 0
	for _, e := range p.Entries {
		sum += e.StoredSize()
	}
	return int64(sum)
}

// bootstrappers is the group of bootstrap tokens, which many may know.
const bootstrappers = "system:bootstrappers"

// isCritical reports whether a user is one of the cluster's own components.
func isCritical(u user.Info) bool {
	name := u.GetName()
	if slices.Contains(u.GetGroups(), bootstrappers) {
		return false
	}
	if after, ok := strings.CutPrefix(name, "system:"); ok {
		account, isAccount := strings.CutPrefix(after, "serviceaccount:")
		return !isAccount && name != user.Anonymous || strings.HasPrefix(account, "kube-system:")
	}
	return false
}

// isPrivileged reports whether a user may do everything.
func isPrivileged(u user.Info) bool {
	return slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup)
}
