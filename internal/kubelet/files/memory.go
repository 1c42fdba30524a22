package files

import (
	"fmt"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/coracle-io/coracle/internal/beneath"
)

// Memory is a file system and a mount table in memory. It stores the modes of
// files but does not enforce them, and has no owners. The zero value is empty.
type Memory struct {
	mu       sync.Mutex // guards what follows
	nodes    map[string]node
	children map[string]map[string]bool // paths directly in a directory
	mounts   map[string]string
	shared   map[string]bool // mount points
	devices  int             // how many were made
}

type node struct {
	mode   fs.FileMode
	device int // distinguishes block devices
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
		m.nodes, m.children = make(map[string]node), make(map[string]map[string]bool)
	}
	path = filepath.Clean(path)
	if _, ok := m.nodes[path]; !ok {
		dir := filepath.Dir(path)
		if m.children[dir] == nil {
			m.children[dir] = make(map[string]bool)
		}
		m.children[dir][path] = true
	}
	m.nodes[path] = n
}

// remove removes one node.
func (m *Memory) remove(path string) {
	delete(m.nodes, path)
	dir := filepath.Dir(path)
	delete(m.children[dir], path)
	if len(m.children[dir]) == 0 {
		delete(m.children, dir)
	}
}

// tree returns path and everything below it, as far as it is there, what is
// below a directory before it.
func (m *Memory) tree(path string) []string {
	var out []string
	for child := range m.children[path] {
		if child != path { // the root is in itself
			out = append(out, m.tree(child)...)
		}
	}
	if _, ok := m.nodes[path]; ok {
		out = append(out, path)
	}
	return out
}

// maxHops is how many symbolic links of a path are followed, as in Linux.
const maxHops = 40

// checkParent returns an error unless path is in an existing directory. m.mu is
// held.
func (m *Memory) checkParent(op, path string) error {
	dir := m.resolve(filepath.Dir(path))
	if n, ok := m.nodes[dir]; dir != "/" && (!ok || !n.mode.IsDir()) {
		return missing(op, path)
	}
	return nil
}

