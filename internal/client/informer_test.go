package client

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	_ "github.com/coracle-io/coracle/internal/bubble"
	"github.com/coracle-io/coracle/internal/resource/all"
	"github.com/coracle-io/coracle/internal/store/mem"
	"github.com/coracle-io/coracle/internal/supervise"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// watched runs a cache of all kinds in a synctest bubble, and returns the kind ConfigMap
// and an informer of it.
func watched(t *testing.T) (context.Context, *watchcache.Kind, *informer) {
	ctx, cancel := context.WithCancel(t.Context())
	c := watchcache.New(mem.New(), all.All())
	go func() { _ = c.Run(ctx) }()
	t.Cleanup(func() { cancel(); synctest.Wait() })
	v, ok := newViews(c).ofType(&corev1.ConfigMap{})
	if !ok {
		t.Fatal("no view")
	}
	return ctx, v.kind, newInformer(v)
}

func configMap(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Data:       map[string]string{"value": value},
	}
}

func create(t *testing.T, k *watchcache.Kind, name, value string) *watchcache.Entry {
	t.Helper()
	e, err := k.Create(t.Context(), configMap(name, value))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// recorder is a handler that records its notifications.
type recorder struct{ events []string }

func (h *recorder) OnAdd(obj any, initial bool) {
	verb := "add"
	if initial {
		verb = "initial"
	}
	h.events = append(h.events, verb+" "+shownAs(obj))
}
func (h *recorder) OnUpdate(old, obj any) {
	h.events = append(h.events, "update "+shownAs(old)+" to "+shownAs(obj))
}
func (h *recorder) OnDelete(obj any) {
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		h.events = append(h.events, "missed "+unknown.Key)
		return
	}
	h.events = append(h.events, "delete "+shownAs(obj))
}

func shownAs(obj any) string {
	m := obj.(*corev1.ConfigMap)
	return m.Name + "=" + m.Data["value"]
}

// expect waits until the bubble is idle, compares the recorded events and removes them.
func (h *recorder) expect(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	slices.Sort(h.events)
	if !slices.Equal(h.events, want) {
		t.Errorf("events %q, want %q", h.events, want)
	}
	h.events = nil
}

func addRecorder(t *testing.T, i *informer) (*recorder, cache.ResourceEventHandlerRegistration) {
	t.Helper()
	h := &recorder{}
	registration, err := i.AddEventHandler(h)
	if err != nil {
		t.Fatal(err)
	}
	return h, registration
}

// Handlers can be added before and after the start, and removed.
func TestAddAndRemoveHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, kind, i := watched(t)
		early, registration := addRecorder(t, i)
		if registration.HasSynced() || i.HasSynced() {
			t.Error("in sync before the start")
		}
		a := create(t, kind, "a", "1")
		synctest.Wait()
		go i.RunWithContext(ctx)
		early.expect(t, "initial a=1")
		if !registration.HasSynced() || !i.HasSynced() {
			t.Error("not in sync")
		}
		late, lateRegistration := addRecorder(t, i)
		late.expect(t, "initial a=1")
		b, err := kind.Update(t.Context(), configMap("a", "2"), a)
		if err != nil {
			t.Fatal(err)
		}
		early.expect(t, "update a=1 to a=2")
		late.expect(t, "update a=1 to a=2")
		if err := i.RemoveEventHandler(lateRegistration); err != nil {
			t.Fatal(err)
		}
		if _, err := kind.Delete(t.Context(), b, nil); err != nil {
			t.Fatal(err)
		}
		early.expect(t, "delete a=2")
		late.expect(t)
		if keys := i.GetStore().ListKeys(); len(keys) != 0 {
			t.Errorf("the store still has %v", keys)
		}
	})
}

// A handler without objects is synced, too. No handler can be added to a stopped
// informer.
func TestStoppedInformer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, _, i := watched(t)
		ctx, cancel := context.WithCancel(ctx)
		h, registration := addRecorder(t, i)
		go i.RunWithContext(ctx)
		h.expect(t)
		if !registration.HasSynced() {
			t.Error("not in sync")
		}
		cancel()
		synctest.Wait()
		if !i.IsStopped() {
			t.Error("runs after its end")
		}
		if _, err := i.AddEventHandler(h); err == nil {
			t.Error("a handler was added after the end")
		}
	})
}

