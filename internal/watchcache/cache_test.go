package watchcache_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	_ "github.com/coracle-io/coracle/internal/bubble"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/store/mem"
	"github.com/coracle-io/coracle/internal/watchcache"
)

var configMaps = resource.Define(resource.Definition[corev1.ConfigMap, *corev1.ConfigMap]{
	GroupVersion: corev1.SchemeGroupVersion, Names: resource.Names{Kind: "ConfigMap", Plural: "configmaps"},
})

var pods = resource.Define(resource.Definition[corev1.Pod, *corev1.Pod]{
	GroupVersion: corev1.SchemeGroupVersion, Names: resource.Names{Kind: "Pod", Plural: "pods"},
	FieldSelectors: resource.FieldSelectors[*corev1.Pod]{
		SelectableFields: func(p *corev1.Pod) fields.Set { return fields.Set{"spec.nodeName": p.Spec.NodeName} },
		Fields:           []string{"spec.nodeName"},
		Indexed:          []string{"spec.nodeName"},
	},
})

func configMap(namespace, name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Data:       map[string]string{"value": value},
	}
}

func pod(namespace, name, node string) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.PodSpec{NodeName: node},
	}
}

// run runs a new cache over s until the end of the test.
func run(t testing.TB, s store.Store, rs ...*resource.Resource) *watchcache.Cache {
	t.Helper()
	c := watchcache.New(s, rs)
	runCache(t, c)
	return c
}

// runCache runs a cache until the end of the test. It returns once the cache has
// synced.
func runCache(t testing.TB, c *watchcache.Cache) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := c.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	<-c.Synced()
}

// must returns a function that fails the test if its error is not nil, and
// otherwise returns the value.
func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// lines renders each event as "TYPE namespace/name resourceVersion".
func lines(events []*watchcache.Event) (texts []string) {
	verbs := map[watchcache.EventType]string{watchcache.Added: "ADDED", watchcache.Modified: "MODIFIED", watchcache.Deleted: "DELETED"}
	for _, e := range events {
		texts = append(texts, fmt.Sprintf("%s %s/%s %s", verbs[e.Type], e.Entry.Namespace, e.Entry.Name, e.Entry.Object.GetResourceVersion()))
	}
	return texts
}

func TestWritesAreSeenInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := run(t, mem.New(), configMaps)
		k := c.Kind(configMaps)
		cursor := must[*watchcache.Cursor](t)(k.Watch(c.Revision()))

		created := must[*watchcache.Entry](t)(k.Create(t.Context(), configMap("default", "a", "1")))
		updated := must[*watchcache.Entry](t)(k.Update(t.Context(), configMap("default", "a", "2"), created))
		if _, err := k.Update(t.Context(), configMap("default", "a", "3"), created); !errors.Is(err, store.ErrConflict) {
			t.Fatalf("update of an old revision: %v", err)
		}
		must[*watchcache.Entry](t)(k.Delete(t.Context(), updated, nil))
		must[int64](t)(c.Fresh(t.Context()))

		events, revision, err := cursor.Next(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := fmt.Sprint(lines(events)), "[ADDED default/a 2 MODIFIED default/a 3 DELETED default/a 4]"; got != want {
			t.Errorf("events %s, want %s", got, want)
		}
		if revision != 4 {
			t.Errorf("known up to %d, want 4", revision)
		}
		if events[0].Entry != created || events[1].Entry != updated {
			t.Error("the cache does not share the writer's objects")
		}
		if k.Snapshot().Len() != 0 {
			t.Error("the deleted object is still in the snapshot")
		}
	})
}

func TestNextEndsWithContextAndWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := run(t, mem.New(), configMaps)
		cursor := must[*watchcache.Cursor](t)(c.Kind(configMaps).Watch(c.Revision()))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := cursor.Next(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after the deadline: %v", err)
		}
		wake := make(chan struct{}, 1)
		wake <- struct{}{}
		if events, _, err := cursor.Next(t.Context(), wake); events != nil || err != nil {
			t.Errorf("after waking: %v, %v", events, err)
		}
	})
}

