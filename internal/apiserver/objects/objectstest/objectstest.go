// Package objectstest provides objects in memory to tests.
package objectstest

import (
	"cmp"
	"iter"
	"slices"
	"sync"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/resource"
)

// Memory is an objects.Source that has what was put into it.
type Memory struct {
	mu       sync.RWMutex // guards kinds and everything in them
	kinds    map[string]map[key]resource.Object
	revision map[string]int64
}

type key struct{ namespace, name string }

// NewMemory returns an empty Memory.
func NewMemory() *Memory {
	return &Memory{kinds: map[string]map[key]resource.Object{}, revision: map[string]int64{}}
}

// Put adds or replaces objects of one kind.
func (m *Memory) Put(storagePath string, objs ...resource.Object) *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.kinds[storagePath] == nil {
		m.kinds[storagePath] = map[key]resource.Object{}
	}
	for _, o := range objs {
		m.kinds[storagePath][key{o.GetNamespace(), o.GetName()}] = o
	}
	m.revision[storagePath]++
	return m
}

// Delete removes an object.
func (m *Memory) Delete(storagePath, namespace, name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.kinds[storagePath], key{namespace, name})
	m.revision[storagePath]++
}

// Kind implements objects.Source. Every kind is served.
func (m *Memory) Kind(storagePath string) objects.Kind { return memoryKind{m, storagePath} }

type memoryKind struct {
	*Memory
	path string
}

func (k memoryKind) Len() int {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return len(k.kinds[k.path])
}

func (k memoryKind) Get(namespace, name string) (resource.Object, bool) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	o, ok := k.kinds[k.path][key{namespace, name}]
	return o, ok
}

func (k memoryKind) All(namespace string) iter.Seq[resource.Object] {
	k.mu.RLock()
	defer k.mu.RUnlock()
	var all []resource.Object
	for at, o := range k.kinds[k.path] {
		if namespace == "" || at.namespace == namespace {
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(a, b resource.Object) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return slices.Values(all)
}

func (k memoryKind) Lookup(string, string) (iter.Seq[resource.Object], bool) { return nil, false }

func (k memoryKind) Revision() int64 {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.revision[k.path]
}
