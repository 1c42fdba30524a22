package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// maxListed bounds the names that Sockets looks at.
const maxListed = 4096

// Sockets implements FS. It looks at maxListed names, starting with the upper
// directories.
func (OS) Sockets(path string, limit int) ([]Socket, error) {
	var found []Socket
	seen := 0
	for pending := []string{path}; len(pending) > 0 && seen < maxListed && len(found) < limit; pending = pending[1:] {
		names, err := listNames(pending[0], maxListed-seen)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return found, err
		}
		seen += len(names)
		for _, name := range names {
			if strings.HasPrefix(name, ".") {
				continue
			}
			at := filepath.Join(pending[0], name)
			var st unix.Stat_t
			if err := unix.Lstat(at, &st); err != nil {
				continue // it was removed since the directory was read
			}
			switch st.Mode & unix.S_IFMT {
			case unix.S_IFDIR:
				pending = append(pending, at)
			case unix.S_IFSOCK:
				if len(found) < limit {
					found = append(found, Socket{at, fmt.Sprint(st.Dev, st.Ino, st.Mtim.Sec, st.Mtim.Nsec)})
				}
			}
		}
	}
	return found, nil
}

// listNames returns names in a directory, at most limit of them.
func listNames(dir string, limit int) ([]string, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	names, err := f.Readdirnames(limit)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return names, err
}
