package watchcache_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/store/mem"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// write is one write as the dumb model keeps it.
type write struct {
	revision int64
	at       watchcache.Position
	node     string
	deleted  bool
}

// history is all writes, from which everything else is computed anew.
type history []write

func (h history) revision() int64 { return h[len(h)-1].revision }

// state is the last write of every position at a revision, deleted ones left out.
func (h history) state(revision int64) map[watchcache.Position]write {
	s := map[watchcache.Position]write{}
	for _, w := range h {
		if w.revision > revision || w.at == (watchcache.Position{}) {
			continue
		}
		if w.deleted {
			delete(s, w.at)
		} else {
			s[w.at] = w
		}
	}
	return s
}

func (h history) render(revision int64, node string) string {
	lines := map[string]string{}
	for at, w := range h.state(revision) {
		if node == "*" || w.node == node {
			lines[pods.Key(at.Namespace, at.Name)] = line(at, w.revision)
		}
	}
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(lines)) {
		b.WriteString(lines[key])
	}
	return b.String()
}

func line(at watchcache.Position, revision int64) string {
	return fmt.Sprintf("%s/%s@%d ", at.Namespace, at.Name, revision)
}

// events are the writes after a revision that touch a scope.
func (h history) events(after int64, scope watchcache.Scope) string {
	var lines []string
	for _, w := range h {
		if w.revision <= after || w.at == (watchcache.Position{}) {
			continue
		}
		before, existed := h.state(w.revision - 1)[w.at]
		verb := "MODIFIED"
		switch {
		case w.deleted:
			verb = "DELETED"
			w.node = before.node
		case !existed:
			verb = "ADDED"
		}
		inScope := scope.Namespace == "" || w.at.Namespace == scope.Namespace
		if scope.Name != "" {
			inScope = w.at == watchcache.Position{Namespace: scope.Namespace, Name: scope.Name}
		}
		if scope.Field != "" {
			inScope = w.node == scope.Value || existed && before.node == scope.Value
		}
		if inScope {
			lines = append(lines, fmt.Sprintf("%s %s/%s %d", verb, w.at.Namespace, w.at.Name, w.revision))
		}
	}
	return strings.Join(lines, "\n")
}

// follower is a cursor and what it has read.
type follower struct {
	cursor *watchcache.Cursor
	after  int64
	scope  watchcache.Scope
}

// TestAgainstModel does random writes, through the cache and past it, and
// compares snapshots of every revision, indexes and cursors with the model.
func TestAgainstModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ rapid.TB }{t}, againstModel) // without T.Deadline, which a virtual clock lacks
	})
}

