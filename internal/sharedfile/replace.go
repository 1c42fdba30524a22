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
	dir, name := filepath.Split(path)
	dir = filepath.Clean(dir)
	f, err := os.CreateTemp(dir, "."+name+".*")
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
		return syncDir(dir)
	}
	return nil
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
