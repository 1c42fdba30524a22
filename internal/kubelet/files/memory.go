package files

import (
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Memory is a file system and mount table in memory. It knows no owners and
// no permissions beyond remembering the mode. The zero value is empty.
type Memory struct {
	mu     sync.Mutex // guards nodes and mounts
	nodes  map[string]node
	mounts map[string]string
}

type node struct {
	mode   fs.FileMode
	data   []byte
	target string
}

var (
	_ FS      = (*Memory)(nil)
	_ Mounter = (*Memory)(nil)
)

func missing(op, path string) error { return &fs.PathError{Op: op, Path: path, Err: fs.ErrNotExist} }

func (m *Memory) put(path string, n node) {
	if m.nodes == nil {
		m.nodes = make(map[string]node)
	}
	m.nodes[filepath.Clean(path)] = n
}

// resolve follows links in every element of path, with the lock held.
func (m *Memory) resolve(path string) string {
	path = filepath.Clean(path)
	done := "/"
	rest := strings.Split(strings.TrimPrefix(path, "/"), "/")
	for hops := 0; len(rest) > 0; {
		next := filepath.Join(done, rest[0])
		rest = rest[1:]
		if n, ok := m.nodes[next]; ok && n.mode&fs.ModeSymlink != 0 && hops < 40 {
			hops++
			target := n.target
			if !filepath.IsAbs(target) {
				target = filepath.Join(done, target)
			}
			rest = append(strings.Split(strings.TrimPrefix(target, "/"), "/"), rest...)
			done = "/"
			continue
		}
		done = next
	}
	return done
}

// MkdirAll implements FS.
func (m *Memory) MkdirAll(path string, perm fs.FileMode) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for p := m.resolve(path); p != "/"; p = filepath.Dir(p) {
		if _, ok := m.nodes[p]; !ok {
			m.put(p, node{mode: perm | fs.ModeDir})
		}
	}
	return nil
}

// WriteFile implements FS.
func (m *Memory) WriteFile(path string, data []byte, perm fs.FileMode) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.put(m.resolve(path), node{mode: perm, data: slices.Clone(data)})
	return nil
}

// ReadFile implements FS.
func (m *Memory) ReadFile(path string, limit int64) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, ok := m.nodes[m.resolve(path)]
	if !ok || n.mode.IsDir() {
		return nil, missing("open", path)
	}
	if int64(len(n.data)) > limit {
		return nil, fmt.Errorf("read %s: %w: more than %d bytes", path, ErrTooLarge, limit)
	}
	return slices.Clone(n.data), nil
}

// ReadBeneath implements FS.
func (m *Memory) ReadBeneath(root, path string, limit int64) ([]byte, error) {
	m.mu.Lock()
	at := m.resolve(filepath.Join(root, path))
	_, ok := Beneath(m.resolve(root), at)
	m.mu.Unlock()
	if !ok {
		return nil, missing("open", path)
	}
	return m.ReadFile(at, limit)
}

// TailBeneath implements FS.
func (m *Memory) TailBeneath(root, path string, limit int64) ([]byte, error) {
	raw, err := m.ReadBeneath(root, path, math.MaxInt64)
	return raw[max(int64(len(raw))-limit, 0):], err
}

// Replace implements FS.
func (m *Memory) Replace(path string, data []byte, perm fs.FileMode) error {
	return m.WriteFile(path, data, perm)
}

// Rename implements FS.
func (m *Memory) Rename(from, to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	from, to = filepath.Clean(from), filepath.Clean(to)
	if _, ok := m.nodes[from]; !ok {
		return missing("rename", from)
	}
	m.drop(to)
	for path, n := range m.nodes {
		if path == from || strings.HasPrefix(path, from+"/") {
			delete(m.nodes, path)
			m.put(to+strings.TrimPrefix(path, from), n)
		}
	}
	return nil
}