func againstModel(t *rapid.T) {
	s := &flaky{Store: mem.New()}
	c, stop := start(s, pods)
	defer stop()
	k := c.Kind(pods)
	floor := c.Revision()
	h := history{{revision: floor}}
	var followers []*follower
	entries := map[watchcache.Position]*watchcache.Entry{}
	ctx := t.Context()
	positions := rapid.Custom(func(t *rapid.T) watchcache.Position {
		return watchcache.Position{
			Namespace: rapid.SampledFrom([]string{"a", "a-b", "b"}).Draw(t, "namespace"),
			Name:      rapid.SampledFrom([]string{"x", "x-y", "z"}).Draw(t, "name"),
		}
	})
	node := rapid.SampledFrom([]string{"", "n1", "n2"})
	record := func(at watchcache.Position, node string, revision int64, deleted bool) {
		if revision != h.revision()+1 {
			t.Fatalf("write at %d after %d", revision, h.revision())
		}
		h = append(h, write{revision, at, node, deleted})
	}
	t.Repeat(map[string]func(*rapid.T){
		"write": func(t *rapid.T) {
			at, n := positions.Draw(t, "at"), node.Draw(t, "node")
			p := pod(at.Namespace, at.Name, n)
			var e *watchcache.Entry
			var err error
			if old := entries[at]; old != nil {
				e, err = k.Update(ctx, p, old)
			} else {
				e, err = k.Create(ctx, p)
			}
			if err != nil {
				t.Fatal(err)
			}
			entries[at] = e
			record(at, n, e.Revision, false)
		},
		"delete": func(t *rapid.T) {
			at := positions.Draw(t, "at")
			old := entries[at]
			if old == nil {
				t.Skip("nothing there")
			}
			e, err := k.Delete(ctx, old, nil)
			if err != nil {
				t.Fatal(err)
			}
			delete(entries, at)
			record(at, "", e.Revision, true)
		},
		"write by another server": func(t *rapid.T) {
			at, n := positions.Draw(t, "at"), node.Draw(t, "node")
			value, err := resource.EncodeStored(pods, pod(at.Namespace, at.Name, n))
			if err != nil {
				t.Fatal(err)
			}
			key := pods.Key(at.Namespace, at.Name)
			var revision int64
			if old := entries[at]; old != nil {
				revision, err = s.Update(ctx, key, value, old.Revision, 0)
			} else {
				revision, err = s.Create(ctx, key, value, 0)
			}
			if err != nil {
				t.Fatal(err)
			}
			record(at, n, revision, false)
			if entries[at], err = k.Read(ctx, at.Namespace, at.Name); err != nil {
				t.Fatal(err)
			}
		},
		"lose the connection": func(*rapid.T) { s.breakWatches(nil) },
		"fall behind a compaction": func(t *rapid.T) {
			if rapid.IntRange(0, 4).Draw(t, "seldom") > 0 {
				t.Skip("seldom")
			}
			if _, err := c.Fresh(ctx); err != nil {
				t.Fatal(err)
			}
			last, err := k.Watch(h.revision())
			if err != nil {
				t.Fatal(err)
			}
			followers = append(followers, &follower{cursor: last})
			s.breakWatches(store.ErrCompacted)
			for _, f := range followers {
				for {
					events, _, err := f.cursor.Next(ctx, nil)
					if errors.Is(err, store.ErrCompacted) {
						break
					}
					if err != nil || len(events) == 0 {
						t.Fatalf("cursor after a compaction: %v, %v", events, err)
					}
				}
			}
			followers, floor = nil, h.revision()
		},
		"watch": func(t *rapid.T) {
			f := &follower{after: rapid.Int64Range(floor, h.revision()).Draw(t, "after")}
			f.scope = rapid.SampledFrom([]watchcache.Scope{
				{}, {Namespace: "a"}, {Namespace: "a", Name: "x"}, {Field: "spec.nodeName", Value: "n1"}, {Field: "spec.nodeName"},
			}).Draw(t, "scope")
			cursor, err := k.WatchScope(f.after, f.scope)
			if errors.Is(err, store.ErrCompacted) && f.after < h.revision() {
				t.Skip("the cache began after that")
			}
			if err != nil {
				t.Fatal(err)
			}
			f.cursor = cursor
			followers = append(followers, f)
		},
		"": func(t *rapid.T) {
			revision, err := c.Fresh(ctx)
			if err != nil || revision != h.revision() {
				t.Fatalf("fresh at %d, %v; the model is at %d", revision, err, h.revision())
			}
			if got, want := render(k.Snapshot(), "*"), h.render(revision, "*"); got != want {
				t.Fatalf("now %q, want %q", got, want)
			}
			for _, n := range []string{"", "n1", "n2"} {
				if got, want := render(k.Snapshot(), n), h.render(revision, n); got != want {
					t.Fatalf("on node %q: %q, want %q", n, got, want)
				}
			}
		},
	})
	for revision := floor; revision <= h.revision(); revision++ {
		s, ok := k.SnapshotAt(revision)
		if !ok {
			t.Fatalf("no snapshot at %d, the log begins at %d", revision, floor)
		}
		checkPast(t, k, s)
		for _, n := range []string{"*", "n1"} {
			if got, want := render(s, n), h.render(revision, n); got != want {
				t.Fatalf("at %d on %q: %q, want %q", revision, n, got, want)
			}
		}
	}
	done := make(chan struct{})
	close(done)
	for _, f := range followers {
		events, _, err := f.cursor.Next(ctx, done)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := strings.Join(script(events), "\n"), h.events(f.after, f.scope); got != want {
			t.Fatalf("watch after %d of %+v:\n%s\nwant\n%s", f.after, f.scope, got, want)
		}
	}
}

// render lists a snapshot, or its index for a node, in the order in which it is visited.
func render(s watchcache.Snapshot, node string) string {
	var b strings.Builder
	visit := func(e *watchcache.Entry) bool {
		b.WriteString(line(e.Position(), e.Revision))
		return true
	}
	if node == "*" {
		s.Ascend("", watchcache.Position{}, visit)
	} else {
		s.Lookup("spec.nodeName", node, watchcache.Position{}, visit)
	}
	return b.String()
}

// checkPast compares what the store kept of a revision with a snapshot of it:
// every page after every position, and how many come after it.
func checkPast(t *rapid.T, k *watchcache.Kind, s watchcache.Snapshot) {
	past := k.PastAt(s.Revision)
	afters := []watchcache.Position{{}, {Namespace: "a", Name: "x-y"}, {Namespace: "a-b", Name: "z"}}
	for _, namespace := range []string{"", "a", "a-b"} {
		for _, after := range afters {
			if namespace != "" && after.Namespace != "" && namespace != after.Namespace {
				continue
			}
			var want, got strings.Builder
			n := 0
			s.Ascend(namespace, after, func(e *watchcache.Entry) bool {
				n++
				want.WriteString(line(e.Position(), e.Revision))
				return true
			})
			if err := past.Ascend(t.Context(), namespace, after, 1, func(e *watchcache.Entry) bool {
				got.WriteString(line(e.Position(), e.Revision))
				return true
			}); err != nil {
				t.Fatal(err)
			}
			if got.String() != want.String() {
				t.Fatalf("namespace %q after %v at %d: the store has %s, the cache %s", namespace, after, s.Revision, got.String(), want.String())
			}
			inStore, err := past.Count(t.Context(), namespace, after)
			if err != nil || int(inStore) != n || s.Count(namespace, after) != n {
				t.Fatalf("namespace %q after %v at %d: %d objects, counted %d and %d in the store (%v)", namespace, after, s.Revision, n, s.Count(namespace, after), inStore, err)
			}
		}
	}
}
