package watchcache_test

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/store/mem"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// heldDelete blocks the deletion of one revision until release is closed.
type heldDelete struct {
	store.Store
	revision       int64
	begun, release chan struct{}
}

func (h *heldDelete) Delete(ctx context.Context, key string, revision int64) (int64, error) {
	if revision == h.revision {
		close(h.begun)
		<-h.release
	}
	return h.Store.Delete(ctx, key, revision)
}

// TestDeletionShowsWhatWasDeleted checks that the event of a deletion contains
// the deleted revision, while a deletion of an older revision, which will fail,
// is pending.
func TestDeletionShowsWhatWasDeleted(t *testing.T) {
	h := &heldDelete{Store: mem.New(), begun: make(chan struct{}), release: make(chan struct{})}
	c, stop := start(h, pods)
	defer stop()
	k, ctx := c.Kind(pods), t.Context()
	first, err := k.Create(ctx, pod("a", "x", "n1"))
	if err != nil {
		t.Fatal(err)
	}
	h.revision = first.Revision
	second, err := k.Update(ctx, pod("a", "x", "n2"), first)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.WaitFor(ctx, second.Revision); err != nil {
		t.Fatal(err)
	}
	cursor, err := k.Watch(second.Revision)
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	go func() {
		_, err := k.Delete(ctx, first, nil)
		failed <- err
	}()
	<-h.begun
	if _, err := k.Delete(ctx, second, nil); err != nil {
		t.Fatal(err)
	}
	events, _, err := cursor.Next(ctx, nil)
	if err != nil || len(events) != 1 || events[0].Type != watchcache.Deleted {
		t.Fatalf("%v %v", events, err)
	}
	if node := events[0].Entry.Object.(*corev1.Pod).Spec.NodeName; node != "n2" {
		t.Errorf("the event has the pod of node %q, which is an older revision", node)
	}
	close(h.release)
	if err := <-failed; !errors.Is(err, store.ErrNotFound) {
		t.Errorf("deletion of an old revision: %v", err)
	}
}
