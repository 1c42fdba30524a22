package watchcache

import (
	"reflect"
	"strconv"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/coracle-io/coracle/internal/resource"
)

// Entry is an object at a revision, with its cached encodings and conversions.
type Entry struct {
	seal            seal
	Object          resource.Object // hub version, TypeMeta and resourceVersion set
	Namespace, Name string
	Revision        int64
	size            int      // of the stored value in bytes
	index           []string // values of the kind's indexed fields
	encodings       atomic.Pointer[encoding]
	conversions     atomic.Pointer[conversions]
	packed          bool        // created by repacking
	used            atomic.Bool // an encoding or conversion was used since the last sweep
}

// encoding is an element of an entry's list of encodings, newest first. Entries have
// few encodings, so a list is cheaper than a map.
type encoding struct {
	slot int
	next *encoding
	made atomic.Bool
	mu   sync.Mutex // held while data is created
	data []byte
}

func newEntry(r *resource.Resource, obj resource.Object, at Position, revision int64, size int) *Entry {
	e := &Entry{Object: obj, Namespace: at.Namespace, Name: at.Name, Revision: revision, size: size}
	e.shareNames()
	e.index = indexValues(r, obj)
	e.seal.close(obj)
	return e
}

// StoredSize returns the size of the stored value in bytes.
func (e *Entry) StoredSize() int { return e.size }

func indexValues(r *resource.Resource, obj resource.Object) []string {
	if len(r.FieldSelectors.Indexed) == 0 {
		return nil
	}
	values := make([]string, len(r.FieldSelectors.Indexed))
	for i, field := range r.FieldSelectors.Indexed {
		values[i] = r.Field(obj, field)
	}
	return values
}

// shareNames makes the entry's names share memory with the object's, so that the key
// that contained them can be freed.
func (e *Entry) shareNames() {
	if namespace := e.Object.GetNamespace(); namespace == e.Namespace {
		e.Namespace = namespace
	}
	if name := e.Object.GetName(); name == e.Name {
		e.Name = name
	}
}

// Encoded returns the encoding for a slot, which is a small number that identifies a
// served version and media type. It calls make the first time, and again after an
// error. The result is shared and must not be changed. Unused encodings are dropped
// within a minute.
func (e *Entry) Encoded(slot int, make func() ([]byte, error)) ([]byte, error) {
	e.markUsed()
	enc := e.encoding(slot)
	if enc.made.Load() {
		return enc.data, nil
	}
	enc.mu.Lock()
	defer enc.mu.Unlock()
	if enc.made.Load() {
		return enc.data, nil
	}
	data, err := make()
	if err != nil {
		return nil, err
	}
	enc.data = data
	enc.made.Store(true)
	return data, nil
}

func (e *Entry) encoding(slot int) *encoding {
	for {
		head := e.encodings.Load()
		for enc := head; enc != nil; enc = enc.next {
			if enc.slot == slot {
				return enc
			}
		}
		enc := &encoding{slot: slot, next: head}
		if e.encodings.CompareAndSwap(head, enc) {
			return enc
		}
	}
}

func (e *Entry) markUsed() {
	if !e.used.Load() {
		e.used.Store(true)
	}
}

// sweep drops the encodings if nothing was used since the last sweep. It drops the
// conversions then, too, if they do not fit into room, from which it takes those that
// it keeps.
func (e *Entry) sweep(room *int) {
	used := e.used.Swap(false)
	if !used {
		e.encodings.Store(nil)
	}
	kept := e.conversions.Load()
	if kept == nil {
		return
	}
	if size := kept.size(); used || size <= *room {
		*room -= size
	} else {
		e.conversions.Store(nil)
	}
}

// atRevision returns a copy of obj with another resourceVersion. The copy shares
// everything but the outermost level of its metadata, so neither may be changed.
func atRevision(obj resource.Object, revision int64) resource.Object {
	version := strconv.FormatInt(revision, 10)
	if u, ok := obj.(*unstructured.Unstructured); ok {
		content := shallowCopy(u.Object)
		if metadata, ok := content["metadata"].(map[string]any); ok {
			content["metadata"] = shallowCopy(metadata)
		}
		c := &unstructured.Unstructured{Object: content}
		c.SetResourceVersion(version)
		return c
	}
	c := reflect.New(reflect.TypeOf(obj).Elem())
	c.Elem().Set(reflect.ValueOf(obj).Elem())
	copied := c.Interface().(resource.Object)
	copied.SetResourceVersion(version)
	return copied
}

func shallowCopy(m map[string]any) map[string]any {
	c := make(map[string]any, len(m))
	for k, v := range m {
		c[k] = v
	}
	return c
}
