package object

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func names(prefix string, n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprint(prefix, i))
	}
	return list
}

// watched returns how many objects of a namespace are watched.
func (s *storeTest) watched(namespace string) (n int) {
	s.Store.mu.Lock()
	defer s.Store.mu.Unlock()
	for _, e := range s.entries {
		if e.key.namespace == namespace && e.informer != nil {
			n++
		}
	}
	return n
}

// However many objects a pod refers to, and however often, some are watched once.
// The others are read when they are needed.
func TestWatchesOfAPodAreBounded(t *testing.T) {
	run(t, true, func(t *testing.T, s *storeTest) {
		s.put("b2000", "1", "value")
		s.register("one", append(append(names("a", 10), names("a", 10)...), names("b", 2001)...)...)
		if len(s.opened) != maxPodWatches || s.watched("default") != maxPodWatches {
			t.Errorf("%d watches are opened, want %d", len(s.opened), maxPodWatches)
		}
		if got, err := s.Secret(t.Context(), "default", "b2000"); err != nil || string(got.Data["k"]) != "value" {
			t.Errorf("an object without a watch: %v, %v", got, err)
		}
		s.Forget("one")
		if len(s.entries) != 0 || s.watches.Len() != 0 {
			t.Errorf("after the pod was forgotten: %d objects, %d watches", len(s.entries), s.watches.Len())
		}
	})
}

// A namespace whose pods refer to very many objects loses watches, and no other
// namespace does.
func TestWatchesOfAllPodsAreBounded(t *testing.T) {
	run(t, true, func(t *testing.T, s *storeTest) {
		s.registerIn("small", "small", "a")
		pods := maxWatches/maxPodWatches + 2
		for range 2 {
			for i := range pods {
				s.registerIn("large", types.UID(fmt.Sprint(i)), names(fmt.Sprint("s", i, "-"), maxPodWatches)...)
			}
		}
		if large, small := s.watched("large"), s.watched("small"); large+small != maxWatches || small != 1 {
			t.Errorf("%d watches of the large namespace, %d of the small one", large, small)
		}
		if want := pods*maxPodWatches + 1; len(s.opened) != want {
			t.Errorf("%d watches were opened, want %d", len(s.opened), want)
		}
		for i := range pods {
			s.Forget(types.UID(fmt.Sprint(i)))
		}
		s.registerIn("large", "new", "a")
		if n := s.watched("large"); n != 1 || s.watches.Len() != 2 {
			t.Errorf("after the pods were forgotten: %d watches, %d of the large namespace", s.watches.Len(), n)
		}
	})
}

// Objects that are too large together are not kept.
func TestKeptObjectsAreBounded(t *testing.T) {
	run(t, true, func(t *testing.T, s *storeTest) {
		large := names("large", 10)
		for _, name := range large {
			s.put(name, "1", strings.Repeat("x", maxKept/8))
		}
		s.put("grows", "1", "small")
		s.register("one", append(large, "grows")...)
		kept := func() (bytes int) {
			s.Store.mu.Lock()
			defer s.Store.mu.Unlock()
			for _, e := range s.entries {
				bytes += e.size
			}
			if bytes != s.kept["default"] {
				t.Errorf("%d bytes are counted, want %d", s.kept["default"], bytes)
			}
			return bytes
		}
		if n := kept(); n > maxKept || n < maxKept/2 {
			t.Errorf("%d bytes are kept, want about %d", n, maxKept)
		}
		before := s.watched("default")
		s.put("grows", "2", strings.Repeat("x", maxKept/4))
		s.want("an update that is too large", "one")
		s.register("one", append(large, "grows")...)
		if n := kept(); n > maxKept || s.watched("default") != before-1 {
			t.Errorf("%d bytes are kept by %d watches after an object has grown", n, s.watched("default"))
		}
		if got, err := s.Secret(t.Context(), "default", "grows"); err != nil || len(got.Data["k"]) != maxKept/4 {
			t.Errorf("an object that is too large to be kept: %v", err)
		}
		if err := s.api.CoreV1().Secrets("default").Delete(t.Context(), "large0", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		kept()
	})
}

// Few watches read their objects at a time, also if they are not answered.
func TestWatchesOpenInTurns(t *testing.T) {
	run(t, true, func(t *testing.T, s *storeTest) {
		s.held = make(chan struct{})
		s.register("one", names("a", 100)...)
		if n := s.lists.Load(); n != maxOpening {
			t.Errorf("%d objects are read at a time, want %d", n, maxOpening)
		}
		time.Sleep(maxOpenTime)
		synctest.Wait()
		if n := s.lists.Load(); n != 2*maxOpening {
			t.Errorf("%d objects are read after a while, want %d", n, 2*maxOpening)
		}
		close(s.held)
		synctest.Wait()
		if n := s.lists.Load(); n != 100 {
			t.Errorf("%d objects are read in the end, want 100", n)
		}
	})
}

// A process with little memory keeps less. Without memory for more, objects that no
// watch keeps are not read, and those that are kept can be used.
func TestShortage(t *testing.T) {
	if got := New(nil, true, Memory{Limit: 80 << 20}, nil).maxKept; got != 10<<20 {
		t.Errorf("of 80 MiB, %d bytes are kept", got)
	}
	run(t, true, func(t *testing.T, s *storeTest) {
		s.put("kept", "1", "1234")
		s.put("other", "1", "value")
		s.register("one", "kept")
		s.register("two", "kept")
		s.short = errors.New("the process uses 60 MiB of memory, and its limit is 64 MiB")
		if got, err := s.Secret(t.Context(), "default", "kept"); err != nil || string(got.Data["k"]) != "1234" {
			t.Errorf("an object that is kept: %v, %v", got, err)
		}
		for what, err := range map[string]error{
			`secrets "other"`:    func() error { _, err := s.Secret(t.Context(), "default", "other"); return err }(),
			`configmaps "other"`: func() error { _, err := s.ConfigMap(t.Context(), "default", "other"); return err }(),
		} {
			if want := what + " is not read, because the kubelet has no memory for it: " + s.short.Error(); err == nil || err.Error() != want {
				t.Errorf("%v, want %s", err, want)
			}
		}
		if one, none := s.Kept("one"), s.Kept("three"); one != 2 || none != 0 { // half of what two pods need: "k" and its value have 5 bytes
			t.Errorf("%d bytes are kept for a pod, and %d for another one", one, none)
		}
	})
}
