package watchcache_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/store/mem"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// large returns a value of the given size.
func large(kilobytes int) string { return strings.Repeat("x", kilobytes<<10) }

// update updates the ConfigMap default/a the given number of times. It creates it
// if it does not exist.
func update(t *testing.T, k *watchcache.Kind, times, kilobytes int) {
	t.Helper()
	e, ok := k.Get("default", "a")
	if !ok {
		e = must[*watchcache.Entry](t)(k.Create(t.Context(), configMap("default", "a", large(kilobytes))))
	}
	for i := range times {
		e = must[*watchcache.Entry](t)(k.Update(t.Context(), configMap("default", "a", fmt.Sprint(i, large(kilobytes))), e))
	}
}

// TestHistoryIsReleased checks that an interrupted watch can continue for
// freshAge, however many events there were, and that only a small amount of older
// events is kept.
func TestHistoryIsReleased(t *testing.T) {
	for _, tt := range []struct {
		what      string
		updates   int
		kilobytes int
		after     time.Duration
		resumes   bool
	}{
		{"little, after four minutes", 10, 1, 4 * time.Minute, true},
		{"little, after six minutes", 10, 1, 6 * time.Minute, false},
		{"much, after a minute", 200, 10, time.Minute, true},
		{"much, after two minutes", 1000, 10, 2 * time.Minute, false},
	} {
		t.Run(tt.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := run(t, mem.New(), configMaps)
				k := c.Kind(configMaps)
				begin := c.Revision()
				update(t, k, tt.updates, tt.kilobytes)
				must[int64](t)(c.Fresh(t.Context()))
				time.Sleep(tt.after)
				synctest.Wait()
				_, err := k.Watch(begin)
				if tt.resumes && err != nil || !tt.resumes && !errors.Is(err, store.ErrCompacted) {
					t.Errorf("watch from before the load: %v", err)
				}
				must[*watchcache.Cursor](t)(k.Watch(c.Revision()))
			})
		})
	}
}

// TestHistoryIsBoundedByBytes checks that the events of all kinds together are
// limited, and that the kind with the largest history is cut.
func TestHistoryIsBoundedByBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := watchcache.New(mem.New(), []*resource.Resource{configMaps, pods})
		c.LimitHistory(16 << 20)
		runCache(t, c)
		k, other := c.Kind(configMaps), c.Kind(pods)
		begin := c.Revision()
		must[*watchcache.Entry](t)(other.Create(t.Context(), pod("default", "a", "")))
		behind := must[*watchcache.Cursor](t)(k.WatchScope(begin, watchcache.Scope{Namespace: "default"}))
		update(t, k, 1000, 10)
		must[int64](t)(c.Fresh(t.Context()))

		if _, err := k.Watch(begin); !errors.Is(err, store.ErrCompacted) {
			t.Errorf("watch from before a load of 80 MB: %v", err)
		}
		if _, _, err := behind.Next(t.Context(), nil); !errors.Is(err, store.ErrCompacted) {
			t.Errorf("a cursor of a namespace still has events that its kind has dropped: %v", err)
		}
		if _, err := other.Watch(begin); err != nil {
			t.Errorf("the history of a kind with few events was cut: %v", err)
		}
		if _, err := k.Watch(c.Revision() - 50); err != nil {
			t.Errorf("the newest events were dropped: %v", err)
		}
		// The store still has the revisions that the cache has dropped.
		if _, ok := k.SnapshotAt(begin + 2); ok {
			t.Error("SnapshotAt returned a revision that the cache has dropped")
		}
		if n, err := k.HistoricalSnapshotAt(begin+2).Count(t.Context(), "", watchcache.Position{}); n != 1 || err != nil {
			t.Errorf("the store has %d as of then: %v", n, err)
		}
	})
}

