package manifests

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coracle-io/coracle/internal/sharedfile"
)

// write writes files below a directory.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestScanFindsManifests(t *testing.T) {
	dir := t.TempDir()
	first, second := filepath.Join(dir, "first"), filepath.Join(dir, "second")
	write(t, first, map[string]string{
		"b.yaml": "", "a.json": "", "c.yml": "", "README.md": "", ".hidden.yaml": "", "sub/deep/d.yaml": "", ".git/e.yaml": "", "off.yaml": "", "off.yaml.skip": "",
	})
	write(t, second, map[string]string{"a.yaml": ""})
	files, err := scan([]string{first, second, filepath.Join(dir, "missing")})
	var got []string
	for _, f := range files {
		name, err := filepath.Rel(dir, f.path)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, name)
	}
	if want := []string{"first/a.json", "first/b.yaml", "first/c.yml", "first/sub/deep/d.yaml", "second/a.yaml"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("found %q (%v), want %q", got, err, want)
	}
}

// A file that cannot be trusted or read is named, and does not hide the others.
func TestScanMistrusts(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"good.yaml": "", "open/other.yaml": "", "target": "", "fifo/x": ""})
	deep := strings.Repeat("d/", maxDepth+1)
	write(t, dir, map[string]string{deep + "x.yaml": ""})
	if err := errors.Join(os.Symlink("target", filepath.Join(dir, "link.yaml")), os.Mkdir(filepath.Join(dir, "folder.yaml"), 0o700), os.Chmod(filepath.Join(dir, "open"), 0o777)); err != nil {
		t.Fatal(err)
	}
	files, err := scan([]string{dir})
	if len(files) != 1 || files[0].path != filepath.Join(dir, "good.yaml") {
		t.Errorf("found %v", files)
	}
	for _, want := range []string{"link.yaml is a symbolic link", "open can be changed by other users", "nested more than"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	if err := os.Chmod(filepath.Join(dir, "good.yaml"), 0o666); err != nil {
		t.Fatal(err)
	}
	foreign := (*sharedfile.OwnershipError)(nil)
	if _, err := files[0].read(); !errors.As(err, &foreign) {
		t.Errorf("read a file that others can write: %v", err)
	}
}

// Manifests that might be overlooked are found or named.
func TestScanOverlooksNothing(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"UP.YAML": "", "mixed.Json": "", "elsewhere/x.txt": ""})
	if err := errors.Join(os.Symlink("elsewhere", filepath.Join(dir, "more")), os.Symlink("none", filepath.Join(dir, "README")), os.Symlink("elsewhere", filepath.Join(dir, ".hidden"))); err != nil {
		t.Fatal(err)
	}
	files, err := scan([]string{dir})
	if len(files) != 2 || err == nil || !strings.Contains(err.Error(), "more is a symbolic link") || strings.Count(err.Error(), "symbolic link") != 1 {
		t.Errorf("found %v (%v), want two files and the link", files, err)
	}
}

// Below a directory that only its owner can reach, the group may write.
func TestScanAcceptsTheGroupBelowAClosedDirectory(t *testing.T) {
	data := t.TempDir()
	dir := filepath.Join(data, "manifests")
	write(t, dir, map[string]string{"a.yaml": object("a"), "sub/b.yaml": object("b"), "sub/c.yaml": object("c")})
	for path, mode := range map[string]os.FileMode{"": 0o775, "a.yaml": 0o664, "sub": 0o775, "sub/b.yaml": 0o664, "sub/c.yaml": 0o666} {
		if err := os.Chmod(filepath.Join(dir, path), mode); err != nil {
			t.Fatal(err)
		}
	}
	for mode, want := range map[os.FileMode]string{0o700: "a.yaml sub/b.yaml", 0o755: ""} {
		if err := os.Chmod(data, mode); err != nil {
			t.Fatal(err)
		}
		files, err := scan([]string{dir})
		var read []string
		for _, f := range files {
			if _, err := f.read(); err == nil {
				name, _ := filepath.Rel(dir, f.path)
				read = append(read, name)
			}
		}
		if got := strings.Join(read, " "); got != want || (want == "") != (err != nil) {
			t.Errorf("below mode %v: %q are read (%v), want %q", mode, got, err, want)
		}
	}
}

func TestScanIsBounded(t *testing.T) {
	dir := t.TempDir()
	files := map[string]string{}
	for i := range maxFiles + 2 {
		files[string(rune('a'+i%26))+strings.Repeat("x", i/26)+".yaml"] = ""
	}
	write(t, dir, files)
	found, err := scan([]string{dir})
	if len(found) != maxFiles || err == nil || strings.Count(err.Error(), "more than") != 1 {
		t.Errorf("found %d files, error %v", len(found), err)
	}
	large := file{path: filepath.Join(dir, "large.yaml")}
	if err := errors.Join(os.WriteFile(large.path, nil, 0o600), os.Truncate(large.path, MaxSize+1)); err != nil {
		t.Fatal(err)
	}
	if _, err := large.read(); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("read a file that is too large: %v", err)
	}
}

func TestDecode(t *testing.T) {
	const head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: "
	for content, want := range map[string]string{
		"":                      "",
		"# nothing\n---\n---\n": "",
		head + "a}\n---\n" + head + "b, namespace: ns}\n":                                           "ConfigMap a, ConfigMap ns/b",
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"j"}}`:                            "ConfigMap j",
		"apiVersion: v1\nkind: List\nitems: null":                                                   "",
		"apiVersion: v1\nkind: ConfigMapList\nmetadata: {}":                                         "",
		"apiVersion: v1\nkind: List\nitems: []":                                                     "",
		"apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Secret, metadata: {name: s}}": "Secret s",
	} {
		objects, err := decode([]byte(content))
		var got []string
		for _, o := range objects {
			got = append(got, nameOf(o))
		}
		if err != nil || strings.Join(got, ", ") != want {
			t.Errorf("%q has %q (%v), want %q", content, got, err, want)
		}
	}
	for content, want := range map[string]string{
		head + "a}\n---\nnonsense": "document 2: want an object with apiVersion, kind and metadata",
		"kind: ConfigMap":          "document 1: apiVersion and kind: want both",
		"apiVersion: v1\nkind: Pod\nmetadata: {generateName: x}": "document 1: Pod: metadata.name: want a name",
		"apiVersion: v1\nkind: List\nitems: [{kind: Pod}]":       "document 1: items: each wants apiVersion and kind",
		"a: b: c": "document 1: ",
	} {
		if _, err := decode([]byte(content)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", content, err, want)
		}
	}
}
