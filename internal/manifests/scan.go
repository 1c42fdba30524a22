package manifests

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/coracle-io/coracle/internal/sharedfile"
)

// Bounds on what is read.
const (
	// MaxSize is the size of the largest file, in bytes.
	MaxSize = 16 << 20
	// maxFiles is the number of files in all directories.
	maxFiles = 1000
	// maxEntries is the number of names in one directory.
	maxEntries = 10000
	// maxDepth is how deep directories are nested.
	maxDepth = 8
)

// file is a manifest that was found.
type file struct {
	path  string
	stamp stamp
	// settled is set if the content has not changed for settleTime.
	settled bool
	// closed is set if only the owner of a directory above can reach it.
	closed bool
}

// settleTime is how long a file must not change before it is applied, unless a
// second scan finds it as it was.
const settleTime = 2 * time.Second

// stamp changes when the content of a file does.
type stamp struct {
	device, inode     uint64
	size              int64
	modified, changed syscall.Timespec
}

// read returns the content of a file that only this process's user and root can
// change.
func (f file) read() ([]byte, error) {
	read := sharedfile.ReadOwn
	if f.closed {
		read = sharedfile.ReadOwnBelow
	}
	raw, err := read(f.path, MaxSize)
	if errors.Is(err, sharedfile.ErrTooLarge) {
		return nil, errTooLarge()
	}
	if path := (*fs.PathError)(nil); errors.As(err, &path) {
		err = path.Err // the caller names the file
	}
	return raw, err
}

func errTooLarge() error {
	return fmt.Errorf("the file is larger than %d MiB: divide it into several", MaxSize>>20)
}

// scan returns the manifests in directories and below: files with the names of
// manifests that do not begin with a dot, and beside which there is no file with
// the same name and .skip at its end. The error names what could not be searched,
// and does not keep the rest from being found.
func scan(directories []string) ([]file, error) {
	s := &scanner{}
	for _, dir := range directories {
		s.closed = sharedfile.Closed(dir) || sharedfile.Closed(filepath.Dir(dir))
		if err := s.directory(dir, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.errs = append(s.errs, err)
		}
	}
	return s.files, errors.Join(s.errs...)
}

type scanner struct {
	files  []file
	errs   []error
	full   bool // maxFiles is reached, which is reported
	closed bool // only the owner of the directory, or of the one above, can reach the files
}

// directory adds the files of a directory, sorted by name.
func (s *scanner) directory(dir string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%s: directories are nested more than %d deep", dir, maxDepth)
	}
	entries, err := s.readDirectory(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch {
		case strings.HasPrefix(e.Name(), "."):
		case e.IsDir():
			if err := s.directory(path, depth+1); err != nil && !errors.Is(err, fs.ErrNotExist) {
				s.errs = append(s.errs, err)
			}
		case (isManifest(e.Name()) || linksToDirectory(path, e)) && !slices.ContainsFunc(entries, func(other fs.DirEntry) bool { return other.Name() == e.Name()+".skip" }):
			s.file(path, e)
		}
	}
	return nil
}

// readDirectory returns what is in a directory that only this process's user and
// root can change, sorted by name. It does not follow a link.
func (s *scanner) readDirectory(path string) ([]fs.DirEntry, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	check := sharedfile.CheckOwner
	if s.closed {
		check = sharedfile.CheckOwnerBelow
	}
	if err := check(path, info); err != nil {
		return nil, err
	}
	entries, err := f.ReadDir(maxEntries)
	if len(entries) == maxEntries {
		return nil, fmt.Errorf("%s: more than %d files are in one directory", path, maxEntries)
	}
	if errors.Is(err, io.EOF) { // it is empty
		return nil, nil
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, err
}

// file adds a manifest.
func (s *scanner) file(path string, e fs.DirEntry) {
	info, err := e.Info()
	if errors.Is(err, fs.ErrNotExist) { // it was removed since the directory was read
		return
	}
	switch {
	case err == nil && info.Mode()&fs.ModeSymlink != 0:
		err = fmt.Errorf("%s is a symbolic link, and links are not followed: copy what it leads to", path)
	case err == nil && !info.Mode().IsRegular():
		err = fmt.Errorf("%s is not a regular file", path)
	case err == nil && len(s.files) == maxFiles:
		if s.full {
			return
		}
		s.full = true
		err = fmt.Errorf("%s and what follows: there are more than %d files", path, maxFiles)
	}
	if err != nil {
		s.errs = append(s.errs, err)
		return
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		s.errs = append(s.errs, fmt.Errorf("%s: its state is unknown", path))
		return
	}
	s.files = append(s.files, file{
		path: path, stamp: stamp{st.Dev, st.Ino, st.Size, st.Mtim, st.Ctim}, settled: time.Since(info.ModTime()) >= settleTime, closed: s.closed,
	})
}

// isManifest reports whether a file has the name of a manifest.
func isManifest(name string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(name)))
}

// linksToDirectory reports whether a name is a link to a directory, which might
// have manifests.
func linksToDirectory(path string, e fs.DirEntry) bool {
	if e.Type()&fs.ModeSymlink == 0 {
		return false
	}
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
