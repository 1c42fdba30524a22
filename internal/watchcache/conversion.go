package watchcache

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/coracle-io/coracle/internal/resource"
)

// A webhook that converts custom resources takes its time. An entry keeps, as JSON and by
// version, what the webhook made of its object:
//
//	entry at revision 7, stored in v1alpha1
//	  └─ conversions: v1 ──► {"apiVersion":"example.com/v1",...}
//
// Gets, lists, watches, tables and selectors share it, so that the webhook is asked
// once for a revision of an object and a version. A definition that changes has other
// versions, and entries that are decoded again. Errors are not kept.
//
// Conversions that were not used for a minute are dropped if those of all kinds take
// more than conversionRoom bytes. The others are as many as requests need at a time,
// as the encodings are.
const (
	conversionRoom = 32 << 20
	// conversionCost is the memory in bytes of an entry's conversions besides the JSON.
	conversionCost = 400
	// callSize and callObjects bound the objects in one call, by their stored bytes and
	// their number. The memory of a call is many times callSize. Webhooks know calls for
	// single objects, and may have little time, or a small bound of a request's body.
	callSize    = 1 << 20
	callObjects = 500
)

// fits reports whether an entry may join so many others, of size stored bytes, in a call.
func fits(others, size int, e *Entry) bool {
	return others < callObjects && size+e.size <= callSize
}

// conversions holds the conversions of an entry.
type conversions struct {
	mu sync.Mutex // guards of
	of map[*resource.Version]*conversion
}

// size returns the number of bytes that the conversions take.
func (c *conversions) size() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	bytes := conversionCost
	for _, made := range c.of {
		if made.isDone() {
			bytes += len(made.data)
		}
	}
	return bytes
}

// conversion is an object in another version, or the call that is to return it.
type conversion struct {
	done  chan struct{} // closed once the following are set
	data  []byte        // JSON with a final newline
	err   error
	alone bool // the call was for this object alone, so err is about it
}

// In returns the entry's object in a version of its resource. The result is shared and
// must not be changed.
func (e *Entry) In(v *resource.Version) (resource.Object, error) {
	data, converted, err := e.ConvertedJSON(v)
	switch {
	case err != nil:
		return nil, err
	case !converted:
		return v.From(e.Object)
	}
	u := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(data, &u.Object); err != nil {
		return nil, fmt.Errorf("read the conversion of %s/%s: %w", e.Namespace, e.Name, err)
	}
	return u, nil
}

// Shown returns what the functions of the resource read: the hub object itself, but a
// custom resource in a version. The result is shared and must not be changed.
func (e *Entry) Shown(v *resource.Version) (resource.Object, error) {
	if v.Convert == nil {
		return e.Object, nil
	}
	return e.In(v)
}

// ConvertedJSON returns the JSON, with a final newline, of an object that a webhook
// converts to a version. converted is false, with no error, if the object needs no
// webhook. The result is shared and must not be changed.
func (e *Entry) ConvertedJSON(v *resource.Version) (data []byte, converted bool, err error) {
	if !e.needsWebhook(v) {
		return nil, false, nil
	}
	made, err := convert(v, []*Entry{e})
	if err != nil {
		return nil, false, err
	}
	return made[0].data, true, nil
}

// needsWebhook reports whether a webhook must convert the object to a version.
func (e *Entry) needsWebhook(v *resource.Version) bool {
	return v.ConvertAll != nil && e.Object.GetObjectKind().GroupVersionKind().GroupVersion() != v.GroupVersion
}

// Convert converts the objects of entries to a version in one call of the webhook, or
// several if they are large or many, so that In and ConvertedJSON need none for them. It asks
// only for those that nobody has asked for before. It does nothing if no webhook
// converts to the version.
func Convert(v *resource.Version, entries []*Entry) error {
	if v.ConvertAll == nil {
		return nil
	}
	var waiting []*Entry
	for _, e := range entries {
		if e.needsWebhook(v) {
			waiting = append(waiting, e)
		}
	}
	_, err := convert(v, waiting)
	return err
}

// ConvertEach converts the objects of entries as Convert does, and calls visit for each
// of them in order, until it returns false. It asks the webhook for more only once it has
// visited what was converted, so that a reader need not wait for all of them, and none is
// dropped before its visit.
func ConvertEach(v *resource.Version, entries []*Entry, visit func(*Entry) bool) error {
	for len(entries) > 0 {
		n, size := 0, 0
		for n < len(entries) && (n == 0 || fits(n, size, entries[n])) {
			size += entries[n].size
			n++
		}
		if err := Convert(v, entries[:n]); err != nil {
			return err
		}
		for _, e := range entries[:n] {
			if !visit(e) {
				return nil
			}
		}
		entries = entries[n:]
	}
	return nil
}

