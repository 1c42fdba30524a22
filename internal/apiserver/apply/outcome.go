package apply

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"reflect"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/coracle-io/coracle/internal/resource"
)

// What a write does to the managers of an object depends on little: who they
// were, who writes, and which fields differ, not on what they hold. Pods of
// one template have the same managed fields, and so do they after the same
// change. So what the merging found out once is kept:
//
//	managers before, writer, difference ──► managers after
//
// Objects with the same managed fields share their memory.

// outcome is managers after a write.
type outcome []outcomeEntry

type outcomeEntry struct {
	entry metav1.ManagedFieldsEntry
	// timeFrom is the entry before the write whose time this one keeps, or one
	// of the constants below.
	timeFrom int
}

const (
	timeOfWrite = -1
	noTime      = -2 // of who applied what was there already
)

type outcomeKey [sha256.Size]byte

// Bounds of each of the two generations of outcomes that are kept, in number
// and in bytes. A single one that is large is not kept: clients choose how many
// fields they own.
const (
	maxOutcomes     = 256
	maxOutcomeBytes = 1 << 20
	largeOutcome    = 64 << 10
)

// outcomes remembers the latest outcomes.
type outcomes struct {
	mu          sync.Mutex // guards what follows
	young, aged map[outcomeKey]outcome
	bytes       int // of the young
}

func (o *outcomes) get(key outcomeKey) (outcome, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if found, ok := o.young[key]; ok {
		return found, true
	}
	found, ok := o.aged[key]
	if ok {
		o.keep(key, found)
	}
	return found, ok
}

func (o *outcomes) put(key outcomeKey, made outcome) {
	if made.size() > largeOutcome {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.keep(key, made)
}

func (o *outcomes) keep(key outcomeKey, made outcome) {
	bytes := made.size()
	if o.young == nil || len(o.young) >= maxOutcomes || o.bytes+bytes > maxOutcomeBytes {
		o.young, o.aged, o.bytes = map[outcomeKey]outcome{}, o.young, 0
	}
	if _, again := o.young[key]; !again {
		o.bytes += bytes
	}
	o.young[key] = made
}

// size is what an outcome takes, about, in bytes.
func (o outcome) size() (bytes int) {
	for i := range o {
		e := &o[i].entry
		bytes += len(e.Manager) + len(e.APIVersion) + len(e.FieldsType)
		if e.FieldsV1 != nil {
			bytes += len(e.FieldsV1.GetRawBytes())
		}
	}
	return bytes
}

// write is a plain write as far as its outcome depends on it.
type write struct {
	before []metav1.ManagedFieldsEntry // the managers that it begins with
	key    outcomeKey
}

var differences = sync.Pool{New: func() any { return new(difference) }}

// describe finds what the outcome of a write depends on; ok is false if that
// is more than can be told.
func (t *tracker) describe(live, obj resource.Object, manager string) (w write, ok bool) {
	if t.shape == nil {
		return w, false
	}
	w.before = live.GetManagedFields()
	if given := obj.GetManagedFields(); given != nil && t.subresource == "" {
		w.before = given
	}
	if !t.countable(w.before) {
		return w, false
	}
	d := differences.Get().(*difference)
	defer differences.Put(d)
	d.out, d.unknown = d.out[:0], false
	d.out = appendText(d.out, manager)
	if live.GetUID() == "" {
		d.out = append(d.out, 1)
	} else {
		d.out = append(d.out, 0)
	}
	for i := range w.before {
		d.out = appendManager(d.out, &w.before[i])
	}
	d.out = append(d.out, end)
	d.add(t.shape, reflect.ValueOf(live), reflect.ValueOf(obj))
	w.key = sha256.Sum256(d.out)
	return w, !d.unknown
}

// countable says whether managers are so that their outcome can be kept: not
// so many that the oldest are merged, all of the version that is written, and
// none twice.
func (t *tracker) countable(before []metav1.ManagedFieldsEntry) bool {
	version := t.version.GroupVersion.String()
	const few = 9 // one below the number at which entries of updates are merged
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

func appendManager(out []byte, e *metav1.ManagedFieldsEntry) []byte {
	out = appendText(out, e.Manager)
	out = appendText(out, string(e.Operation))
	out = appendText(out, e.Subresource)
	owned := e.FieldsV1.GetRawBytes()
	return append(binary.AppendUvarint(out, uint64(len(owned))), owned...)
}

// decodable says whether the merging can read the managers. It begins with
// others if not.
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

// outcomeOf is what became of the managers before a write.
func outcomeOf(before, after []metav1.ManagedFieldsEntry) outcome {
	made := make(outcome, len(after))
	for i := range after {
		made[i] = outcomeEntry{entry: after[i], timeFrom: timeOfWrite}
		made[i].entry.Time = nil
		if after[i].Time == nil {
			made[i].timeFrom = noTime
		}
		for j := range before {
			if sameManager(&before[j], &after[i]) && sameTime(before[j].Time, after[i].Time) {
				made[i].timeFrom = j
			}
		}
	}
	return made
}

func sameTime(a, b *metav1.Time) bool {
	return a == b || a != nil && b != nil && a.Time.Equal(b.Time)
}

// managers is an outcome as the managed fields of one object.
func (o outcome) managers(before []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
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
			made[i].Time = before[from].Time
		}
	}
	slices.SortFunc(made, order)
	return made
}

// order is the one in which managed fields are listed.
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