func TestScopedCursorSeesOnlyItsScope(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := run(t, mem.New(), pods)
		k := c.Kind(pods)
		node := must[*watchcache.Cursor](t)(k.WatchScope(c.Revision(), watchcache.Scope{Field: "spec.nodeName", Value: "n1"}))
		namespace := must[*watchcache.Cursor](t)(k.WatchScope(c.Revision(), watchcache.Scope{Namespace: "two"}))
		name := must[*watchcache.Cursor](t)(k.WatchScope(c.Revision(), watchcache.Scope{Namespace: "one", Name: "b"}))

		a := must[*watchcache.Entry](t)(k.Create(t.Context(), pod("one", "a", "")))
		a = must[*watchcache.Entry](t)(k.Update(t.Context(), pod("one", "a", "n1"), a))
		must[*watchcache.Entry](t)(k.Update(t.Context(), pod("one", "a", "n2"), a))
		must[*watchcache.Entry](t)(k.Create(t.Context(), pod("two", "b", "n1")))
		must[*watchcache.Entry](t)(k.Create(t.Context(), pod("one", "b", "n3")))
		must[int64](t)(c.Fresh(t.Context()))

		for _, tt := range []struct {
			what   string
			cursor *watchcache.Cursor
			want   string
		}{
			{"node", node, "[MODIFIED one/a 3 MODIFIED one/a 4 ADDED two/b 5]"},
			{"namespace", namespace, "[ADDED two/b 5]"},
			{"name", name, "[ADDED one/b 6]"},
		} {
			events, _, err := tt.cursor.Next(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(lines(events)); got != tt.want {
				t.Errorf("%s: %s, want %s", tt.what, got, tt.want)
			}
		}
		late := must[*watchcache.Cursor](t)(k.WatchScope(3, watchcache.Scope{Field: "spec.nodeName", Value: "n2"}))
		events, _, _ := late.Next(t.Context(), nil)
		if got := fmt.Sprint(lines(events)); got != "[MODIFIED one/a 4]" {
			t.Errorf("late: %s", got)
		}
	})
}

func TestSnapshotsOfThePast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := run(t, mem.New(), pods)
		k := c.Kind(pods)
		a := must[*watchcache.Entry](t)(k.Create(t.Context(), pod("one", "a", "n1")))
		b := must[*watchcache.Entry](t)(k.Create(t.Context(), pod("one", "b", "n1")))
		must[*watchcache.Entry](t)(k.Update(t.Context(), pod("one", "a", "n2"), a))
		must[*watchcache.Entry](t)(k.Delete(t.Context(), b, nil))
		must[int64](t)(c.Fresh(t.Context()))

		render := func(s watchcache.Snapshot) (out string) {
			s.Ascend("", watchcache.Position{}, func(e *watchcache.Entry) bool {
				out += fmt.Sprintf("%s@%d ", e.Name, e.Revision)
				return true
			})
			s.Lookup("spec.nodeName", "n1", watchcache.Position{}, func(e *watchcache.Entry) bool {
				out += fmt.Sprintf("n1:%s ", e.Name)
				return true
			})
			return out
		}
		for revision, want := range map[int64]string{
			1: "", 2: "a@2 n1:a ", 3: "a@2 b@3 n1:a n1:b ", 4: "a@4 b@3 n1:b ", 5: "a@4 ",
		} {
			s, ok := k.SnapshotAt(revision)
			if got := render(s); !ok || got != want || s.Revision != revision {
				t.Errorf("at %d: %q at %d, want %q", revision, got, s.Revision, want)
			}
		}
		if _, ok := k.SnapshotAt(6); ok {
			t.Error("SnapshotAt returned a snapshot of a future revision")
		}
	})
}

func TestKeyOrderIsTheStores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := mem.New()
		c := run(t, s, configMaps)
		k := c.Kind(configMaps)
		for _, namespace := range []string{"a", "a-b", "ab", "b"} {
			for _, name := range []string{"x", "x-y", "x.y"} {
				must[*watchcache.Entry](t)(k.Create(t.Context(), configMap(namespace, name, "")))
			}
		}
		must[int64](t)(c.Fresh(t.Context()))
		page, err := s.List(t.Context(), "/registry/configmaps/", store.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var keys []string
		k.Snapshot().Ascend("", watchcache.Position{}, func(e *watchcache.Entry) bool {
			keys = append(keys, configMaps.Key(e.Namespace, e.Name))
			return true
		})
		for i, kv := range page.Items {
			if keys[i] != kv.Key {
				t.Errorf("item %d is %s, in the store %s", i, keys[i], kv.Key)
			}
		}
		var rest []string
		k.Snapshot().Ascend("a", watchcache.Position{Namespace: "a", Name: "x"}, func(e *watchcache.Entry) bool {
			rest = append(rest, e.Namespace+"/"+e.Name)
			return true
		})
		if got := fmt.Sprint(rest); got != "[a/x-y a/x.y]" {
			t.Errorf("after a/x in a: %s", got)
		}
	})
}
