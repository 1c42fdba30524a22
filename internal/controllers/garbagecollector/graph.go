package garbagecollector

import (
	"hash/maphash"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// object identifies an object of one resource version. UIDs are never reused.
type object struct {
	resource  schema.GroupVersionResource
	namespace string
	name      string
	uid       types.UID
}

// identity identifies an object independent of the version in which it is watched.
type identity struct {
	resource  schema.GroupResource
	namespace string
	name      string
	uid       types.UID
}

func (o object) identity() identity {
	return identity{o.resource.GroupResource(), o.namespace, o.name, o.uid}
}

// task is a key of the collector's queue.
type task struct {
	action action
	object object
}

type action int

const (
	// attemptToDelete deletes an object, or removes owner references from it, if its
	// owners require that.
	attemptToDelete action = iota
	// deleteDependents deletes the dependents of an object that is being deleted in
	// the foreground.
	deleteDependents
	// orphanDependents removes references to an object that is being deleted with the
	// policy Orphan.
	orphanDependents
)

// graph holds the owner references of all objects. It contains only objects with
// owners and the UIDs of these owners; everything else is in the informers' stores.
type graph struct {
	mu sync.RWMutex // guards the following
	// owners holds the references of each object that has owners.
	owners map[object][]metav1.OwnerReference
	// dependents holds the dependents of each UID in an owner reference, whether or not
	// an object with that UID exists.
	dependents map[types.UID]map[object]struct{}
	// deletingDependents holds the objects that are being deleted in the foreground.
	deletingDependents map[types.UID]object
	// absent holds objects that are known not to exist. A reference with the UID of
	// such an object but another kind, name or namespace is not a reference to it.
	absent *recent[identity]
}

func newGraph() *graph {
	return &graph{
		owners:             map[object][]metav1.OwnerReference{},
		dependents:         map[types.UID]map[object]struct{}{},
		deletingDependents: map[types.UID]object{},
		absent:             newRecent[identity](5000),
	}
}

// put records the current state of an object and returns the resulting tasks.
func (g *graph) put(o object, meta metav1.Object) []task {
	g.mu.Lock()
	defer g.mu.Unlock()
	var tasks []task
	refs := meta.GetOwnerReferences()
	before := g.owners[o]
	if !slices.EqualFunc(before, refs, sameReference) {
		g.link(o, before, refs)
		if len(refs) > 0 {
			tasks = append(tasks, task{attemptToDelete, o})
		}
		// An owner may no longer have to wait for this object.
		for _, ref := range before {
			if owner, ok := g.deletingDependents[ref.UID]; ok {
				tasks = append(tasks, task{deleteDependents, owner})
			}
		}
	}
	if meta.GetDeletionTimestamp() == nil {
		return tasks
	}
	if slices.Contains(meta.GetFinalizers(), metav1.FinalizerOrphanDependents) {
		tasks = append(tasks, task{orphanDependents, o})
	}
	if slices.Contains(meta.GetFinalizers(), metav1.FinalizerDeleteDependents) {
		g.deletingDependents[o.uid] = o
		tasks = append(tasks, task{deleteDependents, o})
	} else {
		delete(g.deletingDependents, o.uid)
	}
	return tasks
}

// remove records that an object has been deleted and returns tasks for its dependents
// and for owners that wait for it.
func (g *graph) remove(o object) []task {
	g.mu.Lock()
	defer g.mu.Unlock()
	var tasks []task
	g.absent.add(o.identity())
	delete(g.deletingDependents, o.uid)
	for dependent := range g.dependents[o.uid] {
		tasks = append(tasks, task{attemptToDelete, dependent})
	}
	return append(tasks, g.unlink(o)...)
}

// unlink removes the owner references of an object and returns tasks for owners that
// wait for it. Callers hold mu.
func (g *graph) unlink(o object) []task {
	var tasks []task
	for _, ref := range g.owners[o] {
		if owner, ok := g.deletingDependents[ref.UID]; ok {
			tasks = append(tasks, task{deleteDependents, owner})
		}
	}
	g.link(o, g.owners[o], nil)
	return tasks
}

// link replaces the owner references of an object. Callers hold mu.
func (g *graph) link(o object, before, after []metav1.OwnerReference) {
	for _, ref := range before {
		delete(g.dependents[ref.UID], o)
		if len(g.dependents[ref.UID]) == 0 {
			delete(g.dependents, ref.UID)
		}
	}
	for _, ref := range after {
		if g.dependents[ref.UID] == nil {
			g.dependents[ref.UID] = map[object]struct{}{}
		}
		g.dependents[ref.UID][o] = struct{}{}
	}
	if len(after) == 0 {
		delete(g.owners, o)
	} else {
		g.owners[o] = after
	}
}

// dependent is a dependent of an owner. blocks is true if it blocks the owner's
// deletion in the foreground.
type dependent struct {
	object
	blocks bool
}

// dependentsOf returns the objects with an owner reference to a UID.
func (g *graph) dependentsOf(uid types.UID) []dependent {
	g.mu.RLock()
	defer g.mu.RUnlock()
	out := make([]dependent, 0, len(g.dependents[uid]))
	for o := range g.dependents[uid] {
		i := slices.IndexFunc(g.owners[o], func(r metav1.OwnerReference) bool { return r.UID == uid })
		blocks := i >= 0 && g.owners[o][i].BlockOwnerDeletion != nil && *g.owners[o][i].BlockOwnerDeletion
		out = append(out, dependent{o, blocks})
	}
	return out
}

// isDeletingDependents reports whether an object is being deleted in the foreground.
func (g *graph) isDeletingDependents(uid types.UID) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	_, ok := g.deletingDependents[uid]
	return ok
}