// resolve follows the symbolic links in every element of path, at most maxHops
// of them. m.mu is held.
func (m *Memory) resolve(path string) string {
	path = filepath.Clean(path)
	done := "/"
	rest := strings.Split(strings.TrimPrefix(path, "/"), "/")
	for hops := 0; len(rest) > 0; {
		next := filepath.Join(done, rest[0])
		rest = rest[1:]
		if n, ok := m.nodes[next]; ok && n.mode&fs.ModeSymlink != 0 && hops < maxHops {
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
	path = m.resolve(path)
	for p := path; p != "/"; p = filepath.Dir(p) {
		if n, ok := m.nodes[p]; ok && !n.mode.IsDir() {
			return &fs.PathError{Op: "mkdir", Path: p, Err: syscall.ENOTDIR}
		}
	}
	for p := path; p != "/"; p = filepath.Dir(p) {
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
	if err := m.checkParent("open", path); err != nil {
		return err
	}
	n := node{mode: perm, data: slices.Clone(data)}
	if isBlockDevice(perm) {
		m.devices++
		n.device = m.devices
	}
	m.put(m.resolve(path), n)
	return nil
}

// ReadFile implements FS.
func (m *Memory) ReadFile(path string, limit int64) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, ok := m.nodes[m.resolve(path)]
	if !ok {
		return nil, missing("open", path)
	}
	if !n.mode.IsRegular() {
		return nil, &fs.PathError{Op: "open", Path: path, Err: ErrNotRegular}
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
	if err != nil {
		return nil, err
	}
	return raw[max(int64(len(raw))-limit, 0):], nil
}

// MakeMarked implements FS.
func (m *Memory) MakeMarked(dir, name string, data []byte) error {
	if err := m.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return m.WriteFile(filepath.Join(dir, name), data, 0o644)
}

// AddMark implements FS.
func (m *Memory) AddMark(dir, name string, data []byte) error {
	return m.WriteFile(filepath.Join(dir, name), data, 0o644)
}

// Replace implements FS.
func (m *Memory) Replace(path string, data []byte, perm fs.FileMode) error {
	return m.WriteFile(path, data, perm)
}

// ReplaceUnsynced implements FS.
func (m *Memory) ReplaceUnsynced(path string, data []byte, perm fs.FileMode) error {
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
	if err := m.checkParent("rename", to); err != nil {
		return err
	}
	m.drop(to)
	for _, path := range m.tree(from) {
		n := m.nodes[path]
		m.remove(path)
		m.put(to+strings.TrimPrefix(path, from), n)
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
	if err := m.checkParent("symlink", path); err != nil {
		return err
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
	if n.mode&fs.ModeSymlink == 0 {
		return "", &fs.PathError{Op: "readlink", Path: path, Err: fs.ErrInvalid}
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

// HoldDevice implements FS. Each block device that is written is another one.
func (m *Memory) HoldDevice(path string) (string, io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, ok := m.nodes[m.resolve(path)]
	if !ok {
		return "", nil, missing("open", path)
	}
	if !isBlockDevice(n.mode) {
		return "", nil, &fs.PathError{Op: "open", Path: path, Err: ErrNotBlockDevice}
	}
	return fmt.Sprint(n.device), io.NopCloser(nil), nil
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
	if n, ok := m.nodes[dir]; !ok {
		return nil, missing("open", path)
	} else if !n.mode.IsDir() {
		return nil, &fs.PathError{Op: "open", Path: path, Err: syscall.ENOTDIR}
	}
	var out []string
	for p := range m.children[dir] {
		out = append(out, filepath.Base(p))
	}
	slices.Sort(out)
	return out, nil
}

func (m *Memory) drop(path string) {
	for _, p := range m.tree(path) {
		m.remove(p)
	}
}

// Remove implements FS.
func (m *Memory) Remove(path string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	path = filepath.Clean(path)
	if _, ok := m.nodes[path]; !ok {
		return missing("remove", path)
	}
	if len(m.children[path]) > 0 {
		return &fs.PathError{Op: "remove", Path: path, Err: syscall.ENOTEMPTY}
	}
	m.remove(path)
	return nil
}

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

// Group implements FS. Files in memory have no groups.
func (m *Memory) Group(path string) (int, error) {
	_, err := m.Stat(path)
	return 0, err
}

// Share implements FS.
func (m *Memory) Share(root string, _ int, readOnly bool, visited func()) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.tree(root) {
		if visited != nil {
			visited()
		}
		if n := m.nodes[p]; n.mode&fs.ModeSymlink == 0 {
			mode := shared(uint32(n.mode.Perm()), n.mode.IsDir(), readOnly)
			n.mode |= fs.FileMode(mode & 0o777)
			m.nodes[p] = n
		}
	}
	return nil
}

// Shared implements FS. Files in memory have no groups.
func (m *Memory) Shared(root string, _ int, readOnly bool) (bool, error) {
	mode, err := m.Stat(root)
	if err != nil {
		return false, err
	}
	bits := uint32(mode.Perm())
	return shared(bits, mode.IsDir(), readOnly)&0o777 == bits, nil
}

// Usage implements FS.
func (m *Memory) Usage(path string) (bytes, inodes int64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.tree(path) {
		bytes += int64(len(m.nodes[p].data))
		inodes++
	}
	return bytes, inodes, nil
}

// Sockets implements FS. There are no sockets in memory.
func (m *Memory) Sockets(string, int) ([]Socket, error) { return nil, nil }

// Watch implements FS. It never reports a change.
func (m *Memory) Watch(string) (<-chan struct{}, func()) { return nil, func() {} }

// Mount implements Mounter.
func (m *Memory) Mount(source, target, _ string, options []string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if slices.Equal(options, []string{"shared"}) {
		if _, mounted := m.mounts[target]; !mounted {
			return &fs.PathError{Op: "mount", Path: target, Err: syscall.EINVAL}
		}
		if m.shared == nil {
			m.shared = make(map[string]bool)
		}
		m.shared[target] = true
		return nil
	}
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
	delete(m.shared, target)
	return nil
}

// Below implements Mounter.
func (m *Memory) Below(path string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []string
	for target := range m.mounts {
		if _, is := beneath.Rel(path, target); is {
			out = append(out, target)
		}
	}
	slices.SortFunc(out, func(a, b string) int { return len(b) - len(a) })
	return out, nil
}

// IsMountPoint implements Mounter.
func (m *Memory) IsMountPoint(path string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, mounted := m.mounts[path]
	return mounted, nil
}

// IsShared implements Mounter.
func (m *Memory) IsShared(path string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for {
		if _, mounted := m.mounts[path]; mounted || path == "/" {
			return m.shared[path], nil
		}
		path = filepath.Dir(path)
	}
}
