package watchcache_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/store/mem"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// unlistable is a store whose lists fail while refuse is set.
type unlistable struct {
	*flaky
	refuse atomic.Bool
}

func (u *unlistable) List(ctx context.Context, prefix string, opts store.ListOptions) (store.Page, error) {
	if u.refuse.Load() {
		return store.Page{}, store.ErrUnavailable
	}
	return u.flaky.List(ctx, prefix, opts)
}

// TestAdditionOutlivesWatch checks that a resource is added although the watch of
// the store ends while the cache retries to read its objects.
func TestAdditionOutlivesWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &unlistable{flaky: &flaky{Store: mem.New()}}
		v1 := custom("v1")
		must[int64](t)(s.Create(t.Context(), v1.Key("default", "old"), must[[]byte](t)(resource.EncodeStored(v1, boat(v1, "old"))), 0))
		c := run(t, s, configMaps)
		s.refuse.Store(true)
		added := make(chan *watchcache.Kind, 1)
		go func() { added <- c.Add(v1) }()
		synctest.Wait()
		s.breakWatches(nil)
		synctest.Wait()
		s.refuse.Store(false)
		select {
		case k := <-added:
			if _, ok := k.Get("default", "old"); !ok {
				t.Error("the resource was added without its object")
			}
		case <-time.After(time.Minute):
			t.Fatal("the resource is still not added a minute after the store came back")
		}
	})
}

// indexing returns the definition of custom with selectable fields.
func indexing(labels ...string) *resource.Resource {
	r := custom("v1")
	r.FieldSelectors = resource.FieldSelectors[resource.Object]{
		Fields: labels, Indexed: labels,
		SelectableFields: func(o resource.Object) fields.Set {
			set := fields.Set{}
			for _, label := range labels {
				set[label], _, _ = unstructured.NestedString(o.(*unstructured.Unstructured).Object, label)
			}
			return set
		},
	}
	return r
}

// red returns a boat with a color.
func red(r *resource.Resource, name string) *unstructured.Unstructured {
	u := boat(r, name)
	u.Object["color"] = "red"
	return u
}

// TestIndexedFieldsChange checks that the events from before a change of the
// indexed fields are forgotten, because they have no values of the new fields.
func TestIndexedFieldsChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := run(t, mem.New(), configMaps)
		before, after := indexing("name"), indexing("name", "color")
		k := c.Add(before)
		begin := c.Revision()
		cursor := must[*watchcache.Cursor](t)(k.Watch(begin))
		created := must[*watchcache.Entry](t)(k.Create(t.Context(), boat(before, "a")))
		must[*watchcache.Entry](t)(k.Update(t.Context(), red(before, "a"), created))
		must[int64](t)(c.Fresh(t.Context()))
		c.Add(after)

		if _, ok := k.SnapshotAt(created.Revision); ok {
			t.Error("snapshot from before the change")
		}
		if _, _, err := cursor.Next(t.Context(), nil); !errors.Is(err, store.ErrCompacted) {
			t.Errorf("cursor over the change: %v", err)
		}
		reds := watchcache.Scope{Field: "color", Value: "red"}
		if _, err := k.WatchScope(begin, reds); !errors.Is(err, store.ErrCompacted) {
			t.Errorf("watch from before the change: %v", err)
		}
		must[*watchcache.Cursor](t)(k.WatchScope(c.Revision(), reds))
		found := 0
		k.Lookup("color", "red", func(*watchcache.Entry) bool { found++; return true })
		if found != 1 {
			t.Errorf("%d red boats, want 1", found)
		}
	})
}

// heldCreate blocks creations until release is closed.
type heldCreate struct {
	store.Store
	begun, release chan struct{}
}

func (h *heldCreate) Create(ctx context.Context, key string, value []byte, ttl time.Duration) (int64, error) {
	close(h.begun)
	<-h.release
	return h.Store.Create(ctx, key, value, ttl)
}

// TestIndexedFieldsChangeDuringWrite checks that a write which began before a change
// of the indexed fields is in the new index.
func TestIndexedFieldsChangeDuringWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &heldCreate{Store: mem.New(), begun: make(chan struct{}), release: make(chan struct{})}
		c := run(t, h, configMaps)
		before, after := indexing("name"), indexing("name", "color")
		k := c.Add(before)
		created := make(chan error, 1)
		go func() {
			_, err := k.Create(t.Context(), red(before, "a"))
			created <- err
		}()
		<-h.begun
		c.Add(after)
		close(h.release)
		if err := <-created; err != nil {
			t.Fatal(err)
		}
		must[int64](t)(c.Fresh(t.Context()))
		found := 0
		k.Lookup("color", "red", func(*watchcache.Entry) bool { found++; return true })
		if found != 1 {
			t.Errorf("%d red boats, want 1", found)
		}
	})
}
