package apply

import (
	"cmp"
	"crypto/sha256"
	"reflect"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/coracle-io/coracle/internal/resource"
)

// The effect of a write on the managers of an object depends on few things: the
// managers before, the writer, and which fields differ, but not on values. Pods
// of one template have the same managed fields, also after the same change,
// except for identities (identity.go). So the results of the library are cached:
//
//	managers before, writer, difference ──► managers after
//
// Objects with the same managed fields share their memory.

// outcome is the managers after a write.
type outcome []outcomeEntry

type outcomeEntry struct {
	entry metav1.ManagedFieldsEntry
	// timeFrom is the index of the entry before the write whose time this one
	// keeps, or one of the constants below.
	timeFrom int
	// fieldsFrom is the index of the entry before the write whose fields this
	// one keeps, if they name identities; else noFields.
	fieldsFrom int
	owned      *template // of other fields that name identities
}

const (
	timeOfWrite = -1
	noTime      = -2 // of an apply that changed nothing
	noFields    = -1
)

type outcomeKey [sha256.Size]byte

// The bounds of each of the two generations of the cache, in number and in
// bytes. A single large outcome is not cached, since clients choose how many
// fields they own.
const (
	maxOutcomes     = 256
	maxOutcomeBytes = 1 << 20
	largeOutcome    = 64 << 10
)

// outcomes is a cache of recent outcomes.
type outcomes struct {
	mu          sync.Mutex // guards the following
	young, aged map[outcomeKey]outcome
	bytes       int // of the young generation
}

func (o *outcomes) get(key outcomeKey) (outcome, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if found, ok := o.young[key]; ok {
		return found, true
	}
	found, ok := o.aged[key]
	if ok {
		o.add(key, found)
	}
	return found, ok
}

