package etcd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/coracle-io/coracle/internal/supervise"
)

// ErrDamaged says that trying again is in vain.
var ErrDamaged = errors.New("damaged")

// damage says that a file does not hold what was written to it, and how to mend
// that. A file that the machine could not read, as for want of memory or of open
// files, may be whole, and is worth another try.
func damage(what, path string, err error, mend string) error {
	if number := syscall.Errno(0); errors.As(err, &number) {
		return fmt.Errorf("cannot read the etcd %s %s: %w", what, path, err)
	}
	return fmt.Errorf("the etcd %s %s is %w (%w): %s", what, path, ErrDamaged, err, mend)
}

// lockPatience is how long a database may be held by a process that ends.
const lockPatience = 5 * time.Second

// checkFiles names the damage of a data directory, which etcd would end the
// whole process over, or wait for ever. A directory without a database is new.
func checkFiles(c Config) error {
	applied, err := checkDatabase(databaseFile(c.Dir))
	if err != nil {
		return err
	}
	return checkLog(logFolder(c.Dir), applied, c.PeerURL == "")
}

// checkDatabase opens a database, if there is one, and closes it again. It
// returns the index of the last entry of the log that the database has; 0 is
// none.
func checkDatabase(path string) (applied uint64, err error) {
	damaged := func(err error) error {
		return damage("database", path, err, "restore it from a copy, or choose another data directory")
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		snapshots, err := fileutil.ReadDir(filepath.Dir(path), fileutil.WithExt(".snap"))
		switch {
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return 0, damaged(err)
		case len(snapshots) > 0:
			return 0, damaged(errGone)
		}
		return 0, nil
	case err == nil && info.Size() == 0:
		return 0, damaged(errEmpty)
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: lockPatience})
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return 0, fmt.Errorf("the etcd database %s is in use by another process: stop that one, or choose another data directory", path)
	case err != nil:
		return 0, damaged(err)
	}
	defer func() { _ = db.Close() }()
	err = supervise.Call(func() error { // bbolt panics over what it cannot read
		return db.View(func(tx *bbolt.Tx) (err error) {
			applied, err = readApplied(tx)
			return err
		})
	})
	if err != nil {
		return 0, damaged(err)
	}
	return applied, nil
}

var (
	// errEmpty is a file that never is without content.
	errEmpty = errors.New("it is empty")
	// errGone is a database beside snapshots of a log that begins with it.
	errGone = errors.New("it is gone, and snapshots of its log are there")
)

// readApplied reads the index of the last entry that a database has. What the
// file lacks of its pages must not be touched: that is SIGBUS.
func readApplied(tx *bbolt.Tx) (uint64, error) {
	info, err := os.Stat(tx.DB().Path())
	if err != nil {
		return 0, err
	}
	if info.Size() < tx.Size() {
		return 0, fmt.Errorf("it has %d bytes of %d", info.Size(), tx.Size())
	}
	meta := tx.Bucket(schema.Meta.Name())
	if meta == nil {
		return 0, nil
	}
	index := meta.Get(schema.MetaConsistentIndexKeyName)
	if len(index) != 8 {
		return 0, nil
	}
	return binary.BigEndian.Uint64(index), nil
}

// logFolder has the log of a data directory.
func logFolder(dir string) string { return filepath.Join(dir, "member", "wal") }

// logFiles are the names of a log's files in their order.
func logFiles(folder string) ([]string, error) {
	names, err := fileutil.ReadDir(folder, fileutil.WithExt(".wal"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return names, err
}

// checkLog compares a log with what the database has of it. An entry is in the
// log of a single member before it is in the database; other members get again
// from their leader what a loss of power took.
func checkLog(folder string, applied uint64, single bool) error {
	damaged := func(path string, err error) error {
		return damage("log", path, err, "restore it from a copy together with the database, make a new data directory of the database alone (etcdutl snapshot restore --skip-hash-check), or choose another one")
	}
	names, err := logFiles(folder)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		if applied > 0 {
			return damaged(folder, errors.New("it is gone, and the database is there"))
		}
		return nil
	}
	for _, name := range names {
		path := filepath.Join(folder, name)
		if info, err := os.Stat(path); err == nil && info.Size() == 0 {
			return damaged(path, errEmpty)
		}
	}
	if !single {
		return nil
	}
	last := filepath.Join(folder, names[len(names)-1])
	end, _, err := endOfLog(last)
	if err == nil && end < applied {
		err = fmt.Errorf("it ends before the database, at entry %d of %d", end, applied)
	}
	if err != nil {
		return damaged(last, err)
	}
	return nil
}

// endOfLog reads the last file of a log. It returns the index of the log's last
// entry, and how many bytes of the file are used. A last record that was not
// written to its end does not count.
func endOfLog(path string) (index uint64, size int64, err error) {
	var sequence uint64
	if _, err := fmt.Sscanf(filepath.Base(path), "%016x-%016x.wal", &sequence, &index); err != nil {
		return 0, 0, fmt.Errorf("its name: %w", err)
	}
	index -= min(index, 1) // the name has that of the file's first entry
	f, err := os.Open(path)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = f.Close() }()
	records := wal.NewDecoder(fileutil.NewFileReader(f))
	for record := new(walpb.Record); err == nil; {
		if err = records.Decode(record); err == nil {
			index, err = indexAfter(index, record, records)
		}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return index, records.LastOffset(), err
}

// indexAfter is the index of the log's last entry after a record of it.
func indexAfter(index uint64, record *walpb.Record, records wal.Decoder) (uint64, error) {
	switch record.GetType() {
	case wal.CrcType:
		records.UpdateCRC(record.GetCrc())
	case wal.EntryType:
		var entry raftpb.Entry
		err := proto.Unmarshal(record.GetData(), &entry)
		return entry.GetIndex(), err
	case wal.SnapshotType:
		var snapshot walpb.Snapshot
		err := proto.Unmarshal(record.GetData(), &snapshot)
		return max(index, snapshot.GetIndex()), err
	}
	return index, nil
}
