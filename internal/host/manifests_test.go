package host

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// manifestsOf returns manifests with names as their contents.
func manifestsOf(names ...string) []Manifest {
	var all []Manifest
	for _, name := range names {
		all = append(all, Manifest{Name: name, Content: []byte(name)})
	}
	return all
}

// copies returns the names of the copies of manifests in a data directory, without
// their numbers.
func copies(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, configManifestsName))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if e.Name() != manifestsLock {
			_, name, _ := strings.Cut(e.Name(), "-")
			names = append(names, name)
		}
	}
	return names
}

func TestManifestsOfAConfigurationAreReplaced(t *testing.T) {
	dir := t.TempDir()
	for _, names := range [][]string{{"a.yaml", "b.yaml"}, {"b.yaml"}, {}} {
		if err := KeepManifests(t.Context(), dir, manifestsOf(names...)); err != nil {
			t.Fatal(err)
		}
		if got := copies(t, dir); !slices.Equal(got, names) {
			t.Errorf("the directory has %q, want %q", got, names)
		}
	}
}

// A file with the same content stays, so that it is not applied again and a full
// disk does not matter.
func TestSameManifestsStay(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, configManifestsName, "0000-a.yaml")
	var before os.FileInfo
	for range 2 {
		if err := KeepManifests(t.Context(), dir, manifestsOf("a.yaml")); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if before != nil && !os.SameFile(before, info) {
			t.Error("the file was replaced by one with the same content")
		}
		before = info
	}
}

func TestChangedManifestsAreWithdrawn(t *testing.T) {
	dir := t.TempDir()
	if err := KeepManifests(t.Context(), dir, manifestsOf("a.yaml", "b.yaml", "c.yaml")); err != nil {
		t.Fatal(err)
	}
	now := manifestsOf("a.yaml", "b.yaml", "d.yaml")
	now[1].Content = []byte("changed")
	if err := WithdrawManifests(t.Context(), dir, now); err != nil {
		t.Fatal(err)
	}
	if got := copies(t, dir); !slices.Equal(got, []string{"a.yaml"}) {
		t.Errorf("the directory has %q, want the unchanged one", got)
	}
}

// Of two sets that are stored at once, one is there afterwards, whole.
func TestManifestsAreReplacedByOneAtATime(t *testing.T) {
	dir := t.TempDir()
	sets := [][]string{nil, nil}
	for i := range 20 {
		for j := range sets {
			sets[j] = append(sets[j], fmt.Sprintf("%c%02d.yaml", 'a'+j, i))
		}
	}
	for range 10 {
		var both sync.WaitGroup
		for _, set := range sets {
			both.Go(func() {
				if err := KeepManifests(t.Context(), dir, manifestsOf(set...)); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
		if got := copies(t, dir); !slices.Equal(got, sets[0]) && !slices.Equal(got, sets[1]) {
			t.Fatalf("the directory has %q", got)
		}
	}
}
