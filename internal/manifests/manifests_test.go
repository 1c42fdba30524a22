package manifests

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	_ "github.com/coracle-io/coracle/internal/bubble"
)

// object is a manifest of one object.
func object(name string) string {
	return "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\n"
}

// server is an API server that takes as long as a name says, and then fails if it
// has taken any time.
type server struct {
	takes map[string]time.Duration
	calls []string // names, in order
}

func (*server) reset() {}

func (s *server) apply(_ context.Context, o *unstructured.Unstructured) error {
	s.calls = append(s.calls, o.GetName())
	if takes := s.takes[o.GetName()]; takes > 0 {
		time.Sleep(takes)
		return errors.New("the webhook does not answer")
	}
	return nil
}

// newWorker returns a worker for the files in a directory, and what it has reported
// last.
func newWorker(dir string, s *server) (w *worker, reported *[]string) {
	reported = &[]string{}
	return &worker{directories: []string{dir}, states: map[string]*state{}, objects: s, report: func(err error) {
		text := ""
		if err != nil {
			text = err.Error()
		}
		*reported = append(*reported, text)
	}}, reported
}

// age sets the time of the last change of a file to one that is past.
func age(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		past := time.Now().Add(-time.Hour)
		if err := os.Chtimes(filepath.Join(dir, name), past, past); err != nil {
			t.Fatal(err)
		}
	}
}

// The first half of a file is not applied: the server would remove from an object
// the fields that are still to come.
func TestFilesAreWholeBeforeTheyAreApplied(t *testing.T) {
	dir, s := t.TempDir(), &server{}
	w, _ := newWorker(dir, s)
	write(t, dir, map[string]string{"young.yaml": object("first"), "old.yaml": object("old")})
	age(t, dir, "old.yaml")
	w.sync(t.Context())
	write(t, dir, map[string]string{"young.yaml": object("first") + object("second")})
	w.sync(t.Context())
	if want := []string{"old"}; !slices.Equal(s.calls, want) {
		t.Errorf("applied %q, want %q", s.calls, want)
	}
	w.sync(t.Context())
	if want := []string{"old", "first", "second"}; !slices.Equal(s.calls, want) {
		t.Errorf("applied %q, want %q", s.calls, want)
	}
}

// A file is applied again if its content has changed, not if it was written again.
func TestSameContentIsAppliedOnce(t *testing.T) {
	dir, s := t.TempDir(), &server{}
	w, reported := newWorker(dir, s)
	for _, content := range []string{object("a"), object("a"), "nonsense", object("a")} {
		write(t, dir, map[string]string{"a.yaml": content})
		w.sync(t.Context())
		w.sync(t.Context())
	}
	if want := []string{"a", "a"}; !slices.Equal(s.calls, want) {
		t.Errorf("applied %q, want %q: the second after another content", s.calls, want)
	}
	if last := (*reported)[len(*reported)-1]; last != "" {
		t.Errorf("reported %q", last)
	}
}

// A webhook that does not answer delays its file, not the others, and is reported
// before they are applied.
func TestSlowFilesDoNotDelayOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, s := t.TempDir(), &server{takes: map[string]time.Duration{"hangs": applyTimeout, "hangs-too": applyTimeout}}
		w, reported := newWorker(dir, s)
		write(t, dir, map[string]string{"1.yaml": object("hangs") + object("behind"), "2.yaml": object("hangs-too"), "3.yaml": object("well")})
		age(t, dir, "1.yaml", "2.yaml", "3.yaml")
		w.sync(t.Context())
		if want := []string{"hangs", "hangs-too", "well"}; !slices.Equal(s.calls, want) {
			t.Errorf("applied %q, want %q", s.calls, want)
		}
		if first := (*reported)[0]; !strings.Contains(first, "1.yaml: ConfigMap hangs: the webhook does not answer") || !strings.Contains(first, "the 1 objects after it in the file wait") {
			t.Errorf("reported %q first", first)
		}

		// Both are due again. A new file comes first, and waits for one at most.
		time.Sleep(maxRetry)
		s.calls = nil
		write(t, dir, map[string]string{"4.yaml": object("new")})
		age(t, dir, "4.yaml")
		w.sync(t.Context())
		if want := []string{"new", "hangs"}; !slices.Equal(s.calls, want) {
			t.Errorf("applied %q, want %q", s.calls, want)
		}
		s.takes, s.calls = nil, nil
		w.sync(t.Context())
		time.Sleep(maxRetry)
		w.sync(t.Context())
		if want := []string{"hangs-too", "hangs", "behind"}; !slices.Equal(s.calls, want) {
			t.Errorf("applied %q, want %q", s.calls, want)
		}
		if last := (*reported)[len(*reported)-1]; last != "" {
			t.Errorf("reported %q", last)
		}
	})
}
