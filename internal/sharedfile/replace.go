// Package sharedfile is for files that several processes use: a reader sees
// the old content or the new one, and one writer at a time holds the lock.
//
// The supervisor uses it, so it imports only the standard library's small half.
package sharedfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Content is what Replace puts into a file, and how.
type Content struct {
	Data []byte
	Mode fs.FileMode // whatever the umask is
	// Durable content is on the disk when Replace returns, and survives a loss
	// of power.
	Durable bool
	// Owner is the user and the group that the file belongs to; nil is this
	// process's.
	Owner *Owner
}

// Owner is a user and a group.
type Owner struct{ UID, GID int }

// Replace puts content in place of a file, or makes it, in one step. After an
// error the file is as it was. A symbolic link is replaced, not followed.
func Replace(path string, content Content) error {
	f, err := create(path)
	if err != nil {
		return err
	}
	if err = content.fill(f); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, errors.Join(err, os.Remove(f.Name())))
	}
	if content.Durable {
		return syncDir(filepath.Dir(path))
	}
	return nil
}

// unfinished is between the name of a file and a number in the name of what is
// to be put in its place.
const unfinished = ".coracle-"

// create makes the file that is to be put in the place of another.
func create(path string) (*os.File, error) {
	return os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+unfinished+"*")
}

// Unfinished returns the name of the file that a Replace was to put another in
// place of, given the name of what it leaves when it is killed; ok is false for
// every other name.
func Unfinished(name string) (of string, ok bool) {
	hidden, isHidden := strings.CutPrefix(name, ".")
	i := strings.LastIndex(hidden, unfinished)
	if !isHidden || i <= 0 {
		return "", false
	}
	number := hidden[i+len(unfinished):]
	return hidden[:i], number != "" && strings.Trim(number, "0123456789") == ""
}

// RemoveUnfinished removes what each Replace of a file has left that was
// killed. Nobody may be replacing the file meanwhile.
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

// fill writes and closes a file.
func (c Content) fill(f *os.File) error {
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

// syncDir makes the names in a directory survive a loss of power.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
