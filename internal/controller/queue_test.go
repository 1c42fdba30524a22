package controller

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	_ "github.com/coracle-io/coracle/internal/bubble"
	"github.com/coracle-io/coracle/internal/leaktest"
)

// A controller may fail repeatedly before its workers start. Its queues must
// not leak goroutines.
func TestQueueWithoutWorkersDoesNotLeak(t *testing.T) {
	defer leaktest.Check(t, goleak.IgnoreCurrent())
	for range 50 {
		q := NewQueue(nil, "test", func(context.Context, string) error { return nil })
		q.Add("now")
		q.AddAfter("later", time.Hour)
	}
}

// Keys added before the workers start are neither lost nor processed early.
func TestKeysAddedBeforeWorkersStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		seen := map[string][]time.Duration{}
		q := NewQueue(nil, "test", func(_ context.Context, key string) error {
			seen[key] = append(seen[key], time.Since(began))
			if key == "fails" && len(seen[key]) < 3 {
				return errors.New("not yet")
			}
			return nil
		})
		q.Add("now")
		q.Add("fails")
		q.AddAfter("later", time.Minute)
		q.AddAfter("later", time.Hour)
		q.AddAfter("past", time.Second)
		time.Sleep(10 * time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- q.Workers(1)(ctx) }()
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if got := seen["now"]; len(got) != 1 || got[0] != 10*time.Second {
			t.Errorf("now: %v", got)
		}
		if got := seen["past"]; len(got) != 1 || got[0] != 10*time.Second {
			t.Errorf("past: %v", got)
		}
		if got := seen["later"]; len(got) != 1 || got[0].Round(time.Second) != time.Minute {
			t.Errorf("later: %v", got)
		}
		if got := seen["fails"]; len(got) != 3 || got[1]-got[0] != 5*time.Millisecond || got[2]-got[1] != 10*time.Millisecond {
			t.Errorf("fails: %v", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		q.AddAfter("after the end", time.Second)
	})
}

// Existing accepts keys with and without a namespace, and ignores keys without
// an object.
func TestExisting(t *testing.T) {
	pods := cache.NewSharedIndexInformer(&cache.ListWatch{}, &v1.Pod{}, 0, nil)
	nodes := cache.NewSharedIndexInformer(&cache.ListWatch{}, &v1.Node{}, 0, nil)
	for informer, o := range map[cache.SharedIndexInformer]any{
		pods:  &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}},
		nodes: &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
	} {
		if err := informer.GetIndexer().Add(o); err != nil {
			t.Fatal(err)
		}
	}
	var synced []string
	pod := Existing[Key](pods, func(_ context.Context, p *v1.Pod) error {
		synced = append(synced, "pod "+p.Name)
		return nil
	})
	node := Existing[string](nodes, func(_ context.Context, n *v1.Node) error {
		synced = append(synced, "node "+n.Name)
		return nil
	})
	if err := errors.Join(
		pod(t.Context(), Key{Namespace: "ns", Name: "a"}), pod(t.Context(), Key{Namespace: "ns", Name: "b"}),
		node(t.Context(), "a"), node(t.Context(), "b"),
	); err != nil || !slices.Equal(synced, []string{"pod a", "node a"}) {
		t.Errorf("synced %q, %v", synced, err)
	}
}
