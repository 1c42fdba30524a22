// Package sharedfile handles files that several processes use: a reader sees
// the old content or the new one, and one writer at a time holds the lock.
//
// The supervisor uses it, so that it imports only small packages of the
// standard library.
package sharedfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Content is the new content of a file for Replace.
type Content struct {
	Data []byte
	Mode fs.FileMode // the umask does not apply
	// Durable makes Replace return only when the content is on the disk, where
	// it survives a loss of power.
	Durable bool
	// Owner is the owner of the file; nil is this process's user and group.
	Owner *Owner
}

// Owner is a user and a group.
type Owner struct{ UID, GID int }

// Replace replaces or creates a file in one step. After an error the file is
// unchanged. A symbolic link is replaced, not followed.
func Replace(path string, content Content) error {
	f, err := create(path)
	if err != nil {
		return err
	}
	if err = content.writeAndClose(f); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, errors.Join(err, os.Remove(f.Name())))
	}
	if content.Durable {
		return SyncDir(filepath.Dir(path))
	}
	return nil
}

// unfinished is the infix in the name of a file that will replace another: it
// follows that one's name and precedes a number.
const unfinished = ".coracle-"

// create creates the file that will replace another.
func create(path string) (*os.File, error) {
	return os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+unfinished+"*")
}

// Unfinished returns the name of the file that a killed Replace was to replace,
// given the name of the file that it has left. ok is false for other names.
func Unfinished(name string) (of string, ok bool) {
	hidden, isHidden := strings.CutPrefix(name, ".")
	i := strings.LastIndex(hidden, unfinished)
	if !isHidden || i <= 0 {
		return "", false
	}
	number := hidden[i+len(unfinished):]
	return hidden[:i], number != "" && strings.Trim(number, "0123456789") == ""
}

// RemoveUnfinished removes what killed calls of Replace for a file have left.
// No Replace of the file may run at the same time.
func RemoveUnfinished(path string) error {
	dir, name := filepath.Split(path)
	entries, err := os.ReadDir(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if of, ok := Unfinished(e.Name()); ok && of == name && e.Type().IsRegular() {
			err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// writeAndClose writes and closes a file.
func (c Content) writeAndClose(f *os.File) error {
	_, err := f.Write(c.Data)
	err = errors.Join(err, f.Chmod(c.Mode))
	if c.Owner != nil {
		err = errors.Join(err, f.Chown(c.Owner.UID, c.Owner.GID))
	}
	if c.Durable {
		err = errors.Join(err, f.Sync())
	}
	return errors.Join(err, f.Close())
}

// SyncDir makes the names in a directory durable. Its errors name the directory.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
