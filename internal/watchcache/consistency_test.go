package watchcache_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/store/mem"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// lossy is a store whose watches leave out events.
type lossy struct {
	store.Store
	loses atomic.Bool
}

func (l *lossy) Watch(ctx context.Context, prefix string, after int64) <-chan store.Batch {
	out := make(chan store.Batch)
	in := l.Store.Watch(ctx, prefix, after)
	go func() {
		defer close(out)
		for batch := range in {
			if l.loses.Load() {
				batch.Events = nil
			}
			select {
			case out <- batch:
			case <-ctx.Done():
			}
		}
	}()
	return out
}

// An event that the store has lost is found out after some minutes. The cache is then
// initialized again, and its watches begin anew. Values that cannot be decoded are no
// difference.
func TestLostEventIsFoundOut(t *testing.T) {
	const spell = 8 * time.Minute // in which each kind is compared once
	for what, lose := range map[string]func(s store.Store, key string, revision int64, other []byte) (int64, error){
		"creation": func(s store.Store, _ string, _ int64, other []byte) (int64, error) {
			return s.Create(context.Background(), configMaps.Key("default", "b"), other, 0)
		},
		"update": func(s store.Store, key string, revision int64, other []byte) (int64, error) {
			return s.Update(context.Background(), key, other, revision, 0)
		},
		"deletion": func(s store.Store, key string, revision int64, _ []byte) (int64, error) {
			return s.Delete(context.Background(), key, revision)
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &lossy{Store: mem.New()}
				must[int64](t)(s.Create(t.Context(), configMaps.Key("default", "broken"), []byte("k8s\x00\xff"), 0))
				c := run(t, s, configMaps, pods)
				k := c.Kind(configMaps)
				a := must[*watchcache.Entry](t)(k.Create(t.Context(), configMap("default", "a", "1")))
				must[int64](t)(c.Fresh(t.Context()))
				time.Sleep(spell)
				synctest.Wait()
				if got := k.Stats().Compared; got != (watchcache.Comparisons{Same: 1}) {
					t.Errorf("before: %+v", got)
				}

				s.loses.Store(true)
				name := "a"
				if what == "creation" {
					name = "b"
				}
				other := must[[]byte](t)(resource.EncodeStored(configMaps, configMap("default", name, "2")))
				must[int64](t)(lose(s.Store, configMaps.Key("default", "a"), a.Revision, other))
				must[int64](t)(c.Fresh(t.Context()))
				s.loses.Store(false)
				cursor := must[*watchcache.Cursor](t)(k.Watch(c.Revision()))
				time.Sleep(spell)
				synctest.Wait()
				if got := k.Stats().Compared; got.Different != 1 || got.Failed != 0 {
					t.Errorf("after: %+v", got)
				}
				if got := c.Kind(pods).Stats().Compared; got.Different != 0 || got.Failed != 0 {
					t.Errorf("pods: %+v", got)
				}
				if _, _, err := cursor.Next(t.Context(), nil); !errors.Is(err, store.ErrCompacted) {
					t.Errorf("a watch over the lost event: %v", err)
				}
				time.Sleep(spell)
				synctest.Wait()
				if got := k.Stats().Compared; got.Different != 1 {
					t.Errorf("in the end: %+v", got)
				}
				if e, ok := k.Get("default", "a"); ok != (what != "deletion") || what == "update" && e.Revision == a.Revision {
					t.Errorf("in the end: %v, %+v", ok, e)
				}
			})
		})
	}
}

// While the store is away, nothing can be compared, and nothing is lost.
func TestComparisonWhileStoreAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &flaky{Store: mem.New()}
		c := run(t, s, configMaps)
		k := c.Kind(configMaps)
		must[*watchcache.Entry](t)(k.Create(t.Context(), configMap("default", "a", "1")))
		must[int64](t)(c.Fresh(t.Context()))
		s.setUnavailable(true)
		time.Sleep(8 * time.Minute)
		synctest.Wait()
		if got := k.Stats().Compared; got != (watchcache.Comparisons{Failed: 1}) {
			t.Errorf("%+v", got)
		}
		s.setUnavailable(false)
		if k.Snapshot().Len() != 1 {
			t.Error("the cache lost its objects")
		}
	})
}