func (o *outcomes) put(key outcomeKey, made outcome) {
	if made.size() > largeOutcome {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.add(key, made)
}

func (o *outcomes) add(key outcomeKey, made outcome) {
	bytes := made.size()
	if o.young == nil || len(o.young) >= maxOutcomes || o.bytes+bytes > maxOutcomeBytes {
		o.young, o.aged, o.bytes = map[outcomeKey]outcome{}, o.young, 0
	}
	if _, again := o.young[key]; !again {
		o.bytes += bytes
	}
	o.young[key] = made
}

// size returns the approximate size of an outcome in bytes.
func (o outcome) size() (bytes int) {
	for i := range o {
		e := &o[i].entry
		bytes += len(e.Manager) + len(e.APIVersion) + len(e.FieldsType)
		if e.FieldsV1 != nil {
			bytes += len(e.FieldsV1.GetRawBytes())
		}
		if t := o[i].owned; t != nil {
			for _, text := range t.texts {
				bytes += len(text)
			}
		}
	}
	return bytes
}

// write is the part of an update on which its outcome depends.
type write struct {
	before     []metav1.ManagedFieldsEntry // the managers before it
	identities []string                    // in their order
	key        outcomeKey
}

var differences = sync.Pool{New: func() any { return new(difference) }}

// describe returns the part of a write on which its outcome depends; ok is
// false if that cannot be determined.
func (t *tracker) describe(live, obj resource.Object, manager string) (w write, ok bool) {
	if t.shape == nil {
		return w, false
	}
	w.before = live.GetManagedFields()
	if given := obj.GetManagedFields(); given != nil && t.subresource == "" {
		w.before = given
	}
	if !t.cacheable(w.before) {
		return w, false
	}
	before, after := live, obj
	if !t.version.Hub { // the library compares objects of the written version
		before, after = t.version.FromHub(live), t.version.FromHub(obj)
	}
	d := differences.Get().(*difference)
	defer differences.Put(d)
	d.reset()
	d.out = appendText(d.out, manager)
	if live.GetUID() == "" {
		d.out = append(d.out, 1)
	} else {
		d.out = append(d.out, 0)
	}
	for i := range w.before {
		d.addManager(&w.before[i])
	}
	d.out = append(d.out, end)
	d.add(t.shape, reflect.ValueOf(before), reflect.ValueOf(after))
	w.identities = d.rank()
	w.key = sha256.Sum256(d.out)
	return w, !d.unknown
}

// cacheable reports whether the outcome for managers can be cached: there are
// so few that the oldest are not merged, all have the written version, and none
// is repeated.
func (t *tracker) cacheable(before []metav1.ManagedFieldsEntry) bool {
	version := t.version.GroupVersion.String()
	const few = 9 // one below the number from which entries of updates are merged
	if len(before) > few || before != nil && len(before) == 0 {
		return false
	}
	for i := range before {
		e := &before[i]
		if e.APIVersion != version || e.FieldsType != "FieldsV1" || e.FieldsV1 == nil {
			return false
		}
		for j := range i {
			if sameManager(e, &before[j]) {
				return false
			}
		}
	}
	return true
}

func sameManager(a, b *metav1.ManagedFieldsEntry) bool {
	return a.Manager == b.Manager && a.Operation == b.Operation && a.Subresource == b.Subresource && a.APIVersion == b.APIVersion
}

func (d *difference) addManager(e *metav1.ManagedFieldsEntry) {
	d.out = appendText(d.out, e.Manager)
	d.out = appendText(d.out, string(e.Operation))
	d.out = appendText(d.out, e.Subresource)
	d.addOwned(e.FieldsV1.GetRawBytes())
}

// decodable reports whether the library can parse the managers. If not, it
// discards them.
func decodable(entries []metav1.ManagedFieldsEntry) bool {
	for i := range entries {
		e := &entries[i]
		if e.Operation != metav1.ManagedFieldsOperationApply && e.Operation != metav1.ManagedFieldsOperationUpdate {
			return false
		}
		if new(fieldpath.Set).FromJSON(e.FieldsV1.GetRawReader()) != nil {
			return false
		}
	}
	return true
}

// outcomeOf returns the outcome of a write; ok is false if that names an
// identity that the write does not.
func outcomeOf(w write, after []metav1.ManagedFieldsEntry) (made outcome, ok bool) {
	before := w.before
	made = make(outcome, len(after))
	for i := range after {
		made[i] = outcomeEntry{entry: after[i], timeFrom: timeOfWrite, fieldsFrom: noFields}
		made[i].entry.Time = nil
		if after[i].Time == nil {
			made[i].timeFrom = noTime
		}
		for j := range before {
			if sameManager(&before[j], &after[i]) && sameTime(before[j].Time, after[i].Time) {
				made[i].timeFrom = j
			}
		}
		if !made[i].detach(w) {
			return nil, false
		}
	}
	return made, true
}

// detach replaces fields that name identities. It returns false if it cannot.
func (o *outcomeEntry) detach(w write) bool {
	owned, ok := templateOf(o.entry.FieldsV1, w.identities)
	if owned == nil {
		return ok
	}
	o.fieldsFrom = slices.IndexFunc(w.before, func(e metav1.ManagedFieldsEntry) bool { return e.FieldsV1.Equal(*o.entry.FieldsV1) })
	if o.fieldsFrom < 0 {
		o.owned = owned
	}
	o.entry.FieldsV1 = nil
	return true
}

func sameTime(a, b *metav1.Time) bool {
	return a == b || a != nil && b != nil && a.Time.Equal(b.Time)
}

// managers returns the managed fields of an object for the outcome of a write.
func (o outcome) managers(w write) []metav1.ManagedFieldsEntry {
	if len(o) == 0 {
		return nil
	}
	var now *metav1.Time
	made := make([]metav1.ManagedFieldsEntry, len(o))
	for i := range o {
		made[i] = o[i].entry
		switch from := o[i].timeFrom; from {
		case noTime:
		case timeOfWrite:
			if now == nil {
				now = &metav1.Time{Time: time.Now().UTC()}
			}
			made[i].Time = now
		default:
			made[i].Time = w.before[from].Time
		}
		switch from := o[i].fieldsFrom; {
		case from != noFields:
			made[i].FieldsV1 = w.before[from].FieldsV1
		case o[i].owned != nil:
			made[i].FieldsV1 = o[i].owned.fields(w.identities)
		}
	}
	slices.SortFunc(made, order)
	return made
}

// order compares managed fields in the order in which they are listed.
func order(a, b metav1.ManagedFieldsEntry) int {
	return cmp.Or(
		cmp.Compare(a.Operation, b.Operation),
		cmp.Compare(seconds(a.Time), seconds(b.Time)),
		cmp.Compare(a.Manager, b.Manager),
		cmp.Compare(a.APIVersion, b.APIVersion),
		cmp.Compare(a.Subresource, b.Subresource),
	)
}

func seconds(t *metav1.Time) int64 {
	if t == nil {
		return 0
	}
	return t.Unix()
}