// After a gap, handlers are notified of the differences.
func TestRelist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, _, i := watched(t)
		h, _ := addRecorder(t, i)
		go i.RunWithContext(ctx)
		synctest.Wait()
		same, old := configMap("same", "1"), configMap("changed", "1")
		i.replace([]runtime.Object{same, old, configMap("gone", "1")}, 5)
		h.expect(t, "add changed=1", "add gone=1", "add same=1")
		i.replace([]runtime.Object{same, configMap("changed", "2"), configMap("new", "1")}, 9)
		h.expect(t, "add new=1", "missed default/gone", "update changed=1 to changed=2")
		if got := i.LastSyncResourceVersion(); got != "9" {
			t.Errorf("revision %s", got)
		}
		if got := i.GetIndexer().LastStoreSyncResourceVersion(); got != "9" {
			t.Errorf("the indexer is at %q, want the revision of the list", got)
		}
	})
}

// A panic of a handler affects neither later notifications nor other handlers.
func TestHandlerThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, kind, i := watched(t)
		var events []string
		_, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
			events = append(events, shownAs(obj))
			if len(events)%2 == 1 {
				panic("broken")
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		other, _ := addRecorder(t, i)
		go i.RunWithContext(ctx)
		synctest.Wait()
		var want, wantOther []string
		for n := range 5 {
			name := fmt.Sprint("m", n)
			create(t, kind, name, "1")
			want = append(want, name+"=1")
			wantOther = append(wantOther, "add "+name+"=1")
		}
		other.expect(t, wantOther...)
		if !slices.Equal(events, want) {
			t.Errorf("events %v, want %v", events, want)
		}
	})
}

// TestPanicDuringABatch checks that a panic of an index function, while a list or
// a batch of events is applied, hides no change from handlers and shows none twice.
func TestPanicDuringABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, kind, i := watched(t)
		create(t, kind, "a", "1")
		broken := ""
		if err := i.AddIndexers(cache.Indexers{"broken": func(obj any) ([]string, error) {
			if obj.(*corev1.ConfigMap).Name == broken {
				broken = ""
				panic("broken")
			}
			return nil, nil
		}}); err != nil {
			t.Fatal(err)
		}
		r, _ := addRecorder(t, i)
		i.start(ctx)
		synctest.Wait()
		broken = "a"
		if err := supervise.Call(func() error { i.replace(i.view.list()); return nil }); err == nil || i.HasSynced() {
			t.Errorf("the first list: %v, in sync %t", err, i.HasSynced())
		}
		i.replace(i.view.list())
		if r.expect(t, "add a=1"); !i.HasSynced() {
			t.Error("not in sync after the second list")
		}
		for _, at := range []string{"b", "c", "d"} {
			_, revision := i.view.list()
			cursor, err := i.view.watch(revision)
			if err != nil {
				t.Fatal(err)
			}
			entries := []*watchcache.Entry{create(t, kind, "b", "1"), create(t, kind, "c", "1"), create(t, kind, "d", "1")}
			synctest.Wait()
			events, _, err := cursor.Next(ctx, nil)
			if err != nil || len(events) != 3 {
				t.Fatalf("%d events (%v)", len(events), err)
			}
			broken = at
			if err := supervise.Call(func() error { i.apply(events); return nil }); err == nil {
				t.Error("no panic")
			}
			i.replace(i.view.list())
			r.expect(t, "add b=1", "add c=1", "add d=1")
			for _, e := range entries {
				if _, err := kind.Delete(t.Context(), e, nil); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
			if events, _, err = cursor.Next(ctx, nil); err != nil || len(events) != 3 {
				t.Fatalf("%d events (%v)", len(events), err)
			}
			broken = at
			if err := supervise.Call(func() error { i.apply(events); return nil }); err == nil {
				t.Error("no panic")
			}
			i.replace(i.view.list())
			synctest.Wait()
			if len(r.events) != 3 {
				t.Errorf("events of three deletions: %q", r.events)
			}
			r.events = nil
		}
	})
}

// A slow handler does not delay others, and gets all notifications in order.
func TestSlowHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, kind, i := watched(t)
		begun, proceed := make(chan struct{}, 1), make(chan struct{})
		var events []string
		_, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
			begun <- struct{}{}
			<-proceed
			<-begun
			events = append(events, shownAs(obj))
		}})
		if err != nil {
			t.Fatal(err)
		}
		quick, _ := addRecorder(t, i)
		go i.RunWithContext(ctx)
		synctest.Wait()
		var want, wantQuick []string
		for n := range 5 {
			name := fmt.Sprint("m", n)
			create(t, kind, name, "1")
			want = append(want, name+"=1")
			wantQuick = append(wantQuick, "add "+name+"=1")
		}
		quick.expect(t, wantQuick...)
		if len(events) > 0 {
			t.Errorf("events %q while it waited", events)
		}
		close(proceed)
		synctest.Wait()
		if !slices.Equal(events, want) {
			t.Errorf("events %q, want %q", events, want)
		}
	})
}
