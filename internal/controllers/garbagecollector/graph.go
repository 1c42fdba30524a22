package garbagecollector

import (
	"hash/maphash"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// object names one object, for good: UIDs are never used twice.
type object struct {
	resource  schema.GroupVersionResource
	namespace string
	name      string
	uid       types.UID
}

// identity names one object in whatever version it is seen.
type identity struct {
	resource  schema.GroupResource
	namespace string
	name      string
	uid       types.UID
}

func (o object) identity() identity {
	return identity{o.resource.GroupResource(), o.namespace, o.name, o.uid}
}

// task is one thing to look at.
type task struct {
	do     action
	object object
}

type action int

const (
	// judge an object that has owners: should it go, or lose a reference?
	judge action = iota
	// foreground: an object is deleted in the foreground; its dependents go
	// first.
	foreground
	// orphan: an object is deleted and its dependents stay.
	orphan
)

// graph knows who owns whom. Only objects that have owners are in it, and
// the UIDs that they name; everything else stays in the informers' stores.
type graph struct {
	mu sync.RWMutex // guards all below
	// owners of each object that has any.
	owners map[object][]metav1.OwnerReference
	// dependents of each UID that is named as an owner, whether an object of
	// that UID was ever seen or not.
	dependents map[types.UID]map[object]struct{}
	// going are the objects being deleted in the foreground.
	going map[types.UID]object
	// gone are objects known not to exist, or not any longer. A reference that
	// has the UID of one but names another kind is not a reference to it.
	gone *recent[identity]
}

func newGraph() *graph {
	return &graph{
		owners:     map[object][]metav1.OwnerReference{},
		dependents: map[types.UID]map[object]struct{}{},
		going:      map[types.UID]object{},
		gone:       newRecent[identity](5000),
	}
}

// put takes in an object as it is now and returns what has to be looked at
// because of it.
func (g *graph) put(o object, meta metav1.Object) []task {
	g.mu.Lock()
	defer g.mu.Unlock()
	var tasks []task
	refs := meta.GetOwnerReferences()
	before := g.owners[o]
	if !slices.EqualFunc(before, refs, sameReference) {
		g.link(o, before, refs)
		if len(refs) > 0 {
			tasks = append(tasks, task{judge, o})
		}
		// An owner that waits for this object may not have to any longer.
		for _, ref := range before {
			if owner, ok := g.going[ref.UID]; ok {
				tasks = append(tasks, task{foreground, owner})
			}
		}
	}
	if meta.GetDeletionTimestamp() == nil {
		return tasks
	}
	if slices.Contains(meta.GetFinalizers(), metav1.FinalizerOrphanDependents) {
		tasks = append(tasks, task{orphan, o})
	}
	if slices.Contains(meta.GetFinalizers(), metav1.FinalizerDeleteDependents) {
		g.going[o.uid] = o
		tasks = append(tasks, task{foreground, o})
	} else {
		delete(g.going, o.uid)
	}
	return tasks
}

// remove forgets an object that is gone and returns what has to be looked at
// because of it: those it owned, and owners that waited for it.
func (g *graph) remove(o object) []task {
	g.mu.Lock()
	defer g.mu.Unlock()
	var tasks []task
	g.gone.add(o.identity())
	delete(g.going, o.uid)
	for dependent := range g.dependents[o.uid] {
		tasks = append(tasks, task{judge, dependent})
	}
	return append(tasks, g.unlink(o)...)
}

// unlink takes an object's owner references out and returns the owners that
// waited for it.
func (g *graph) unlink(o object) []task {
	var tasks []task
	for _, ref := range g.owners[o] {
		if owner, ok := g.going[ref.UID]; ok {
			tasks = append(tasks, task{foreground, owner})
		}
	}
	g.link(o, g.owners[o], nil)
	return tasks
}

// link replaces an object's owner references.
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

// dependent is an object and whether it blocks the deletion of its owner.
type dependent struct {
	object
	blocks bool
}

// dependentsOf lists the objects that name a UID as an owner.
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

// isGoing reports whether an object is being deleted in the foreground.
func (g *graph) isGoing(uid types.UID) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	_, ok := g.going[uid]
	return ok
}

func (g *graph) isGone(o object) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.gone.has(o.identity())
}

func (g *graph) markGone(o object) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gone.add(o.identity())
}

// forget drops all objects of a resource that is not watched any longer, and
// returns the owners that waited for them. The objects may well exist, in
// another version or until their kind is served again: what they own stays.
func (g *graph) forget(resource schema.GroupVersionResource) []task {
	g.mu.Lock()
	defer g.mu.Unlock()
	var tasks []task
	for o := range g.owners {
		if o.resource == resource {
			tasks = append(tasks, g.unlink(o)...)
		}
	}
	for uid, o := range g.going {
		if o.resource == resource {
			delete(g.going, uid)
		}
	}
	return tasks
}

func sameReference(a, b metav1.OwnerReference) bool {
	return a.UID == b.UID && a.Kind == b.Kind && a.Name == b.Name && a.APIVersion == b.APIVersion &&
		(a.BlockOwnerDeletion != nil && *a.BlockOwnerDeletion) == (b.BlockOwnerDeletion != nil && *b.BlockOwnerDeletion)
}

// recent is a set that keeps the last n keys added, as hashes: the keys'
// texts, a few here and a few there, would keep the memory of the objects that
// they are from.
type recent[K comparable] struct {
	seeds [2]maphash.Seed
	ring  []hash
	next  int
	set   map[hash]struct{}
}

// hash is wide enough to be taken for the key.
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
