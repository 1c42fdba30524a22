package hostpath

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// A directory that a kubelet has made stays while a kubelet uses it, however that was
// started, and while something else is in it.
func TestRemoveMarks(t *testing.T) {
	const removed = "/data/removed/kubelet" // its files may stay
	root, target := t.TempDir(), filepath.Join(t.TempDir(), "target")
	gone := filepath.Join(root, "gone")
	for name, test := range map[string]struct {
		before []string // root directories, whose marks are there
		files  map[string]string
		want   []string // files that are left
	}{
		"no kubelet":       {files: map[string]string{MarkName: MarkText}},
		"the removed one":  {before: []string{removed}, files: map[string]string{MarkName: MarkText}},
		"one that is gone": {before: []string{removed, gone}, files: map[string]string{MarkName: MarkText}},
		"one that exists":  {before: []string{removed, gone, root}, files: map[string]string{MarkName: MarkText}, want: []string{MarkName, nameOf(root)}},
		"logs of others":   {before: []string{removed}, files: map[string]string{MarkName: MarkText, "x": "log"}, want: []string{MarkName, "x"}},
		"half a mark":      {files: map[string]string{MarkName: MarkText, nameOf(gone): useText + gone}, want: []string{MarkName, nameOf(gone)}},
		"half of its own":  {files: map[string]string{MarkName: MarkText, nameOf(removed): useText}},
		"no mark":          {files: map[string]string{MarkName: MarkText, usePrefix + "x": "x\n"}, want: []string{MarkName, usePrefix + "x"}},
		"a link":           {files: map[string]string{MarkName: MarkText, usePrefix + "link": ""}, want: []string{MarkName, usePrefix + "link"}},
		"made by others":   {before: []string{removed}, want: []string{nameOf(removed)}},
	} {
		dir := filepath.Join(t.TempDir(), "pods")
		err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(target, []byte(useText+gone+"\n"), 0o600))
		for _, root := range test.before {
			name, content := Mark(root)
			err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), content, 0o600))
		}
		for name, content := range test.files {
			if name == usePrefix+"link" {
				err = errors.Join(err, os.Symlink(target, filepath.Join(dir, name)))
				continue
			}
			err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := removeMarks(dir, []string{removed + "/"}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var left []string
		entries, err := os.ReadDir(dir)
		for _, e := range entries {
			left = append(left, e.Name())
		}
		if !slices.Equal(left, test.want) || os.IsNotExist(err) != (len(test.want) == 0) {
			t.Errorf("%s: left are %q (%v), want %q", name, left, err, test.want)
		}
	}
}

func nameOf(root string) string {
	name, _ := Mark(root)
	return name
}

// What is no directory is left alone, and so is nothing at all.
func TestRemoveMarksElsewhere(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	made := filepath.Join(dir, "made")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Mkdir(made, 0o755), os.WriteFile(filepath.Join(made, MarkName), nil, 0o600), os.Symlink(made, link)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, link, filepath.Join(dir, "missing")} {
		if err := removeMarks(path, nil); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	for _, path := range []string{file, link, filepath.Join(made, MarkName)} {
		if _, err := os.Lstat(path); err != nil {
			t.Error(err)
		}
	}
}

// Somebody who uses a directory that is being removed finds it marked as before.
func TestMarkIsRestored(t *testing.T) {
	dir := t.TempDir()
	at, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = at.Close() }()
	for range 2 {
		if err := restore(at); err != nil {
			t.Fatal(err)
		}
	}
	if raw, err := os.ReadFile(filepath.Join(dir, MarkName)); err != nil || string(raw) != MarkText {
		t.Errorf("the mark is %q (%v)", raw, err)
	}
}
