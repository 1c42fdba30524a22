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

	"github.com/coracle-io/coracle/internal/resource/all"
	"github.com/coracle-io/coracle/internal/store/mem"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// watched is a cache of all kinds that runs in a bubble, and an informer of
// its ConfigMaps.
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

// heard collects what a handler is told.
type heard struct{ told []string }

func (h *heard) OnAdd(obj any, initial bool) {
	verb := "add"
	if initial {
		verb = "initial"
	}
	h.told = append(h.told, verb+" "+shownAs(obj))
}
func (h *heard) OnUpdate(old, obj any) {
	h.told = append(h.told, "update "+shownAs(old)+" to "+shownAs(obj))
}
func (h *heard) OnDelete(obj any) {
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		h.told = append(h.told, "missed "+unknown.Key)
		return
	}
	h.told = append(h.told, "delete "+shownAs(obj))
}

func shownAs(obj any) string {
	m := obj.(*corev1.ConfigMap)
	return m.Name + "=" + m.Data["value"]
}

// expect compares and forgets what was told, once nothing more is coming.
func (h *heard) expect(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	slices.Sort(h.told)
	if !slices.Equal(h.told, want) {
		t.Errorf("told %q, want %q", h.told, want)
	}
	h.told = nil
}

func listen(t *testing.T, i *informer) (*heard, cache.ResourceEventHandlerRegistration) {
	t.Helper()
	h := &heard{}
	registration, err := i.AddEventHandler(h)
	if err != nil {
		t.Fatal(err)
	}
	return h, registration
}

// Early handlers, late ones and those that leave hear what concerns them.
func TestHandlersComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, kind, i := watched(t)
		early, registration := listen(t, i)
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
		late, lateRegistration := listen(t, i)
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

// A handler with nothing to hear is in sync too, and an informer that ended
// takes no handler.
func TestInformerEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, _, i := watched(t)
		ctx, cancel := context.WithCancel(ctx)
		h, registration := listen(t, i)
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

// After a gap, handlers are told how what is there now differs from what they
// know.
func TestListAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, _, i := watched(t)
		h, _ := listen(t, i)
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
	})
}

// A panic of a handler costs it the notice that it panicked over, and nobody
// anything else.
func TestHandlerThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, kind, i := watched(t)
		var told []string
		_, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
			told = append(told, shownAs(obj))
			if len(told)%2 == 1 {
				panic("broken")
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		other, _ := listen(t, i)
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
		if !slices.Equal(told, want) {
			t.Errorf("told %v, want %v", told, want)
		}
	})
}

// A slow handler delays nobody else, and still hears everything in order.
func TestSlowHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, kind, i := watched(t)
		begun, proceed := make(chan struct{}, 1), make(chan struct{})
		var told []string
		_, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
			begun <- struct{}{}
			<-proceed
			<-begun
			told = append(told, shownAs(obj))
		}})
		if err != nil {
			t.Fatal(err)
		}
		quick, _ := listen(t, i)
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
		if len(told) > 0 {
			t.Errorf("told %q while it waited", told)
		}
		close(proceed)
		synctest.Wait()
		if !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
	})
}
