// Package storetest is the test suite for implementations of store.Store. A test
// of an implementation calls Run with a factory:
//
//	func TestStore(t *testing.T) { storetest.Run(t, func(t testing.TB) store.Store { ... }) }
package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/coracle-io/coracle/internal/store"
)

// Factory returns an empty store that can be used until the end of the test.
type Factory func(t testing.TB) store.Store

// deadline limits each test of the suite.
const deadline = 3 * time.Minute

// Run runs the suite.
func Run(t *testing.T, factory Factory) {
	for _, tt := range []struct {
		name string
		test func(*suite)
	}{
		{"create, get, update, delete", lifecycle},
		{"preconditions", preconditions},
		{"list", list},
		{"list pages", pages},
		{"list at a revision", past},
		{"ttl", ttl},
		{"watch", watchAll},
		{"watch from the past", watchPast},
		{"watch prefix progress", watchProgress},
		{"watch ends with its context", watchEnds},
		{"compaction", compaction},
		{"many writers one winner", contention},
		{"canceled context", canceled},
		{"model", model},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			defer cancel()
			tt.test(&suite{T: t, Store: factory(t), ctx: ctx})
		})
	}
}

// suite is a test with a store. Its methods fail the test on an error of the
// store.
type suite struct {
	*testing.T
	store.Store
	ctx context.Context
}

func (s *suite) create(key, value string) int64 {
	s.Helper()
	revision, err := s.Create(s.ctx, key, []byte(value), 0)
	if err != nil {
		s.Fatalf("create %s: %v", key, err)
	}
	return revision
}

func (s *suite) update(key, value string, revision int64) int64 {
	s.Helper()
	revision, err := s.Update(s.ctx, key, []byte(value), revision, 0)
	if err != nil {
		s.Fatalf("update %s: %v", key, err)
	}
	return revision
}

func (s *suite) delete(key string, revision int64) int64 {
	s.Helper()
	revision, err := s.Delete(s.ctx, key, revision)
	if err != nil {
		s.Fatalf("delete %s: %v", key, err)
	}
	return revision
}

func (s *suite) current() int64 {
	s.Helper()
	revision, err := s.CurrentRevision(s.ctx)
	if err != nil {
		s.Fatalf("current revision: %v", err)
	}
	return revision
}

func (s *suite) page(prefix string, opts store.ListOptions) store.Page {
	s.Helper()
	page, err := s.List(s.ctx, prefix, opts)
	if err != nil {
		s.Fatalf("list %s %+v: %v", prefix, opts, err)
	}
	return page
}

func (s *suite) wantErr(what string, err, want error) {
	s.Helper()
	if !errors.Is(err, want) {
		s.Errorf("%s: error %v, want %v", what, err, want)
	}
}

// text renders a page as "key=value@revision ...".
func text(page store.Page) (out string) {
	for _, kv := range page.Items {
		out += fmt.Sprintf("%s=%s@%d ", kv.Key, kv.Value, kv.Revision)
	}
	return out
}

func lifecycle(s *suite) {
	start := s.current()
	created := s.create("/registry/a", "1")
	if created != start+1 {
		s.Errorf("create raised the revision from %d to %d", start, created)
	}
	kv, err := s.Get(s.ctx, "/registry/a")
	if err != nil || string(kv.Value) != "1" || kv.Revision != created || kv.Key != "/registry/a" {
		s.Errorf("get: %+v, %v", kv, err)
	}
	updated := s.update("/registry/a", "2", created)
	kv, err = s.Get(s.ctx, "/registry/a")
	if err != nil || string(kv.Value) != "2" || kv.Revision != updated || updated != created+1 {
		s.Errorf("get after update: %+v, %v", kv, err)
	}
	deleted := s.delete("/registry/a", updated)
	_, err = s.Get(s.ctx, "/registry/a")
	s.wantErr("get after delete", err, store.ErrNotFound)
	if now := s.current(); now != deleted || deleted != updated+1 {
		s.Errorf("revision %d after a deletion at %d", now, deleted)
	}
	if again := s.create("/registry/a", "3"); again != deleted+1 {
		s.Errorf("created again at %d", again)
	}
}

func preconditions(s *suite) {
	_, err := s.Get(s.ctx, "/registry/none")
	s.wantErr("get", err, store.ErrNotFound)
	_, err = s.Update(s.ctx, "/registry/none", nil, 1, 0)
	s.wantErr("update of nothing", err, store.ErrNotFound)
	_, err = s.Delete(s.ctx, "/registry/none", 1)
	s.wantErr("delete of nothing", err, store.ErrNotFound)

	first := s.create("/registry/a", "1")
	_, err = s.Create(s.ctx, "/registry/a", []byte("x"), 0)
	s.wantErr("create twice", err, store.ErrExists)
	second := s.update("/registry/a", "2", first)
	_, err = s.Update(s.ctx, "/registry/a", []byte("x"), first, 0)
	s.wantErr("update of an old revision", err, store.ErrConflict)
	_, err = s.Update(s.ctx, "/registry/a", []byte("x"), 0, 0)
	s.wantErr("update of revision 0", err, store.ErrConflict)
	_, err = s.Delete(s.ctx, "/registry/a", first)
	s.wantErr("delete of an old revision", err, store.ErrConflict)
	if now := s.current(); now != second {
		s.Errorf("refused writes raised the revision from %d to %d", second, now)
	}
}

