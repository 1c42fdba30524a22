package storetest

import (
	"errors"
	"fmt"
	"sort"
	"strings"

	"pgregory.net/rapid"

	"github.com/coracle-io/coracle/internal/store"
)

// modelStore is the model that a store is compared with. It keeps a complete map
// for each revision.
type modelStore struct {
	states    map[int64]map[string]store.KeyValue
	events    []store.Event
	revision  int64
	compacted int64
}

func newModel(revision int64) *modelStore {
	return &modelStore{revision: revision, states: map[int64]map[string]store.KeyValue{revision: {}}}
}

// write applies a write and returns its expected result. expect is the expected
// revision of the key, or 0 for a create.
func (m *modelStore) write(key, value string, expect int64, remove bool) (int64, error) {
	now, exists := m.states[m.revision][key]
	switch {
	case expect == 0 && exists:
		return 0, store.ErrExists
	case expect != 0 && !exists:
		return 0, store.ErrNotFound
	case expect != 0 && now.Revision != expect:
		return 0, store.ErrConflict
	}
	next := map[string]store.KeyValue{}
	for k, v := range m.states[m.revision] {
		next[k] = v
	}
	m.revision++
	e := store.Event{Key: key, Revision: m.revision, Created: !exists, Deleted: remove}
	if remove {
		delete(next, key)
	} else {
		e.Value = []byte(value)
		next[key] = store.KeyValue{Key: key, Value: e.Value, Revision: m.revision}
	}
	m.states[m.revision] = next
	m.events = append(m.events, e)
	return m.revision, nil
}

func (m *modelStore) list(prefix string, revision int64) (out string) {
	var keys []string
	for k := range m.states[revision] {
		if strings.HasPrefix(k, prefix) {
			keys = append(keys, k)
		}
	}
	sort.Strings(keys)
	for _, k := range keys {
		kv := m.states[revision][k]
		out += fmt.Sprintf("%s=%s@%d ", k, kv.Value, kv.Revision)
	}
	return out
}

// model runs random operations on the store and the model and compares the
// results. rapid prints the seed of a failure.
func model(s *suite) {
	round := 0
	rapid.Check(s.T, func(t *rapid.T) {
		round++
		root := fmt.Sprintf("/registry/%d/", round)
		start := s.current()
		m := newModel(start)
		follower := s.watch(root, start)
		defer follower.stop()
		keys := rapid.SampledFrom([]string{root + "a", root + "a/1", root + "a/2", root + "ab", root + "b"})
		agree := func(what string, got, want int64, gotErr, wantErr error) {
			if got != want || !errors.Is(gotErr, wantErr) {
				t.Fatalf("%s: %d, %v; the model says %d, %v", what, got, gotErr, want, wantErr)
			}
		}
		revisionOf := func(key string) int64 {
			if rapid.Bool().Draw(t, "stale") {
				return rapid.Int64Range(1, m.revision).Draw(t, "revision")
			}
			return max(1, m.states[m.revision][key].Revision)
		}
		t.Repeat(map[string]func(*rapid.T){
			"create": func(t *rapid.T) {
				key, value := keys.Draw(t, "key"), rapid.String().Draw(t, "value")
				want, wantErr := m.write(key, value, 0, false)
				got, err := s.Create(s.ctx, key, []byte(value), 0)
				agree("create "+key, got, want, err, wantErr)
			},
			"update": func(t *rapid.T) {
				key, value := keys.Draw(t, "key"), rapid.String().Draw(t, "value")
				expect := revisionOf(key)
				want, wantErr := m.write(key, value, expect, false)
				got, err := s.Update(s.ctx, key, []byte(value), expect, 0)
				agree("update "+key, got, want, err, wantErr)
			},
			"delete": func(t *rapid.T) {
				key := keys.Draw(t, "key")
				expect := revisionOf(key)
				want, wantErr := m.write(key, "", expect, true)
				got, err := s.Delete(s.ctx, key, expect)
				agree("delete "+key, got, want, err, wantErr)
			},
			"list": func(t *rapid.T) {
				prefix := rapid.SampledFrom([]string{root, root + "a", root + "a/", root + "c"}).Draw(t, "prefix")
				revision := rapid.Int64Range(max(start, m.compacted), m.revision).Draw(t, "revision")
				page, err := s.List(s.ctx, prefix, store.ListOptions{Revision: revision})
				if got, want := text(page), m.list(prefix, revision); err != nil || got != want {
					t.Fatalf("list %s at %d: %q, %v; the model says %q", prefix, revision, got, err, want)
				}
			},
			"compact": func(t *rapid.T) {
				if m.compacted >= m.revision || rapid.IntRange(0, 9).Draw(t, "seldom") > 0 {
					t.Skip("seldom")
				}
				m.compacted = rapid.Int64Range(max(start, m.compacted)+1, max(start, m.compacted)+1).Draw(t, "revision")
				if m.compacted > m.revision {
					m.compacted = 0
					t.Skip("nothing to compact")
				}
				follower.pending = append(follower.pending, follower.until(m.revision)...)
				if err := s.Compact(s.ctx, m.compacted); err != nil {
					t.Fatalf("compact %d: %v", m.compacted, err)
				}
			},
		})
		if now := s.current(); now != m.revision {
			t.Fatalf("revision %d; the model says %d", now, m.revision)
		}
		got := follower.until(m.revision)
		if fmt.Sprint(got) != fmt.Sprint(m.events) {
			t.Fatalf("watched %v; the model says %v", got, m.events)
		}
	})
}
