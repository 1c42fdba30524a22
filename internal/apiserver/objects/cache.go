package objects

import (
	"iter"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// Cache is the Source of a running server.
type Cache struct{ *watchcache.Cache }

// Kind implements Source.
func (c Cache) Kind(storagePath string) Kind {
	k := c.Cache.At(storagePath)
	if k == nil {
		return nil
	}
	return cached{k}
}

type cached struct{ kind *watchcache.Kind }

func (c cached) Get(namespace, name string) (resource.Object, bool) {
	e, ok := c.kind.Get(namespace, name)
	if !ok {
		return nil, false
	}
	return e.Object, true
}

func (c cached) Len() int { return c.kind.Snapshot().Len() }

func (c cached) All(namespace string) iter.Seq[resource.Object] {
	s := c.kind.Snapshot()
	return func(yield func(resource.Object) bool) {
		s.Ascend(namespace, watchcache.Position{}, func(e *watchcache.Entry) bool { return yield(e.Object) })
	}
}

func (c cached) Lookup(field, value string) (iter.Seq[resource.Object], bool) {
	s := c.kind.Snapshot()
	// Whether there is an index is known without visiting anything.
	if !s.Lookup(field, value, watchcache.Position{}, func(*watchcache.Entry) bool { return false }) {
		return nil, false
	}
	return func(yield func(resource.Object) bool) {
		s.Lookup(field, value, watchcache.Position{}, func(e *watchcache.Entry) bool { return yield(e.Object) })
	}, true
}

func (c cached) Revision() int64 { return c.kind.Changed() }