// TestCostlyNamespacePays checks that many events in one namespace do not cut the
// history of watches of another namespace, or of another value of a field.
func TestCostlyNamespacePays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := watchcache.New(mem.New(), []*resource.Resource{configMaps, pods})
		c.LimitHistory(16 << 20)
		runCache(t, c)
		k, other := c.Kind(configMaps), c.Kind(pods)
		begin := c.Revision()
		must[*watchcache.Entry](t)(k.Create(t.Context(), configMap("quiet", "a", "1")))
		must[*watchcache.Entry](t)(other.Create(t.Context(), pod("quiet", "a", "n1")))
		update(t, k, 1000, 10) // in default
		for i := range 300 {
			p := pod("default", fmt.Sprint("p", i), "n2")
			p.Annotations = map[string]string{"a": large(10)}
			e := must[*watchcache.Entry](t)(other.Create(t.Context(), p))
			must[*watchcache.Entry](t)(other.Delete(t.Context(), e, nil))
		}
		must[int64](t)(c.Fresh(t.Context()))
		done := make(chan struct{})
		close(done)
		for _, tt := range []struct {
			kind  *watchcache.Kind
			scope watchcache.Scope
			want  string
		}{
			{k, watchcache.Scope{Namespace: "quiet"}, fmt.Sprintf("[ADDED quiet/a %d]", begin+1)},
			{k, watchcache.Scope{Namespace: "quiet", Name: "a"}, fmt.Sprintf("[ADDED quiet/a %d]", begin+1)},
			{k, watchcache.Scope{Namespace: "empty"}, "[]"},
			{other, watchcache.Scope{Namespace: "quiet"}, fmt.Sprintf("[ADDED quiet/a %d]", begin+2)},
			{other, watchcache.Scope{Field: "spec.nodeName", Value: "n1"}, fmt.Sprintf("[ADDED quiet/a %d]", begin+2)},
			{other, watchcache.Scope{Field: "spec.nodeName", Value: "n2"}, ""},
			{k, watchcache.Scope{Namespace: "default"}, ""},
			{k, watchcache.Scope{}, ""},
		} {
			cursor, err := tt.kind.WatchScope(begin, tt.scope)
			if tt.want == "" {
				if floor := tt.kind.Floor(tt.scope); !errors.Is(err, store.ErrCompacted) || floor <= begin || floor >= c.Revision() {
					t.Errorf("%+v: %v, want a history that begins between %d and %d, not %d", tt.scope, err, begin, c.Revision(), floor)
				}
				continue
			}
			if err != nil {
				t.Errorf("%+v: %v", tt.scope, err)
				continue
			}
			if events, _, err := cursor.Next(t.Context(), done); err != nil || fmt.Sprint(lines(events)) != tt.want {
				t.Errorf("%+v: %v, %v, want %s", tt.scope, lines(events), err, tt.want)
			}
		}
	})
}

// TestCursorsOfACutHistoryMissNothing checks that a cursor reads every event
// since its revision, however the bound of the history cuts the logs. A cursor
// whose revision is below the floor of its scope is refused.
func TestCursorsOfACutHistoryMissNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := watchcache.New(mem.New(), []*resource.Resource{pods})
		c.LimitHistory(256 << 10)
		runCache(t, c)
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		h := &cutHistory{cache: c, kind: c.Kind(pods), begin: c.Revision(), random: rand.New(rand.NewPCG(seed, 1))}
		opened, refused := 0, 0
		for i := range 2000 {
			h.createAndDelete(t, fmt.Sprint("p", i))
			if i%20 > 0 {
				continue
			}
			must[int64](t)(c.Fresh(t.Context()))
			if h.checkCursor(t) {
				opened++
			} else {
				refused++
			}
		}
		if opened < 10 || refused == 0 {
			t.Errorf("%d cursors were opened and %d refused: the bound is not reached", opened, refused)
		}
	})
}

// cutHistory makes random writes to a cache whose history is bounded, and
// remembers all of them.
type cutHistory struct {
	cache   *watchcache.Cache
	kind    *watchcache.Kind
	begin   int64
	random  *rand.Rand
	writes  []podWrite
	cursors []*watchcache.Cursor // keep the logs of their scopes alive
}

