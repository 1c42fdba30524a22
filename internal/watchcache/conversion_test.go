package watchcache

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coracle-io/coracle/internal/resource"
)

// fakeWebhook converts objects to a version, and records their names by call.
type fakeWebhook struct {
	resource.Version
	answer func(names []string) error // nil is success

	mu    sync.Mutex // guards calls
	calls [][]string
}

func newFakeWebhook() *fakeWebhook {
	w := &fakeWebhook{}
	w.Version = resource.Version{
		GroupVersion: schema.GroupVersion{Group: "example.com", Version: "v1"},
		Convert:      func(obj resource.Object) (resource.Object, error) { return obj, nil },
		ConvertAll:   w.convertAll,
	}
	return w
}

func (w *fakeWebhook) convertAll(objs []resource.Object) ([]resource.Object, error) {
	var names []string
	var out []resource.Object
	for _, obj := range objs {
		names = append(names, obj.GetName())
		u := obj.DeepCopyObject().(*unstructured.Unstructured)
		u.SetAPIVersion(w.GroupVersion.String())
		u.Object["of"] = u.GetName()
		out = append(out, u)
	}
	w.mu.Lock()
	w.calls = append(w.calls, names)
	w.mu.Unlock()
	if w.answer != nil {
		if err := w.answer(names); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// sizes returns the numbers of objects in the calls, and forgets the calls.
func (w *fakeWebhook) sizes() (sizes []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, names := range w.calls {
		sizes = append(sizes, len(names))
	}
	w.calls = nil
	return sizes
}

func (w *fakeWebhook) wantCalls(t *testing.T, what string, want ...int) {
	t.Helper()
	if got := w.sizes(); !slices.Equal(got, want) {
		t.Errorf("%s: calls for %v objects, want %v", what, got, want)
	}
}

// inV1alpha1 returns n entries, each of size bytes, of objects that are stored in another version.
func inV1alpha1(n, size int) (entries []*Entry) {
	for i := range n {
		name := fmt.Sprint("boat", i)
		u := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1alpha1", "kind": "Boat", "metadata": map[string]any{"name": name},
		}}
		entries = append(entries, &Entry{Object: u, Name: name, size: size})
	}
	return entries
}

func wantConverted(t *testing.T, e *Entry, v *resource.Version) {
	t.Helper()
	got, err := e.In(v)
	if err != nil {
		t.Errorf("%s: %v", e.Name, err)
		return
	}
	want := map[string]any{"apiVersion": "example.com/v1", "kind": "Boat", "metadata": map[string]any{"name": e.Name}, "of": e.Name}
	if content := got.(*unstructured.Unstructured).Object; !reflect.DeepEqual(content, want) {
		t.Errorf("%s: %v, want %v", e.Name, content, want)
	}
}

// TestOneCallForAll checks that a webhook is asked once for many objects, only for those
// that nobody asked for, and never again.
func TestOneCallForAll(t *testing.T) {
	w := newFakeWebhook()
	entries := inV1alpha1(callObjects, 100)
	wantConverted(t, entries[7], &w.Version)
	w.wantCalls(t, "one", 1)
	if err := Convert(&w.Version, entries); err != nil {
		t.Fatal(err)
	}
	w.wantCalls(t, "all", callObjects-1)
	for _, e := range entries {
		wantConverted(t, e, &w.Version)
	}
	if err := Convert(&w.Version, append(entries, entries[0])); err != nil {
		t.Error(err)
	}
	w.wantCalls(t, "again")
	other := newFakeWebhook() // of a definition that has changed
	wantConverted(t, entries[0], &other.Version)
	other.wantCalls(t, "another definition", 1)
	w.wantCalls(t, "with another definition")

	there := &Entry{Object: must1(entries[0].In(&w.Version)), Name: "there"}
	if got, err := there.In(&w.Version); err != nil || got != there.Object {
		t.Errorf("an object of the version: %v %v", got, err)
	}
	if err := Convert(&w.Version, []*Entry{there}); err != nil {
		t.Error(err)
	}
	if _, converted, err := there.ConvertedJSON(&w.Version); converted || err != nil {
		t.Errorf("an object of the version is converted: %v", err)
	}
	w.wantCalls(t, "of the version")
}

func must1(obj resource.Object, err error) resource.Object {
	if err != nil {
		panic(err)
	}
	return obj
}

// TestCallsAreBounded checks that large or many objects are converted by several calls.
func TestCallsAreBounded(t *testing.T) {
	w := newFakeWebhook()
	entries := append(inV1alpha1(5, callSize/2), inV1alpha1(1, 2*callSize)...)
	if err := Convert(&w.Version, entries); err != nil {
		t.Fatal(err)
	}
	w.wantCalls(t, "large", 2, 2, 1, 1)
	for _, e := range entries {
		wantConverted(t, e, &w.Version)
	}
	if err := Convert(&w.Version, inV1alpha1(callObjects+1, 1)); err != nil {
		t.Fatal(err)
	}
	w.wantCalls(t, "many", callObjects, 1)
}

