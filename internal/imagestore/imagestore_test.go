package imagestore

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// stub returns a store whose client of containerd is a shell script.
func stub(t *testing.T, script string) *Store {
	t.Helper()
	program := filepath.Join(t.TempDir(), "ctr")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	s, err := Open("unix://"+filepath.Join(t.TempDir(), "none.sock"), program)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestLoad(t *testing.T) {
	for _, c := range []struct {
		name, script string
		want         []string
		err          string
	}{
		{name: "names", script: "cat >/dev/null; echo 'unpacking a.example/b:1 (sha256:12)...done'; echo 'unpacking c:2 (sha256:34)...done'", want: []string{"a.example/b:1", "c:2"}},
		{name: "no names", script: "cat >/dev/null", err: "save it by its name"},
		{name: "not an archive", script: "echo 'time=now level=warning msg=old' >&2; echo 'ctr: unexpected EOF' >&2; exit 1", err: "unexpected EOF: want the output of docker save"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := stub(t, c.script).load(t.Context(), strings.NewReader("archive"), "ID")
			if !slices.Equal(got, c.want) || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("Load = %q, %v; want %q, %q", got, err, c.want, c.err)
			}
		})
	}
}

// TestLoadRemovesItsOwn checks that a load that fails removes the images that it
// has added, but neither earlier images nor images that others add during the
// load.
func TestLoadRemovesItsOwn(t *testing.T) {
	dir := t.TempDir()
	// The images are lines of a file: a name and its labels.
	s := stub(t, `cd `+dir+` || exit 1
shift 5
case $1 in
import)
	cat >/dev/null
	own=
	while [ $# -gt 0 ]; do
		if [ "$1" = --label ]; then own="$own $2"; fi
		shift
	done
	echo pulled.example/meanwhile:1 io.cri-containerd.pinned=pinned coracle.internal/load=OTHER >>images
	sed -i "/^there:1/d" images
	echo there:1$own >>images
	echo own.example/damaged:1$own >>images
	echo 'ctr: failed to extract layer' >&2
	exit 1;;
ls)
	# labels."KEY"==VALUE
	filter=$(echo "$3" | sed 's/^labels\."\(.*\)"==\(.*\)$/\1=\2/')
	grep -e "$filter" images | cut -d' ' -f1;;
rm)
	echo "$2" >>removed;;
esac
`)
	if err := os.WriteFile(filepath.Join(dir, "images"), []byte("there:1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Load(t.Context(), strings.NewReader("archive")); err == nil || !strings.Contains(err.Error(), "failed to extract layer") {
		t.Errorf("Load: %v", err)
	}
	if removed, err := os.ReadFile(filepath.Join(dir, "removed")); err != nil || string(removed) != "own.example/damaged:1\n" {
		t.Errorf("removed %q (%v)", removed, err)
	}
}

// A runtime that does not run is named as the cause.
func TestRuntimeIsAway(t *testing.T) {
	s := stub(t, "exit 1")
	_, err := s.List(t.Context())
	if err == nil || !strings.HasPrefix(err.Error(), "the container runtime does not answer: ") {
		t.Errorf("List: %v", err)
	}
	if err := s.Save(t.Context(), &bytes.Buffer{}, "a:1"); err == nil || !strings.HasPrefix(err.Error(), "a:1: the container runtime does not answer: ") {
		t.Errorf("Save: %v", err)
	}
	if err := s.Remove(t.Context(), "Upper/Case"); err == nil || errors.Is(err, ErrNotFound) {
		t.Errorf("Remove of an impossible name: %v", err)
	}
}
