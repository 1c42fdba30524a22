package history

import (
	"context"
	"maps"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/all"
	"github.com/coracle-io/coracle/internal/store/etcd"
)

// etcdHistory is the history of the keys in etcd.
type etcdHistory struct {
	events []watchEvent
	writes map[string]watchEvent // by value
}

const prefix = "/registry/configmaps/history/"

// readEtcd reads all events from etcd.
func readEtcd(t *testing.T, dir string) etcdHistory {
	t.Helper()
	s, err := etcd.Dial(endpoint(dir), klog.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	now, err := s.CurrentRevision(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var configMaps *resource.Resource
	for _, r := range all.All() {
		if r.Group == "" && r.Plural == "configmaps" {
			configMaps = r
		}
	}
	h := etcdHistory{writes: map[string]watchEvent{}}
	current := map[string]string{}
	batches := s.Watch(ctx, prefix, 1)
	for batch := range batches {
		if batch.Err != nil {
			t.Fatal(batch.Err)
		}
		for _, e := range batch.Events {
			event := watchEvent{key: strings.TrimPrefix(e.Key, prefix), revision: e.Revision}
			switch {
			case e.Deleted:
				event.verb, event.value = "DELETED", current[event.key]
			case e.Created:
				event.verb = "ADDED"
			default:
				event.verb = "MODIFIED"
			}
			if !e.Deleted {
				obj, err := resource.DecodeStored(configMaps, e.Value, e.Revision)
				if err != nil {
					t.Fatal(err)
				}
				event.value = obj.(*corev1.ConfigMap).Data["value"]
				current[event.key] = event.value
				h.writes[event.value] = event
			}
			h.events = append(h.events, event)
		}
		if batch.Revision >= now {
			break
		}
	}
	cancel()
	for range batches {
	}
	return h
}

// checkWrites checks that each acknowledged write is in etcd's history.
func (h etcdHistory) checkWrites(t *testing.T, ops []operation) {
	for _, op := range ops {
		if op.verb != create && op.verb != update {
			continue
		}
		done, there := h.writes[op.value]
		acknowledged := op.code == http.StatusOK || op.code == http.StatusCreated
		switch {
		case acknowledged && !there:
			t.Errorf("acknowledged write is lost: %+v", op)
		case acknowledged && (done.revision != op.revision || done.key != op.key):
			t.Errorf("acknowledged at %d, but etcd has %+v", op.revision, done)
		case there && op.code != unknown && !acknowledged:
			t.Errorf("refused with %d, but etcd has %+v", op.code, done)
		}
	}
}

// checkLists compares each list with the state at its revision.
func (h etcdHistory) checkLists(t *testing.T, ops []operation) (checked int) {
	lists := map[int64][]operation{}
	for _, op := range ops {
		if op.verb == list && op.code == http.StatusOK {
			lists[op.revision] = append(lists[op.revision], op)
		}
	}
	state := map[string]item{}
	at := int64(0)
	compare := func(until int64) {
		for revision, found := range lists {
			if revision >= at && revision < until {
				for _, op := range found {
					checked++
					if !maps.Equal(op.found, state) {
						t.Errorf("list at %d is %v, etcd had %v", revision, op.found, state)
					}
				}
				delete(lists, revision)
			}
		}
	}
	for _, e := range h.events {
		compare(e.revision)
		at = e.revision
		if e.verb == "DELETED" {
			delete(state, e.key)
		} else {
			state[e.key] = item{e.value, e.revision}
		}
	}
	compare(1 << 62)
	return checked
}

// checkWatches compares each segment with etcd's events after its first revision.
func (h etcdHistory) checkWatches(t *testing.T, segments []segment) (checked int) {
	for _, s := range segments {
		i := 0
		for i < len(h.events) && h.events[i].revision <= s.after {
			i++
		}
		for n, e := range s.events {
			if i+n >= len(h.events) || h.events[i+n] != e {
				t.Errorf("watch after %d saw %+v as event %d; etcd has %+v", s.after, e, n, h.events[i+n:min(i+n+1, len(h.events))])
				break
			}
			checked++
		}
	}
	return checked
}
