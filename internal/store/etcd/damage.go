package etcd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// ErrDamaged says that trying again is in vain.
var ErrDamaged = errors.New("damaged")

// lockPatience is how long a database may be held by a process that ends.
const lockPatience = 5 * time.Second

// checkDatabase opens the database of a data directory, if there is one, and
// closes it again: etcd itself ends the whole process over a damaged one.
func checkDatabase(dir string) error {
	path := databaseFile(dir)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: lockPatience})
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return fmt.Errorf("the etcd database %s is in use by another process: stop that one, or choose another data directory", path)
	case err != nil:
		return fmt.Errorf("the etcd database %s is %w (%w): restore it from a copy, or choose another data directory", path, ErrDamaged, err)
	}
	return db.Close()
}
