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

// write is one write in the model.
type write struct {
	revision int64
	at       watchcache.Position
	node     string
	deleted  bool
}

// history is the model: all writes in order. Every answer is computed from them
// again, without an index.
type history []write

func (h history) revision() int64 { return h[len(h)-1].revision }

// state returns the objects that exist at a revision: the last write of each
// position, without deletions.
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

// render lists the objects at a revision as the function render does.
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

// events lists the writes after a revision that touch a scope, one a line.
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

// follower is a cursor with the revision and the scope that it was opened for.
type follower struct {
	cursor *watchcache.Cursor
	after  int64
	scope  watchcache.Scope
}

// TestAgainstModel makes random writes, through the cache and by another server,
// and compares the snapshots of each revision, the indexes and the cursors with
// the model.
func TestAgainstModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ rapid.TB }{t}, againstModel) // without T.Deadline, which a virtual clock lacks
	})
}

func againstModel(t *rapid.T) {
	m := newMachine()
	defer m.stop()
	t.Repeat(map[string]func(*rapid.T){
		"write":                    m.write,
		"delete":                   m.delete,
		"write by another server":  m.writeElsewhere,
		"lose the connection":      func(*rapid.T) { m.store.breakWatches(nil) },
		"fall behind a compaction": m.compact,
		"watch":                    m.watch,
		"":                         m.checkNow,
	})
	m.checkHistory(t)
	m.checkFollowers(t)
}

// machine is the state machine that rapid drives: a cache, the model of it, and
// the cursors that read from it.
type machine struct {
	store     *flaky
	cache     *watchcache.Cache
	kind      *watchcache.Kind
	stop      func()
	floor     int64 // the first revision that the cache knows
	history   history
	followers []*follower
	entries   map[watchcache.Position]*watchcache.Entry
}

func newMachine() *machine {
	m := &machine{store: &flaky{Store: mem.New()}, entries: map[watchcache.Position]*watchcache.Entry{}}
	m.cache, m.stop = start(m.store, pods)
	m.kind = m.cache.Kind(pods)
	m.floor = m.cache.Revision()
	m.history = history{{revision: m.floor}}
	return m
}

func drawPosition(t *rapid.T) watchcache.Position {
	return watchcache.Position{
		Namespace: rapid.SampledFrom([]string{"a", "a-b", "b"}).Draw(t, "namespace"),
		Name:      rapid.SampledFrom([]string{"x", "x-y", "z"}).Draw(t, "name"),
	}
}

func drawNode(t *rapid.T) string {
	return rapid.SampledFrom([]string{"", "n1", "n2"}).Draw(t, "node")
}

// record adds a write to the model.
func (m *machine) record(t *rapid.T, at watchcache.Position, node string, revision int64, deleted bool) {
	if revision != m.history.revision()+1 {
		t.Fatalf("write at %d after %d", revision, m.history.revision())
	}
	m.history = append(m.history, write{revision, at, node, deleted})
}

// write creates or updates a pod through the cache.
func (m *machine) write(t *rapid.T) {
	at, node := drawPosition(t), drawNode(t)
	p := pod(at.Namespace, at.Name, node)
	var e *watchcache.Entry
	var err error
	if old := m.entries[at]; old != nil {
		e, err = m.kind.Update(t.Context(), p, old)
	} else {
		e, err = m.kind.Create(t.Context(), p)
	}
	if err != nil {
		t.Fatal(err)
	}
	m.entries[at] = e
	m.record(t, at, node, e.Revision, false)
}

// delete deletes a pod through the cache.
func (m *machine) delete(t *rapid.T) {
	at := drawPosition(t)
	old := m.entries[at]
	if old == nil {
		t.Skip("no pod at this position")
	}
	e, err := m.kind.Delete(t.Context(), old, nil)
	if err != nil {
		t.Fatal(err)
	}
	delete(m.entries, at)
	m.record(t, at, "", e.Revision, true)
}

