package watchcache_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coracle-io/coracle/internal/leaktest"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/store/mem"
	"github.com/coracle-io/coracle/internal/watchcache"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Run(m)) }

func TestStoreAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &flaky{Store: mem.New()}
		c := run(t, s, configMaps)
		k := c.Kind(configMaps)
		must[*watchcache.Entry](t)(k.Create(t.Context(), configMap("default", "a", "1")))
		must[int64](t)(c.Fresh(t.Context()))
		cursor := must[*watchcache.Cursor](t)(k.Watch(c.Revision()))

		s.setUnavailable(true)
		if _, err := c.Fresh(t.Context()); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("consistent read while the store is unavailable: %v", err)
		}
		if k.Snapshot().Len() != 1 {
			t.Error("the cache lost its objects")
		}
		if _, err := s.Store.Create(t.Context(), configMaps.Key("default", "b"), must[[]byte](t)(resource.EncodeStored(configMaps, configMap("default", "b", ""))), 0); err != nil {
			t.Fatal(err)
		}
		s.setUnavailable(false)
		events, _, err := cursor.Next(t.Context(), nil)
		if got := fmt.Sprint(lines(events)); err != nil || got != "[ADDED default/b 3]" {
			t.Errorf("after the store came back: %s, %v", got, err)
		}
	})
}

func TestStartWhileStoreAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &flaky{Store: mem.New()}
		s.setUnavailable(true)
		time.AfterFunc(time.Minute, func() { s.setUnavailable(false) })
		c := run(t, s, configMaps)
		must[int64](t)(c.Fresh(t.Context()))
	})
}

func TestUndecodableValueIsHidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := mem.New()
		broken := configMaps.Key("default", "broken")
		must[int64](t)(s.Create(t.Context(), broken, []byte("k8s\x00\xff"), 0))
		c := run(t, s, configMaps)
		k := c.Kind(configMaps)
		a := must[*watchcache.Entry](t)(k.Create(t.Context(), configMap("default", "a", "1")))
		cursor := must[*watchcache.Cursor](t)(k.Watch(a.Revision))
		spoiled := must[int64](t)(s.Update(t.Context(), configMaps.Key("default", "a"), []byte("{"), a.Revision, 0))
		must[int64](t)(s.Update(t.Context(), configMaps.Key("default", "a"), must[[]byte](t)(resource.EncodeStored(configMaps, configMap("default", "a", "2"))), spoiled, 0))
		must[int64](t)(c.Fresh(t.Context()))
		events, _, err := cursor.Next(t.Context(), nil)
		if got := fmt.Sprint(lines(events)); err != nil || got != "[DELETED default/a 4 ADDED default/a 5]" {
			t.Errorf("events %s, %v", got, err)
		}
		if n := c.Undecodable(); n != 2 {
			t.Errorf("%d undecodable values, want 2", n)
		}
		if _, err := k.Read(t.Context(), "default", "broken"); err == nil || errors.Is(err, store.ErrNotFound) {
			t.Errorf("read of a broken value: %v", err)
		}
	})
}

// custom returns a resource like the resource of a CustomResourceDefinition.
func custom(version string) *resource.Resource {
	gv := schema.GroupVersion{Group: "example.com", Version: version}
	same := func(o resource.Object) resource.Object { return o }
	return &resource.Resource{
		Group: gv.Group, Names: resource.Names{Kind: "Boat", Plural: "boats"}, Namespaced: true,
		Versions: []resource.Version{{GroupVersion: gv, Hub: true, ToHub: same, FromHub: same, New: func() resource.Object {
			u := &unstructured.Unstructured{}
			u.SetGroupVersionKind(gv.WithKind("Boat"))
			return u
		}}},
		Storage: resource.Storage{Path: "example.com/boats"},
	}
}

func boat(r *resource.Resource, name string) *unstructured.Unstructured {
	u := r.Hub().New().(*unstructured.Unstructured)
	u.SetNamespace("default")
	u.SetName(name)
	return u
}

func TestCustomResourceComesAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := mem.New()
		v1 := custom("v1")
		must[int64](t)(s.Create(t.Context(), v1.Key("default", "old"), must[[]byte](t)(resource.EncodeStored(v1, boat(v1, "old"))), 0))
		c := run(t, s, configMaps)
		k := c.Add(v1)
		if e, ok := k.Get("default", "old"); !ok || e.Object.GetResourceVersion() != "2" {
			t.Fatalf("object from before: %+v", e)
		}
		cursor := must[*watchcache.Cursor](t)(k.Watch(c.Revision()))
		must[*watchcache.Entry](t)(k.Create(t.Context(), boat(v1, "new")))
		must[int64](t)(c.Fresh(t.Context()))

		if again := c.Add(custom("v1")); again != k {
			t.Error("the same storage path became another kind")
		}
		events, _, err := cursor.Next(t.Context(), nil)
		if got := fmt.Sprint(lines(events)); err != nil || got != "[ADDED default/new 3]" {
			t.Errorf("after a new schema: %s, %v", got, err)
		}
		c.Add(custom("v2"))
		if e, _ := k.Get("default", "new"); e.Object.GetObjectKind().GroupVersionKind().Version != "v2" {
			t.Errorf("not converted: %v", e.Object)
		}
		if _, _, err := cursor.Next(t.Context(), nil); !errors.Is(err, store.ErrCompacted) {
			t.Errorf("cursor over a change of the hub version: %v", err)
		}
		cursor = must[*watchcache.Cursor](t)(k.Watch(c.Revision()))
		c.Remove(v1)
		if _, _, err := cursor.Next(t.Context(), nil); !errors.Is(err, watchcache.ErrRemoved) {
			t.Errorf("cursor of a removed resource: %v", err)
		}
		if c.Kind(v1) != nil {
			t.Error("the removed resource is still cached")
		}
	})
}

func TestOldEventsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := run(t, mem.New(), configMaps)
		k := c.Kind(configMaps)
		begin := c.Revision()
		slow := must[*watchcache.Cursor](t)(k.Watch(begin))
		scoped := must[*watchcache.Cursor](t)(k.WatchScope(begin, watchcache.Scope{Namespace: "default"}))
		must[*watchcache.Entry](t)(k.Create(t.Context(), configMap("default", "a", "1")))
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		for _, cursor := range []*watchcache.Cursor{slow, scoped} {
			if _, _, err := cursor.Next(t.Context(), nil); !errors.Is(err, store.ErrCompacted) {
				t.Errorf("cursor from ten minutes ago: %v", err)
			}
		}
		if _, err := k.Watch(begin); !errors.Is(err, store.ErrCompacted) {
			t.Errorf("watch from ten minutes ago: %v", err)
		}
		if _, ok := k.SnapshotAt(begin); ok {
			t.Error("snapshot from ten minutes ago")
		}
		must[*watchcache.Cursor](t)(k.Watch(c.Revision()))
	})
}

// TestOldRevisionsAreReadFromTheStore checks that revisions older than logAge are
// read from the store, which knows whether they are compacted, even for a kind
// that has not changed since.
func TestOldRevisionsAreReadFromTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := mem.New()
		c := run(t, s, configMaps, pods)
		quiet, busy := c.Kind(pods), c.Kind(configMaps)
		must[*watchcache.Entry](t)(quiet.Create(t.Context(), pod("default", "a", "")))
		listed := must[int64](t)(c.Fresh(t.Context()))
		must[*watchcache.Entry](t)(busy.Create(t.Context(), configMap("default", "a", "1")))
		now := must[int64](t)(c.Fresh(t.Context()))

		time.Sleep(4 * time.Minute)
		if _, ok := quiet.SnapshotAt(listed); !ok {
			t.Error("no snapshot from four minutes ago")
		}
		time.Sleep(2 * time.Minute)
		if _, ok := quiet.SnapshotAt(listed); ok {
			t.Error("snapshot from six minutes ago")
		}
		if _, ok := quiet.SnapshotAt(now); !ok {
			t.Error("no snapshot of now")
		}
		if n, err := quiet.HistoricalSnapshotAt(listed).Count(t.Context(), "", watchcache.Position{}); n != 1 || err != nil {
			t.Errorf("the store has %d as of then: %v", n, err)
		}
		if err := s.Compact(t.Context(), now); err != nil {
			t.Fatal(err)
		}
		if _, err := quiet.HistoricalSnapshotAt(listed).Count(t.Context(), "", watchcache.Position{}); !errors.Is(err, store.ErrCompacted) {
			t.Errorf("after compaction: %v", err)
		}
	})
}

func TestConcurrentFreshReadsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &counting{Store: mem.New(), release: make(chan struct{})}
		c := run(t, s, configMaps)
		results := make(chan error, 10)
		for range 10 {
			go func() {
				_, err := c.Fresh(t.Context())
				results <- err
			}()
		}
		synctest.Wait()
		close(s.release)
		for range 10 {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
		if s.reads > 2 {
			t.Errorf("%d reads of the store for 10 callers at a time", s.reads)
		}
	})
}

// counting counts the reads of the revision and blocks them until release is
// closed.
type counting struct {
	store.Store
	reads   int
	release chan struct{}
}

func (s *counting) CurrentRevision(ctx context.Context) (int64, error) {
	s.reads++
	<-s.release
	return s.Store.CurrentRevision(ctx)
}
