package apiserver

import (
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/coracle-io/coracle/internal/apiserver/codec"
	"github.com/coracle-io/coracle/internal/apiserver/registry"
	"github.com/coracle-io/coracle/internal/memory"
)

// Requests that are about to use much memory announce it to the guard and are
// refused with 429 if it is not there. Small ones go on being served, and those
// of the cluster's own components always.
//
//	list    what the entries are encoded to, shared by all that list the same,
//	        and what is put together for this request alone
//	write   a large body and what it is decoded to; any body once the heap is full
//
// What lasts for as long as a client likes counts for its tenant meanwhile:
//
//	watch   itself, its selectors, and what is on the way to a slow client
//	answer  itself; of a list what is gathered for one write
const (
	// largeUse is what a request may use without asking, in bytes.
	largeUse = 1 << 20
	// encodedCost is how many bytes an encoding takes for each that is stored.
	encodedCost = 3
	// decodedCost is how many bytes a body takes at least for each of its own
	// until its object is stored.
	decodedCost = 10
	// entryCost is what listing an entry takes besides its encoding.
	entryCost = 16
	// watchCost is what a watch takes, with its goroutine and buffers.
	watchCost = 32 << 10
	// selectorCost is how many bytes a selector takes for each of its own.
	selectorCost = 24
	// answerCost is what a request takes whose answer is not read.
	answerCost = 32 << 10
)

// encodings are what entries keep for a version in a form.
type encodings struct {
	endpoint *registry.Endpoint
	media    codec.Media
	partial  bool
}

// reserve asks for what the request is about to use. It is given back as the
// answer goes out.
func (q *request) reserve(need memory.Need) error {
	if need == (memory.Need{}) {
		return nil
	}
	trusted := isCritical(q.sender)
	need.Tenant = q.accountable()
	held, ok := q.server.Memory.Reserve(need, q.server.Clock.Now())
	if !ok && !trusted {
		return q.outOfMemory()
	}
	q.held = held
	return nil
}

// accountable is the tenant that the request counts for; "" is none, for the
// cluster's components, administrators and who is not known yet.
func (q *request) accountable() string {
	if q.sender == nil || isCritical(q.sender) || isPrivileged(q.sender) {
		return ""
	}
	return tenant(q.sender)
}

// keepAnswer counts an answer until the client has read it. private is how
// many of its bytes it holds itself. A tenant whose answers wait to
// be read is refused what it asks for, but is told of what it has changed and of
// errors.
func (q *request) keepAnswer(code, size, private int) error {
	if size <= promptAnswer {
		return nil
	}
	tenant, use := q.accountable(), int64(answerCost+private)
	q.kept.Release() // a watch that has not begun, or an answer that was not sent
	kept, ok := q.server.Memory.Keep(tenant, use)
	if !ok {
		if code < http.StatusBadRequest && !isMutating(q.http.Method) {
			return q.outOfMemory()
		}
		kept = q.server.Memory.KeepAnyway(tenant, use)
	}
	q.kept = kept
	return nil
}

// listNeed is what a list of a page takes; nothing if that is little.
func listNeed(e *registry.Endpoint, p *registry.Page, o codec.Output) memory.Need {
	stored := storedBytes(e, p)
	if stored*encodedCost < largeUse {
		return memory.Need{}
	}
	encoded := stored * encodedCost
	need := memory.Need{Own: int64(len(p.Entries)) * entryCost}
	if o.Convert.Kind == "Table" || o.Media == codec.YAML || !o.Plain() {
		need.Own += 2 * encoded // it is put together as a whole
	} else {
		// Listing a part of them makes only these encodings, but what others
		// list at the same time is a part of the same.
		need.Shared = e.Kind.Stored() * encodedCost
		need.Key = encodings{e, o.Media, o.Convert.Kind != ""}
		if need.Shared > 2*encoded {
			need.Own, need.Shared = need.Own+encoded, 0
		}
	}
	return need
}

// initialNeed is what sending everything there is takes.
func initialNeed(e *registry.Endpoint, o codec.Output) memory.Need {
	encoded := e.Kind.Stored() * encodedCost
	if encoded < largeUse {
		return memory.Need{}
	}
	return memory.Need{Own: batchSize, Shared: encoded, Key: encodings{e, o.Media, o.Convert.Kind != ""}}
}

// storedBytes is about how much the objects of a page take in the store.
func storedBytes(e *registry.Endpoint, p *registry.Page) int64 {
	const exactly = 1000 // objects whose sizes are looked at one by one
	if n := len(p.Entries); n > exactly {
		return e.Kind.Stored() / int64(max(e.Kind.Snapshot().Len(), 1)) * int64(n)
	}
	sum := 0
	for _, e := range p.Entries {
		sum += e.StoredSize()
	}
	return int64(sum)
}

// reserveBody asks for what decoding the body takes.
func (q operation) reserveBody() error {
	if len(q.body.data) == 0 || q.http.Method == http.MethodDelete {
		return nil
	}
	if q.Endpoint != nil && q.Endpoint.Kind != nil && q.server.Memory.Full(q.Now) && !isPrivileged(q.sender) && !isCritical(q.sender) {
		return q.outOfMemory()
	}
	if q.server.Memory.KeepsMost(q.accountable()) { // its answers wait to be read
		return q.outOfMemory()
	}
	use := q.decodedUse()
	if use > maxDecoded {
		return errDecodedTooLarge()
	}
	if use < largeUse {
		return nil
	}
	return q.reserve(memory.Need{Own: use})
}

// outOfMemory refuses the request because there is no memory for it now.
func (q *request) outOfMemory() error {
	q.dropped = true
	return apierrors.NewTooManyRequests("there is not enough memory for this request now, please try again later or ask for less at a time", 1)
}

// bootstrappers are who has a bootstrap token, which many may know.
const bootstrappers = "system:bootstrappers"

// isCritical says that the cluster depends on a user's requests: it is one of
// its components.
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

// isPrivileged says that a user may do everything.
func isPrivileged(u user.Info) bool {
	return slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup)
}