// TestConvertEach checks that objects are visited before a webhook is asked for others.
func TestConvertEach(t *testing.T) {
	w := newFakeWebhook()
	var steps []string
	w.answer = func(names []string) error {
		steps = append(steps, fmt.Sprint(names))
		return nil
	}
	if err := ConvertEach(&w.Version, inV1alpha1(7, callSize/2), func(e *Entry) bool {
		steps = append(steps, e.Name)
		return e.Name != "boat2"
	}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"[boat0 boat1]", "boat0", "boat1", "[boat2 boat3]", "boat2"}; !slices.Equal(steps, want) {
		t.Errorf("steps %q, want %q", steps, want)
	}
	if err := ConvertEach(&w.Version, inV1alpha1(2, 2*callSize), func(*Entry) bool { return true }); err != nil {
		t.Fatal(err)
	}
	w.wantCalls(t, "large", 2, 2, 1, 1)
	failure := errors.New("out to lunch")
	w.answer = func([]string) error { return failure }
	if err := ConvertEach(&w.Version, inV1alpha1(2, 100), func(e *Entry) bool {
		t.Errorf("%s is visited", e.Name)
		return true
	}); !errors.Is(err, failure) {
		t.Errorf("failure: %v", err)
	}
}

// TestCallsAreShared checks that those who want an object that is being converted wait for it.
func TestCallsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFakeWebhook()
		release := make(chan struct{})
		w.answer = func([]string) error { <-release; return nil }
		entries := inV1alpha1(3, 100)
		var wait sync.WaitGroup
		wait.Go(func() {
			if err := Convert(&w.Version, entries[:2]); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		for range 10 {
			wait.Go(func() { wantConverted(t, entries[1], &w.Version) })
		}
		synctest.Wait()
		wait.Go(func() {
			if err := Convert(&w.Version, entries); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		close(release)
		wait.Wait()
		w.wantCalls(t, "together", 2, 1)
	})
}

// TestFailuresAreNotKept checks that a webhook is asked again after a failure, and that
// those who waited for one object share its failure.
func TestFailuresAreNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFakeWebhook()
		release, failure := make(chan struct{}), errors.New("out to lunch")
		w.answer = func([]string) error { <-release; return failure }
		entries := inV1alpha1(2, 100)
		var wait sync.WaitGroup
		for range 10 {
			wait.Go(func() {
				if _, err := entries[0].In(&w.Version); !errors.Is(err, failure) {
					t.Errorf("failure: %v", err)
				}
			})
		}
		synctest.Wait()
		close(release)
		wait.Wait()
		w.wantCalls(t, "failure", 1)
		if err := Convert(&w.Version, entries); !errors.Is(err, failure) {
			t.Errorf("failure of both: %v", err)
		}
		w.wantCalls(t, "failure of both", 2)
		w.answer = nil
		for _, e := range entries {
			wantConverted(t, e, &w.Version)
		}
		w.wantCalls(t, "later", 1, 1)
	})
}

// TestFailuresOfOthers checks that an object is converted although a call for it and a
// broken one fails, or panics.
func TestFailuresOfOthers(t *testing.T) {
	for _, panics := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newFakeWebhook()
			release := make(chan struct{})
			w.answer = func(names []string) error {
				if len(names) == 1 {
					return nil
				}
				<-release
				if panics {
					panic("broken")
				}
				return errors.New("broken")
			}
			entries := inV1alpha1(2, 100)
			var wait sync.WaitGroup
			wait.Go(func() {
				defer func() {
					if reason := recover(); (reason != nil) != panics {
						t.Errorf("recovered %v", reason)
					}
				}()
				if err := Convert(&w.Version, entries); err == nil {
					t.Error("no failure")
				}
			})
			synctest.Wait()
			wait.Go(func() { wantConverted(t, entries[1], &w.Version) })
			synctest.Wait()
			close(release)
			wait.Wait()
			w.wantCalls(t, "broken", 2, 1)
		})
	}
}

// TestWrongNumberOfConversions checks that no object gets the conversion of another.
func TestWrongNumberOfConversions(t *testing.T) {
	w := newFakeWebhook()
	w.ConvertAll = func(objs []resource.Object) ([]resource.Object, error) {
		out, err := w.convertAll(objs)
		return out[1:], err
	}
	if err := Convert(&w.Version, inV1alpha1(3, 100)); err == nil || err.Error() != "conversion to example.com/v1 returned 2 objects, expected 3" {
		t.Error(err)
	}
}

// TestConversionsAreSwept checks that conversions which nobody uses are dropped when
// there is no room for them.
func TestConversionsAreSwept(t *testing.T) {
	w := newFakeWebhook()
	e := inV1alpha1(1, 100)[0]
	wantConverted(t, e, &w.Version)
	w.wantCalls(t, "first", 1)
	size := e.conversions.Load().size()
	for _, step := range []struct {
		what       string
		use        bool
		room, left int
	}{
		{"used", false, 0, -size},
		{"unused, with room", false, size, 0},
		{"used again", true, size - 1, -1},
		{"unused, without room", false, size - 1, size - 1},
	} {
		if step.use {
			wantConverted(t, e, &w.Version)
		}
		w.wantCalls(t, step.what)
		room := step.room
		if e.sweep(&room); room != step.left {
			t.Errorf("%s: %d bytes of room are left, want %d", step.what, room, step.left)
		}
	}
	wantConverted(t, e, &w.Version)
	w.wantCalls(t, "after it was dropped", 1)
}

// TestSweepDuringCall checks that a conversion is kept for a while after a long call.
func TestSweepDuringCall(t *testing.T) {
	w := newFakeWebhook()
	e := inV1alpha1(1, 100)[0]
	sweep := func() {
		room := 0
		e.sweep(&room)
	}
	w.answer = func([]string) error {
		sweep()
		return nil
	}
	wantConverted(t, e, &w.Version)
	sweep()
	wantConverted(t, e, &w.Version)
	w.wantCalls(t, "swept", 1)
}
