package volume

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/coracle-io/coracle/internal/kubelet/files"
)

const (
	dataLink    = "..data"
	newDataLink = "..data_tmp"
)

// write replaces the files of dir atomically: it writes a new version and then
// renames a symbolic link to it. own, if not nil, is called before the new
// version is visible. Directories with the mount points of nested are kept. write
// reports whether the content changed.
func (v *Manager) write(dir string, payload map[string]file, nested []string, own func() error) (changed bool, err error) {
	if err := v.FS.MkdirAll(dir, 0o777); err != nil {
		return false, err
	}
	link := filepath.Join(dir, dataLink)
	old, err := v.FS.Readlink(link)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("read link %s: %w", link, err)
	}
	if old != "" && v.same(filepath.Join(dir, old), payload) {
		return false, v.links(dir, old, payload, nested)
	}
	version := ".." + time.Now().UTC().Format("2006_01_02_15_04_05.000000000")
	root := filepath.Join(dir, version)
	if err := v.FS.MkdirAll(root, 0o755); err != nil {
		return false, err
	}
	for _, path := range slices.Sorted(maps.Keys(payload)) {
		full := filepath.Join(root, path)
		if err := v.FS.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			return false, err
		}
		if err := v.FS.WriteFile(full, payload[path].data, payload[path].mode); err != nil {
			return false, err
		}
		if uid := payload[path].uid; uid != nil {
			if err := v.FS.Lchown(full, int(*uid), -1); err != nil {
				return false, err
			}
		}
	}
	if own != nil {
		if err := own(); err != nil {
			return false, err
		}
	}
	temporary := filepath.Join(dir, newDataLink)
	if err := v.FS.RemoveAll(temporary); err != nil {
		return false, err
	}
	if err := v.FS.Symlink(version, temporary); err != nil {
		return false, err
	}
	if err := v.FS.Rename(temporary, link); err != nil {
		return false, err
	}
	return true, v.links(dir, version, payload, nested)
}

// links creates the names that users see, each with the owner of its file, or of
// the first file below it. It removes other names and earlier versions, including
// what an interrupted write left, but no directories with mount points: that would
// unmount what containers have there.
func (v *Manager) links(dir, version string, payload map[string]file, nested []string) error {
	wanted, kept, owners := map[string]bool{}, map[string]bool{}, map[string]*int64{}
	for _, path := range slices.Backward(slices.Sorted(maps.Keys(payload))) {
		top, _, _ := strings.Cut(path, "/")
		wanted[top], owners[top] = true, payload[path].uid
	}
	for _, path := range nested {
		top, _, _ := strings.Cut(path, "/")
		kept[top] = !wanted[top]
	}
	names, err := v.FS.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		switch {
		case name == dataLink, name == version, wanted[name]:
		case kept[name] && isDirectory(v.FS, filepath.Join(dir, name)):
		case strings.HasPrefix(name, ".."):
			if err := v.FS.RemoveAll(filepath.Join(dir, name)); err != nil {
				return err
			}
		default:
			if err := v.FS.Remove(filepath.Join(dir, name)); err != nil {
				return err
			}
		}
		delete(wanted, name)
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		link := filepath.Join(dir, name)
		if err := v.FS.Symlink(filepath.Join(dataLink, name), link); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if uid := owners[name]; uid != nil {
			if err := v.FS.Lchown(link, int(*uid), -1); err != nil {
				return err
			}
		}
	}
	return nil
}

func isDirectory(disk files.FS, path string) bool {
	mode, err := disk.Lstat(path)
	return err == nil && mode.IsDir()
}

// same reports whether the version in dir has exactly the given files.
func (v *Manager) same(dir string, payload map[string]file) bool {
	found := 0
	var walk func(rel string) bool
	walk = func(rel string) bool {
		names, err := v.FS.ReadDir(filepath.Join(dir, rel))
		if err != nil {
			return false
		}
		for _, name := range names {
			path := filepath.Join(rel, name)
			mode, err := v.FS.Lstat(filepath.Join(dir, path))
			if err != nil {
				return false
			}
			if mode.IsDir() {
				if !walk(path) {
					return false
				}
				continue
			}
			want, ok := payload[path]
			data, err := v.FS.ReadBeneath(dir, path, int64(len(want.data)))
			if !ok || err != nil || !bytes.Equal(data, want.data) {
				return false
			}
			found++
		}
		return true
	}
	return walk("") && found == len(payload)
}
