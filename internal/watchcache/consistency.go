package watchcache

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/supervise"
)

// The time between two comparisons of the cache with the store, and the most that is
// added to it, so that servers do not all read the store at once. Both are upstream's.
const (
	compareEvery  = 5 * time.Minute
	compareJitter = compareEvery / 2
)

// compareTimeout limits the comparison of one kind.
const compareTimeout = time.Minute

// errInconsistent ends the watch of a cache that has other objects than the store.
var errInconsistent = errors.New("the cache differs from the store")

// Comparisons counts the comparisons of a kind with the store, by their outcome.
type Comparisons struct{ Same, Different, Failed int64 }

// comparisons are the counters of Comparisons.
type comparisons struct{ same, different, failed atomic.Int64 }

// compareAll compares all kinds with the store from time to time, until ctx is done.
func (c *Cache) compareAll(ctx context.Context) {
	for supervise.Pause(ctx, compareEvery+rand.N(compareJitter)) {
		for _, k := range c.Kinds() {
			k.compare(ctx)
		}
	}
}

// compare compares the kind with the store. If they differ, the cache is initialized
// again: an event was lost, and it will not come.
func (k *Kind) compare(ctx context.Context) {
	log := klog.FromContext(ctx)
	limited, cancel := context.WithTimeout(ctx, compareTimeout)
	defer cancel()
	r := k.Resource()
	difference, err := compareWithStore(limited, k, r)
	switch {
	case ctx.Err() != nil, k.cache.Kind(r) != k: // it has been removed
	case err != nil:
		k.compared.failed.Add(1)
		log.Error(err, "Cannot compare the cache with the store", "resource", r.GroupResource())
	case difference != "":
		k.compared.different.Add(1)
		log.Error(errInconsistent, "Initializing the cache again", "resource", r.GroupResource(), "difference", difference)
		select {
		case k.cache.inconsistent <- struct{}{}:
		default: // it is known already
		}
	default:
		k.compared.same.Add(1)
	}
}

// compareWithStore names an object that only one of a kind and the store has in its
// revision, or returns "". Values that cannot be decoded are hidden and do not count.
func compareWithStore(ctx context.Context, k *Kind, r *resource.Resource) (difference string, err error) {
	if _, err := k.cache.Fresh(ctx); err != nil { // an older revision may be compacted
		return "", err
	}
	s, same := k.Snapshot(), 0
	only := map[string]*Kind{r.Storage.Path: k}
	_, err = k.cache.list(ctx, keyPrefix(r, ""), s.Revision, func(page []store.KeyValue) {
		for _, kv := range page {
			found, at := route(only, kv.Key)
			if found == nil {
				continue
			}
			e, ok := s.Get(at.Namespace, at.Name)
			switch {
			case ok && e.Revision == kv.Revision:
				same++
			case !ok && !decodes(k, r, at, kv):
			case difference == "":
				difference = fmt.Sprintf("%s has revision %d in the store", kv.Key, kv.Revision)
			}
		}
	})
	if err == nil && difference == "" && same < s.Len() {
		difference = fmt.Sprintf("the store lacks %d objects", s.Len()-same)
	}
	return difference, err
}

func decodes(k *Kind, r *resource.Resource, at Position, kv store.KeyValue) bool {
	_, err := k.decodeEntry(r, at, kv.Value, kv.Revision)
	return err == nil
}
