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

// large is a value that makes an update cost so many bytes of history.
func large(kilobytes int) string { return strings.Repeat("x", kilobytes<<10) }

// update writes the ConfigMap default/a anew so many times.
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

// Whoever lost a watch for a moment goes on where it was, however much has
// happened since; what is older is kept only as long as it is little.
func TestHistoryIsGivenBack(t *testing.T) {
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

// The history of all kinds together has a bound, which the longest pays for.
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
			t.Errorf("a cursor of a namespace keeps what its kind has forgotten: %v", err)
		}
		if _, err := other.Watch(begin); err != nil {
			t.Errorf("a quiet kind pays for a busy one: %v", err)
		}
		if _, err := k.Watch(c.Revision() - 50); err != nil {
			t.Errorf("the newest events are gone: %v", err)
		}
		// The store knows what the cache has forgotten.
		if _, ok := k.SnapshotAt(begin + 2); ok {
			t.Error("a snapshot of what the cache has forgotten")
		}
		if n, err := k.PastAt(begin+2).Count(t.Context(), "", watchcache.Position{}); n != 1 || err != nil {
			t.Errorf("the store has %d as of then: %v", n, err)
		}
	})
}

// What happens in one namespace does not cost the watchers of another, or of a
// value of a field, their history.
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
			if events, _, err := cursor.Next(t.Context(), done); err != nil || fmt.Sprint(script(events)) != tt.want {
				t.Errorf("%+v: %v, %v, want %s", tt.scope, script(events), err, tt.want)
			}
		}
	})
}

// However the history is cut, a cursor that begins reads every event.
func TestCursorsOfACutHistoryMissNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := watchcache.New(mem.New(), []*resource.Resource{pods})
		c.LimitHistory(256 << 10)
		runCache(t, c)
		k := c.Kind(pods)
		seed := rand.Uint64()
		random := rand.New(rand.NewPCG(seed, 1))
		type written struct {
			revision   int64
			name, node string
			namespace  string
		}
		var all []written
		done := make(chan struct{})
		close(done)
		begin, refused := c.Revision(), 0
		var kept []*watchcache.Cursor // so that the logs of their scopes stay
		for i := range 2000 {
			w := written{namespace: fmt.Sprint("n", random.IntN(4)), name: fmt.Sprint("p", i), node: fmt.Sprint("node", random.IntN(3))}
			p := pod(w.namespace, w.name, w.node)
			if random.IntN(3) == 0 {
				p.Namespace, w.namespace = "busy", "busy"
				p.Annotations = map[string]string{"a": large(random.IntN(8))}
			}
			e := must[*watchcache.Entry](t)(k.Create(t.Context(), p))
			w.revision = e.Revision
			all = append(all, w)
			w.revision = must[*watchcache.Entry](t)(k.Delete(t.Context(), e, nil)).Revision
			all = append(all, w)
			if i%20 > 0 {
				continue
			}
			must[int64](t)(c.Fresh(t.Context()))
			scope := watchcache.Scope{}
			switch n := random.IntN(8); {
			case n < 4:
				scope.Namespace = fmt.Sprint("n", n)
			case n < 5:
				scope.Namespace = "busy"
			case n < 7:
				scope.Field, scope.Value = "spec.nodeName", fmt.Sprint("node", n-5)
			}
			// half of them near the end, where a history is
			back := c.Revision() - begin
			if random.IntN(2) == 0 {
				back = min(back, 100)
			}
			after := c.Revision() - random.Int64N(back+1)
			cursor, err := k.WatchScope(after, scope)
			if known := after >= k.Floor(scope); known != (err == nil) {
				t.Fatalf("%+v after %d of %d: %v (seed %d)", scope, after, k.Floor(scope), err, seed)
			}
			if err != nil {
				refused++
				continue
			}
			kept = append(kept, cursor)
			var want, got []int64
			for _, w := range all {
				if w.revision > after && (scope.Namespace == "" || scope.Namespace == w.namespace) && (scope.Value == "" || scope.Value == w.node) {
					want = append(want, w.revision)
				}
			}
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
				t.Fatalf("%+v after %d: %v, want %v (seed %d)", scope, after, got, want, seed)
			}
		}
		if len(kept) < 10 || refused == 0 {
			t.Errorf("%d cursors began, %d were refused: this tries nothing (seed %d)", len(kept), refused, seed)
		}
	})
}

// A cursor that is behind reads in parts and misses nothing; what it was given
// before it holds no longer.
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

// How much the objects of a kind take in the store is known without asking.
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
	GroupVersion: corev1.SchemeGroupVersion, Kind: "ConfigMap", Plural: "expiring", TTL: time.Hour,
})

// Objects that go by themselves are copied once a load is over. Nobody can
// tell but by the pointer.
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
				t.Errorf("%s has become another", e.Name)
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
			t.Errorf("watchers see %v, %v", script(events), err)
		}
		// The copies are as good as what was there before.
		e, _ := k.Get("default", "a7")
		e = must[*watchcache.Entry](t)(k.Update(t.Context(), configMap("default", "a7", "2"), e))
		must[*watchcache.Entry](t)(k.Delete(t.Context(), e, nil))
		must[int64](t)(c.Fresh(t.Context()))
		events, _, err := cursor.Next(t.Context(), nil)
		if got, want := fmt.Sprint(script(events)), fmt.Sprintf("[MODIFIED default/a7 %d DELETED default/a7 %d]", e.Revision, e.Revision+1); err != nil || got != want {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	})
}
