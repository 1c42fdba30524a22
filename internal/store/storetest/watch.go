package storetest

import (
	"context"
	"fmt"
	"strings"

	"github.com/coracle-io/coracle/internal/store"
)

// follower is a watch under test.
type follower struct {
	*suite
	batches <-chan store.Batch
	cancel  context.CancelFunc
	known   int64
	pending []store.Event
}

func (s *suite) watch(prefix string, after int64) *follower {
	ctx, cancel := context.WithCancel(s.ctx)
	f := &follower{suite: s, batches: s.Watch(ctx, prefix, after), cancel: cancel, known: after}
	s.Cleanup(f.stop)
	return f
}

func (f *follower) stop() {
	f.cancel()
	for range f.batches {
	}
}

// next reads a batch and checks the guarantees of store.Batch.
func (f *follower) next() {
	f.Helper()
	batch, ok := <-f.batches
	if !ok || batch.Err != nil {
		f.Fatalf("watch ended: %v", batch.Err)
	}
	last := f.known
	for _, e := range batch.Events {
		if e.Revision < last || e.Revision <= f.known {
			f.Errorf("event at %d after %d", e.Revision, last)
		}
		last = e.Revision
	}
	if batch.Revision < last || batch.Revision < f.known {
		f.Errorf("batch up to %d has events up to %d", batch.Revision, last)
	}
	f.known = batch.Revision
	f.pending = append(f.pending, batch.Events...)
}

// until reads batches up to a revision and returns the unread events.
func (f *follower) until(revision int64) []store.Event {
	f.Helper()
	for f.known < revision {
		f.next()
	}
	events := f.pending
	f.pending = nil
	return events
}

// want reads as many events as there are lines and compares them. A line is
// "verb key=value" with the last segment of the key.
func (f *follower) want(lines ...string) {
	f.Helper()
	for len(f.pending) < len(lines) {
		f.next()
	}
	var got []string
	for _, e := range f.pending {
		got = append(got, line(e))
	}
	f.pending = nil
	if fmt.Sprint(got) != fmt.Sprint(lines) {
		f.Errorf("events %v, want %v", got, lines)
	}
}

func line(e store.Event) string {
	name := e.Key[strings.LastIndexByte(e.Key, '/')+1:]
	switch {
	case e.Deleted:
		return "delete " + name
	case e.Created:
		return fmt.Sprintf("create %s=%s", name, e.Value)
	}
	return fmt.Sprintf("update %s=%s", name, e.Value)
}

func watchAll(s *suite) {
	f := s.watch("/registry/a/", s.current())
	a := s.create("/registry/a/1", "x")
	s.create("/registry/b/1", "other")
	a = s.update("/registry/a/1", "y", a)
	s.delete("/registry/a/1", a)
	a = s.create("/registry/a/1", "z")
	f.want("create 1=x", "update 1=y", "delete 1", "create 1=z")
	if f.known != a {
		s.Errorf("revision %d, want %d", f.known, a)
	}
}

func watchPast(s *suite) {
	start := s.current()
	a := s.create("/registry/a", "1")
	b := s.update("/registry/a", "2", a)
	s.watch("/registry/", start).want("create a=1", "update a=2")
	s.watch("/registry/", a).want("update a=2")
	late := s.watch("/registry/", b)
	s.delete("/registry/a", b)
	late.want("delete a")
}

func watchProgress(s *suite) {
	f := s.watch("/registry/a/", s.current())
	for i := range 3 {
		s.create(fmt.Sprintf("/registry/b/%d", i), "v")
	}
	if events := f.until(s.current()); len(events) != 0 {
		s.Errorf("events of another prefix: %v", events)
	}
	s.create("/registry/a/1", "v")
	f.want("create 1=v")
}

func watchEnds(s *suite) {
	f := s.watch("/registry/", s.current())
	s.create("/registry/a", "v")
	f.want("create a=v")
	f.cancel()
	if batch, ok := <-f.batches; ok {
		s.Errorf("batch after the context ended: %+v", batch)
	}
}

func compaction(s *suite) {
	start := s.current()
	a := s.create("/registry/a", "1")
	b := s.update("/registry/a", "2", a)
	gone := s.create("/registry/gone", "1")
	s.delete("/registry/gone", gone)
	c := s.update("/registry/a", "3", b)
	d := s.update("/registry/a", "4", c)
	live := s.watch("/registry/", d)
	if err := s.Compact(s.ctx, c); err != nil {
		s.Fatal(err)
	}
	s.wantErr("compact again", s.Compact(s.ctx, b), store.ErrCompacted)
	s.wantErr("compact the future", s.Compact(s.ctx, d+10), store.ErrFutureRevision)
	_, err := s.List(s.ctx, "/registry/", store.ListOptions{Revision: b})
	s.wantErr("list before the compaction", err, store.ErrCompacted)
	if got, want := text(s.page("/registry/", store.ListOptions{Revision: c})), fmt.Sprintf("/registry/a=3@%d ", c); got != want {
		s.Errorf("at the compaction: %q, want %q", got, want)
	}
	if kv, err := s.Get(s.ctx, "/registry/a"); err != nil || kv.Revision != d {
		s.Errorf("get after the compaction: %+v, %v", kv, err)
	}
	ended := s.watch("/registry/", start)
	if batch := <-ended.batches; len(batch.Events) != 0 {
		s.Errorf("events before the compaction: %+v", batch)
	} else {
		s.wantErr("watch before the compaction", batch.Err, store.ErrCompacted)
	}
	if _, ok := <-ended.batches; ok {
		s.Error("the watch continues after its error")
	}
	s.watch("/registry/", c).want("update a=4")
	s.delete("/registry/a", d)
	live.want("delete a")
}