func (g *graph) isAbsent(o object) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.absent.has(o.identity())
}

func (g *graph) markAbsent(o object) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.absent.add(o.identity())
}

// forget drops the objects of a resource that is no longer watched, and returns tasks
// for owners that wait for them. The objects may still exist, so their dependents are
// not deleted.
func (g *graph) forget(resource schema.GroupVersionResource) []task {
	g.mu.Lock()
	defer g.mu.Unlock()
	var tasks []task
	for o := range g.owners {
		if o.resource == resource {
			tasks = append(tasks, g.unlink(o)...)
		}
	}
	for uid, o := range g.deletingDependents {
		if o.resource == resource {
			delete(g.deletingDependents, uid)
		}
	}
	return tasks
}

func sameReference(a, b metav1.OwnerReference) bool {
	return a.UID == b.UID && a.Kind == b.Kind && a.Name == b.Name && a.APIVersion == b.APIVersion &&
		(a.BlockOwnerDeletion != nil && *a.BlockOwnerDeletion) == (b.BlockOwnerDeletion != nil && *b.BlockOwnerDeletion)
}

// recent is a set of the last n added keys. It stores hashes, because the strings in
// the keys would keep the memory of the objects they came from.
type recent[K comparable] struct {
	seeds [2]maphash.Seed
	ring  []hash
	next  int
	set   map[hash]struct{}
}

// hash is wide enough to identify a key.
type hash [2]uint64

func newRecent[K comparable](n int) *recent[K] {
	return &recent[K]{seeds: [...]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, ring: make([]hash, n), set: map[hash]struct{}{}}
}

func (r *recent[K]) hash(key K) hash {
	return hash{maphash.Comparable(r.seeds[0], key), maphash.Comparable(r.seeds[1], key)}
}

func (r *recent[K]) add(key K) {
	h := r.hash(key)
	if _, ok := r.set[h]; ok {
		return
	}
	delete(r.set, r.ring[r.next])
	r.ring[r.next] = h
	r.set[h] = struct{}{}
	r.next = (r.next + 1) % len(r.ring)
}

func (r *recent[K]) has(key K) bool {
	_, ok := r.set[r.hash(key)]
	return ok
}