// podWrite is one creation or deletion of a pod.
type podWrite struct {
	revision        int64
	namespace, node string
}

// createAndDelete creates a pod and deletes it. Every third pod is large and in
// the namespace busy.
func (h *cutHistory) createAndDelete(t *testing.T, name string) {
	w := podWrite{namespace: fmt.Sprint("n", h.random.IntN(4)), node: fmt.Sprint("node", h.random.IntN(3))}
	p := pod(w.namespace, name, w.node)
	if h.random.IntN(3) == 0 {
		p.Namespace, w.namespace = "busy", "busy"
		p.Annotations = map[string]string{"a": large(h.random.IntN(8))}
	}
	e := must[*watchcache.Entry](t)(h.kind.Create(t.Context(), p))
	w.revision = e.Revision
	h.writes = append(h.writes, w)
	w.revision = must[*watchcache.Entry](t)(h.kind.Delete(t.Context(), e, nil)).Revision
	h.writes = append(h.writes, w)
}

// drawScope returns a random scope.
func (h *cutHistory) drawScope() (scope watchcache.Scope) {
	switch n := h.random.IntN(8); {
	case n < 4:
		scope.Namespace = fmt.Sprint("n", n)
	case n < 5:
		scope.Namespace = "busy"
	case n < 7:
		scope.Field, scope.Value = "spec.nodeName", fmt.Sprint("node", n-5)
	}
	return scope
}

// drawRevision returns a random revision. Half of them are recent, so that the
// history still covers them.
func (h *cutHistory) drawRevision() int64 {
	back := h.cache.Revision() - h.begin
	if h.random.IntN(2) == 0 {
		back = min(back, 100)
	}
	return h.cache.Revision() - h.random.Int64N(back+1)
}

// checkCursor opens a cursor at a random revision and compares its events with
// the writes. It returns false if the cursor was refused, as it must be below
// the floor of its scope.
func (h *cutHistory) checkCursor(t *testing.T) bool {
	scope, after := h.drawScope(), h.drawRevision()
	cursor, err := h.kind.WatchScope(after, scope)
	if known := after >= h.kind.Floor(scope); known != (err == nil) {
		t.Fatalf("%+v after %d of %d: %v", scope, after, h.kind.Floor(scope), err)
	}
	if err != nil {
		return false
	}
	h.cursors = append(h.cursors, cursor)
	var want, got []int64
	for _, w := range h.writes {
		if w.revision > after && (scope.Namespace == "" || scope.Namespace == w.namespace) && (scope.Value == "" || scope.Value == w.node) {
			want = append(want, w.revision)
		}
	}
	done := make(chan struct{})
	close(done)
	for len(got) < len(want) {
		events, _, err := cursor.Next(t.Context(), done)
		if err != nil || len(events) == 0 {
			break
		}
		for _, e := range events {
			got = append(got, e.Revision)
		}
	}
	if !slices.Equal(got, want) {
		t.Fatalf("%+v after %d: %v, want %v", scope, after, got, want)
	}
	return true
}

// TestCursorsReadInParts checks that a cursor that is behind returns all events
// in several bounded batches.
func TestCursorsReadInParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := run(t, mem.New(), configMaps)
		k := c.Kind(configMaps)
		cursor := must[*watchcache.Cursor](t)(k.Watch(c.Revision()))
		next := c.Revision() + 1
		update(t, k, 200, 10)
		last := must[int64](t)(c.Fresh(t.Context()))
		parts := 0
		for next <= last {
			events, revision, err := cursor.Next(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			parts++
			size := 0
			for _, e := range events {
				if e.Revision != next {
					t.Fatalf("event %d after %d", e.Revision, next-1)
				}
				next++
				size += 10 << 10
			}
			if size > 512<<10 {
				t.Errorf("%d bytes at once", size)
			}
			if revision >= next {
				t.Errorf("known up to %d with the events up to %d", revision, next-1)
			}
		}
		if parts < 4 {
			t.Errorf("2 MB of events were read in %d parts", parts)
		}
	})
}

