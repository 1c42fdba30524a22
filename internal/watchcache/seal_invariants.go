//go:build invariants

package watchcache

import (
	"encoding/json"
	"fmt"
	"hash/fnv"

	"github.com/coracle-io/coracle/internal/resource"
)

// seal is the hash of an object at the time when it became shared.
type seal struct{ sum uint64 }

func (s *seal) close(obj resource.Object) { s.sum = hash(obj) }

// check panics if the object has changed since it was sealed.
func (s *seal) check(obj resource.Object) {
	if hash(obj) != s.sum {
		panic(fmt.Sprintf("shared object %T %s/%s resourceVersion %s was changed by a reader of the watch cache",
			obj, obj.GetNamespace(), obj.GetName(), obj.GetResourceVersion()))
	}
}

func hash(obj resource.Object) uint64 {
	data, err := json.Marshal(obj)
	if err != nil {
		panic(fmt.Sprintf("hash shared object %T: %v", obj, err))
	}
	h := fnv.New64a()
	h.Write(data)
	return h.Sum64()
}