// claim is the conversion of an entry that the caller has to make.
type claim struct {
	entry *Entry
	*conversion
}

// convert returns the conversions of entries, all of which need a webhook. It waits for
// the calls of others that are under way. If such a call was for several objects and
// fails, convert asks itself, because the failure may be due to another object.
func convert(v *resource.Version, entries []*Entry) ([]*conversion, error) {
	made, err := claimAll(v, entries, false)
	if err != nil {
		return nil, err
	}
	var failed []*Entry
	var at []int // the indexes of failed
	for i, c := range made {
		<-c.done
		switch {
		case c.err != nil && c.alone:
			return nil, c.err
		case c.err != nil:
			failed, at = append(failed, entries[i]), append(at, i)
		}
	}
	again, err := claimAll(v, failed, true)
	if err != nil {
		return nil, err
	}
	for i, c := range again {
		made[at[i]] = c
	}
	return made, nil
}

// claimAll claims entries, and makes the conversions that are its own before it claims
// more than fit into a call, so that nobody waits for calls about other objects.
func claimAll(v *resource.Version, entries []*Entry, again bool) ([]*conversion, error) {
	made := make([]*conversion, len(entries))
	var own []claim
	size := 0
	for i, e := range entries {
		if !fits(len(own), size, e) {
			if err := call(v, own); err != nil {
				return nil, err
			}
			own, size = nil, 0
		}
		var mine bool
		if made[i], mine = e.claim(v, again); mine {
			own = append(own, claim{e, made[i]})
			size += e.size
		}
	}
	return made, call(v, own)
}

// claim returns the conversion of an entry to a version. mine means that it is new, and
// that the caller has to settle it. With again, claim returns no conversion that
// others are still making.
func (e *Entry) claim(v *resource.Version, again bool) (c *conversion, mine bool) {
	e.markUsed()
	all := e.conversions.Load()
	for all == nil {
		e.conversions.CompareAndSwap(nil, &conversions{of: map[*resource.Version]*conversion{}})
		all = e.conversions.Load()
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	if c = all.of[v]; c != nil && (!again || c.isDone()) {
		return c, false
	}
	c = &conversion{done: make(chan struct{})}
	all.of[v] = c
	return c, true
}

func (c *conversion) isDone() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// settle ends a claim with a conversion or an error, which is forgotten.
func (c claim) settle(v *resource.Version, data []byte, err error, alone bool) {
	c.data, c.err, c.alone = data, err, alone
	if err == nil {
		c.entry.markUsed() // a call may last longer than the time between two sweeps
	}
	if all := c.entry.conversions.Load(); err != nil && all != nil {
		all.mu.Lock()
		if all.of[v] == c.conversion {
			delete(all.of, v)
		}
		all.mu.Unlock()
	}
	close(c.done)
}

// errCallPanicked is what others learn of a call that panicked.
var errCallPanicked = errors.New("the conversion of custom resources panicked")

// call converts the objects of claims in one call of the webhook, and settles the claims.
func call(v *resource.Version, claims []claim) error {
	if len(claims) == 0 {
		return nil
	}
	data, err := make([][]byte, len(claims)), errCallPanicked
	defer func() { // also after a panic
		for i, c := range claims {
			c.settle(v, data[i], err, len(claims) == 1)
		}
	}()
	objs := make([]resource.Object, len(claims))
	for i, c := range claims {
		objs[i] = c.entry.Object
	}
	err = convertJSON(v, objs, data)
	return err
}

// convertJSON sets data to the JSON of converted objects, as upstream's serializer
// writes it.
func convertJSON(v *resource.Version, objs []resource.Object, data [][]byte) error {
	converted, err := v.ConvertAll(objs)
	if err != nil {
		return err
	}
	if len(converted) != len(objs) {
		return fmt.Errorf("conversion to %s returned %d objects, expected %d", v.GroupVersion, len(converted), len(objs))
	}
	for i, obj := range converted {
		encoded, err := json.Marshal(obj)
		if err != nil {
			return fmt.Errorf("encode the conversion of %s/%s: %w", obj.GetNamespace(), obj.GetName(), err)
		}
		data[i] = append(encoded, '\n')
	}
	return nil
}
