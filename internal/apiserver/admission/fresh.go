package admission

import (
	"context"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/resource"
)

// fresh reads the objects of a kind. It looks for a missing one again in the state of
// the store: another API server may have just created it.
type fresh[T resource.Object] struct {
	objects.Reader[T]
	refresh func(context.Context) error // nil: the objects are always fresh
}

func freshOf[T resource.Object](c *Config, storagePath string) fresh[T] {
	return fresh[T]{objects.Of[T](c.Objects, storagePath), c.Refresh}
}

// find returns the object, or ok false.
func (f fresh[T]) find(ctx context.Context, namespace, name string) (obj T, ok bool) {
	if obj, ok = f.Get(namespace, name); !ok && f.refresh != nil && f.refresh(ctx) == nil {
		obj, ok = f.Get(namespace, name)
	}
	return obj, ok
}