// writeElsewhere writes a pod to the store directly, as another API server does.
func (m *machine) writeElsewhere(t *rapid.T) {
	at, node := drawPosition(t), drawNode(t)
	value, err := resource.EncodeStored(pods, pod(at.Namespace, at.Name, node))
	if err != nil {
		t.Fatal(err)
	}
	key := pods.Key(at.Namespace, at.Name)
	var revision int64
	if old := m.entries[at]; old != nil {
		revision, err = m.store.Update(t.Context(), key, value, old.Revision, 0)
	} else {
		revision, err = m.store.Create(t.Context(), key, value, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	m.record(t, at, node, revision, false)
	if m.entries[at], err = m.kind.Read(t.Context(), at.Namespace, at.Name); err != nil {
		t.Fatal(err)
	}
}

// compact ends the cache's watch with ErrCompacted and checks that each cursor
// ends with that error after its last event.
func (m *machine) compact(t *rapid.T) {
	if rapid.IntRange(0, 4).Draw(t, "seldom") > 0 {
		t.Skip("seldom")
	}
	if _, err := m.cache.Fresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	last, err := m.kind.Watch(m.history.revision())
	if err != nil {
		t.Fatal(err)
	}
	m.followers = append(m.followers, &follower{cursor: last})
	m.store.breakWatches(store.ErrCompacted)
	for _, f := range m.followers {
		for {
			events, _, err := f.cursor.Next(t.Context(), nil)
			if errors.Is(err, store.ErrCompacted) {
				break
			}
			if err != nil || len(events) == 0 {
				t.Fatalf("cursor after a compaction: %v, %v", events, err)
			}
		}
	}
	m.followers, m.floor = nil, m.history.revision()
}

// watch starts a cursor at a revision that the cache knows.
func (m *machine) watch(t *rapid.T) {
	f := &follower{after: rapid.Int64Range(m.floor, m.history.revision()).Draw(t, "after")}
	f.scope = rapid.SampledFrom([]watchcache.Scope{
		{}, {Namespace: "a"}, {Namespace: "a", Name: "x"}, {Field: "spec.nodeName", Value: "n1"}, {Field: "spec.nodeName"},
	}).Draw(t, "scope")
	cursor, err := m.kind.WatchScope(f.after, f.scope)
	if errors.Is(err, store.ErrCompacted) && f.after < m.history.revision() {
		t.Skip("the cache began after that")
	}
	if err != nil {
		t.Fatal(err)
	}
	f.cursor = cursor
	m.followers = append(m.followers, f)
}

// checkNow compares the current snapshot and its index with the model.
func (m *machine) checkNow(t *rapid.T) {
	revision, err := m.cache.Fresh(t.Context())
	if err != nil || revision != m.history.revision() {
		t.Fatalf("fresh at %d, %v; the model is at %d", revision, err, m.history.revision())
	}
	for _, node := range []string{"*", "", "n1", "n2"} {
		if got, want := render(m.kind.Snapshot(), node), m.history.render(revision, node); got != want {
			t.Fatalf("now on node %q: %q, want %q", node, got, want)
		}
	}
}

// checkHistory compares the snapshot of each revision with the model.
func (m *machine) checkHistory(t *rapid.T) {
	for revision := m.floor; revision <= m.history.revision(); revision++ {
		s, ok := m.kind.SnapshotAt(revision)
		if !ok {
			t.Fatalf("no snapshot at %d, the log begins at %d", revision, m.floor)
		}
		checkPast(t, m.kind, s)
		for _, node := range []string{"*", "n1"} {
			if got, want := render(s, node), m.history.render(revision, node); got != want {
				t.Fatalf("at %d on %q: %q, want %q", revision, node, got, want)
			}
		}
	}
}

// checkFollowers compares the events of each cursor with the model.
func (m *machine) checkFollowers(t *rapid.T) {
	done := make(chan struct{})
	close(done)
	for _, f := range m.followers {
		events, _, err := f.cursor.Next(t.Context(), done)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := strings.Join(lines(events), "\n"), m.history.events(f.after, f.scope); got != want {
			t.Fatalf("watch after %d of %+v:\n%s\nwant\n%s", f.after, f.scope, got, want)
		}
	}
}

// render lists a snapshot, or its index for a node ("*": all nodes), in the order
// of the visit.
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

// checkPast compares a snapshot with what the store returns for its revision:
// the objects after several positions, and their number.
func checkPast(t *rapid.T, k *watchcache.Kind, s watchcache.Snapshot) {
	past := k.HistoricalSnapshotAt(s.Revision)
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