// TestStoredBytes checks that Stored follows the size of the stored values.
func TestStoredBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := mem.New()
		c := run(t, s, configMaps)
		k := c.Kind(configMaps)
		if n := k.Stored(); n != 0 {
			t.Errorf("%d bytes of nothing", n)
		}
		update(t, k, 10, 100)
		must[int64](t)(c.Fresh(t.Context()))
		if n := k.Stored(); n < 100<<10 || n > 101<<10 {
			t.Errorf("one object of 100 kB takes %d bytes", n)
		}
		e, _ := k.Get("default", "a")
		must[*watchcache.Entry](t)(k.Delete(t.Context(), e, nil))
		must[int64](t)(c.Fresh(t.Context()))
		if n := k.Stored(); n != 0 {
			t.Errorf("%d bytes after the last deletion", n)
		}
	})
}

var expiring = resource.Define(resource.Definition[corev1.ConfigMap, *corev1.ConfigMap]{
	GroupVersion: corev1.SchemeGroupVersion, Names: resource.Names{Kind: "ConfigMap", Plural: "expiring"},
	Storage: resource.Storage{TTL: time.Hour},
})

// TestRepackingChangesNothing checks that objects that expire are copied after a
// load, and that the copies behave like the originals.
func TestRepackingChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := run(t, mem.New(), expiring, configMaps)
		k, other := c.Kind(expiring), c.Kind(configMaps)
		begin := c.Revision()
		const count = 3000
		for i := range count {
			must[*watchcache.Entry](t)(k.Create(t.Context(), configMap("default", fmt.Sprint("a", i), large(1))))
		}
		must[*watchcache.Entry](t)(other.Create(t.Context(), configMap("default", "a", "")))
		must[int64](t)(c.Fresh(t.Context()))
		before := k.Snapshot()
		kept, _ := other.Get("default", "a")
		cursor := must[*watchcache.Cursor](t)(k.Watch(c.Revision()))

		time.Sleep(3 * time.Minute)
		synctest.Wait()
		copied := 0
		k.Snapshot().Ascend("", watchcache.Position{}, func(e *watchcache.Entry) bool {
			old, ok := before.Get(e.Namespace, e.Name)
			if !ok || e.Revision != old.Revision || e.StoredSize() != old.StoredSize() || !reflect.DeepEqual(e.Object, old.Object) {
				t.Errorf("the copy of %s differs from the original", e.Name)
			}
			if e != old {
				copied++
			}
			return true
		})
		if copied != count {
			t.Errorf("%d of %d entries have been copied", copied, count)
		}
		if now, _ := other.Get("default", "a"); now != kept {
			t.Error("an object that does not expire has been copied")
		}
		if k.Stored() < count<<10 || k.Changed() != begin+count {
			t.Errorf("%d bytes are stored, changed at %d", k.Stored(), k.Changed())
		}
		done := make(chan struct{})
		close(done)
		if events, _, err := cursor.Next(t.Context(), done); len(events) > 0 || err != nil {
			t.Errorf("repacking caused events %v, %v", lines(events), err)
		}
		// The copies can be updated and deleted.
		e, _ := k.Get("default", "a7")
		e = must[*watchcache.Entry](t)(k.Update(t.Context(), configMap("default", "a7", "2"), e))
		must[*watchcache.Entry](t)(k.Delete(t.Context(), e, nil))
		must[int64](t)(c.Fresh(t.Context()))
		events, _, err := cursor.Next(t.Context(), nil)
		if got, want := fmt.Sprint(lines(events)), fmt.Sprintf("[MODIFIED default/a7 %d DELETED default/a7 %d]", e.Revision, e.Revision+1); err != nil || got != want {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	})
}