func list(s *suite) {
	s.create("/registry/b/2", "y")
	s.create("/registry/a/1", "x")
	s.create("/registry/b/1", "z")
	s.create("/registry/bb", "w")
	page := s.page("/registry/b/", store.ListOptions{})
	base := s.current() - 4
	want := fmt.Sprintf("/registry/b/1=z@%d /registry/b/2=y@%d ", base+3, base+1)
	if text(page) != want || page.Revision != base+4 || page.More || page.Count != 2 {
		s.Errorf("list: %s of %+v, want %s", text(page), page, want)
	}
	if empty := s.page("/registry/c/", store.ListOptions{}); len(empty.Items) != 0 || empty.Revision != base+4 {
		s.Errorf("list of nothing: %+v", empty)
	}
}

func pages(s *suite) {
	for i := range 5 {
		s.create(fmt.Sprintf("/registry/a/%d", i), "v")
	}
	first := s.page("/registry/a/", store.ListOptions{Limit: 2})
	s.create("/registry/a/3x", "later")
	seen := []string{}
	for page := first; ; {
		for _, kv := range page.Items {
			seen = append(seen, kv.Key)
		}
		if page.Revision != first.Revision {
			s.Errorf("page at %d, want %d", page.Revision, first.Revision)
		}
		if want := int64(5 - len(seen) + len(page.Items)); page.Count != want {
			s.Errorf("count %d, want %d", page.Count, want)
		}
		if !page.More {
			break
		}
		page = s.page("/registry/a/", store.ListOptions{Limit: 2, Revision: page.Revision, From: page.Items[len(page.Items)-1].Key + "\x00"})
	}
	if fmt.Sprint(seen) != "[/registry/a/0 /registry/a/1 /registry/a/2 /registry/a/3 /registry/a/4]" {
		s.Errorf("pages: %v", seen)
	}
}

func past(s *suite) {
	a := s.create("/registry/a", "1")
	b := s.update("/registry/a", "2", a)
	c := s.delete("/registry/a", b)
	for revision, want := range map[int64]string{
		a - 1: "", a: fmt.Sprintf("/registry/a=1@%d ", a), b: fmt.Sprintf("/registry/a=2@%d ", b), c: "",
	} {
		if got := text(s.page("/registry/", store.ListOptions{Revision: revision})); got != want {
			s.Errorf("at %d: %q, want %q", revision, got, want)
		}
	}
	_, err := s.List(s.ctx, "/registry/", store.ListOptions{Revision: c + 1})
	s.wantErr("list in the future", err, store.ErrFutureRevision)
}

// ttl checks that a key ends with its TTL, unless a write without one follows.
// Where that write comes too late, because the disk was busy, it tries a longer
// TTL.
func ttl(s *suite) {
	for ttl := time.Second; ; ttl *= 4 {
		prefix := fmt.Sprintf("/registry/%v/", ttl)
		watch := s.watch(prefix, s.current())
		kept, err := s.Create(s.ctx, prefix+"kept", []byte("v"), ttl)
		if err != nil {
			s.Fatal(err)
		}
		if _, err := s.Update(s.ctx, prefix+"kept", []byte("w"), kept, 0); errors.Is(err, store.ErrNotFound) {
			continue
		} else if err != nil {
			s.Fatal(err)
		}
		if _, err := s.Create(s.ctx, prefix+"short", []byte("v"), 2*ttl); err != nil {
			s.Fatal(err)
		}
		watch.want("create kept=v", "update kept=w", "create short=v", "delete short")
		if _, err := s.Get(s.ctx, prefix+"kept"); err != nil {
			s.Errorf("a write without ttl did not keep the key: %v", err)
		}
		return
	}
}

func contention(s *suite) {
	const writers, rounds = 8, 25
	start := s.create("/registry/counter", "0")
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for won := 0; won < rounds; {
				kv, err := s.Get(s.ctx, "/registry/counter")
				if err != nil {
					s.Error(err)
					return
				}
				var n int
				_, _ = fmt.Sscan(string(kv.Value), &n)
				switch _, err := s.Update(s.ctx, kv.Key, fmt.Append(nil, n+1), kv.Revision, 0); {
				case err == nil:
					won++
				case !errors.Is(err, store.ErrConflict):
					s.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	kv, err := s.Get(s.ctx, "/registry/counter")
	if want := fmt.Sprint(writers * rounds); err != nil || string(kv.Value) != want || kv.Revision != start+writers*rounds {
		s.Errorf("counted %s at %d, %v; want %s", kv.Value, kv.Revision, err, want)
	}
}

func canceled(s *suite) {
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	_, err := s.Get(ctx, "/registry/a")
	s.wantErr("get", err, context.Canceled)
	_, err = s.List(ctx, "/registry/", store.ListOptions{})
	s.wantErr("list", err, context.Canceled)
	_, err = s.Create(ctx, "/registry/a", nil, 0)
	s.wantErr("create", err, context.Canceled)
}