// Symlink implements FS.
func (m *Memory) Symlink(target, path string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.nodes[filepath.Clean(path)]; ok {
		return &fs.PathError{Op: "symlink", Path: path, Err: fs.ErrExist}
	}
	m.put(path, node{mode: fs.ModeSymlink | 0o777, target: target})
	return nil
}

// Readlink implements FS.
func (m *Memory) Readlink(path string) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, ok := m.nodes[filepath.Clean(path)]
	if !ok {
		return "", missing("readlink", path)
	}
	return n.target, nil
}

// Stat implements FS.
func (m *Memory) Stat(path string) (fs.FileMode, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, ok := m.nodes[m.resolve(path)]
	if !ok {
		return 0, missing("stat", path)
	}
	return n.mode, nil
}

// Lstat implements FS.
func (m *Memory) Lstat(path string) (fs.FileMode, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, ok := m.nodes[filepath.Clean(path)]
	if !ok {
		return 0, missing("lstat", path)
	}
	return n.mode, nil
}

// ReadDir implements FS.
func (m *Memory) ReadDir(path string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir := m.resolve(path)
	if n, ok := m.nodes[dir]; !ok || !n.mode.IsDir() {
		return nil, missing("open", path)
	}
	var out []string
	for p := range m.nodes {
		if filepath.Dir(p) == dir {
			out = append(out, filepath.Base(p))
		}
	}
	slices.Sort(out)
	return out, nil
}

func (m *Memory) drop(path string) {
	for p := range m.nodes {
		if p == path || strings.HasPrefix(p, path+"/") {
			delete(m.nodes, p)
		}
	}
}

// Remove implements FS.
func (m *Memory) Remove(path string) error { return m.RemoveAll(path) }

// RemoveAll implements FS.
func (m *Memory) RemoveAll(path string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drop(filepath.Clean(path))
	return nil
}

// Chmod implements FS.
func (m *Memory) Chmod(path string, mode fs.FileMode) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := m.resolve(path)
	n, ok := m.nodes[at]
	if !ok {
		return missing("chmod", path)
	}
	n.mode = n.mode&fs.ModeType | mode
	m.nodes[at] = n
	return nil
}

// Lchown implements FS.
func (m *Memory) Lchown(string, int, int) error { return nil }

// Share implements FS.
func (m *Memory) Share(root string, _ int, readOnly bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for p, n := range m.nodes {
		if (p == root || strings.HasPrefix(p, root+"/")) && n.mode&fs.ModeSymlink == 0 {
			mode := shared(uint32(n.mode.Perm()), n.mode.IsDir(), readOnly)
			n.mode |= fs.FileMode(mode & 0o777)
			m.nodes[p] = n
		}
	}
	return nil
}

// Usage implements FS.
func (m *Memory) Usage(path string) (bytes, inodes int64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for p, n := range m.nodes {
		if p == path || strings.HasPrefix(p, path+"/") {
			bytes += int64(len(n.data))
			inodes++
		}
	}
	return bytes, inodes, nil
}

// Watch implements FS: it never tells.
func (m *Memory) Watch(string) (<-chan struct{}, func()) { return nil, func() {} }

// Mount implements Mounter.
func (m *Memory) Mount(source, target, _ string, _ []string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mounts == nil {
		m.mounts = make(map[string]string)
	}
	m.mounts[target] = source
	return nil
}

// BindBeneath implements Mounter.
func (m *Memory) BindBeneath(root, sub, target string, _ bool) error {
	return m.Mount(filepath.Join(root, sub), target, "", nil)
}

// Unmount implements Mounter.
func (m *Memory) Unmount(target string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.mounts, target)
	return nil
}

// Below implements Mounter.
func (m *Memory) Below(path string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []string
	for target := range m.mounts {
		if target == path || strings.HasPrefix(target, path+"/") {
			out = append(out, target)
		}
	}
	slices.SortFunc(out, func(a, b string) int { return len(b) - len(a) })
	return out, nil
}
