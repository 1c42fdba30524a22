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

// ErrDamaged means that a file is damaged, so that a retry cannot help.
var ErrDamaged = errors.New("damaged")

// damage returns an error for a file with invalid content that says how to
// repair it. A file that could not be read, for example because memory or file
// descriptors ran out, may be intact.
func damage(what, path string, err error, repair string) error {
	if number := syscall.Errno(0); errors.As(err, &number) {
		return fmt.Errorf("cannot read the etcd %s %s: %w", what, path, err)
	}
	return fmt.Errorf("the etcd %s %s is %w (%w): %s", what, path, ErrDamaged, err, repair)
}

// lockTimeout is how long to wait for another process to release the database.
const lockTimeout = 5 * time.Second

// checkFiles returns an error if the data directory is damaged. etcd would exit or
// wait forever. A directory without a database is new.
func checkFiles(c Config) error {
	applied, err := checkDatabase(databaseFile(c.Dir))
	if err != nil {
		return err
	}
	return checkLog(logDir(c.Dir), applied, c.PeerURL == "")
}

// checkDatabase returns the index of the last log entry that the database contains,
// or 0.
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
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: lockTimeout})
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return 0, fmt.Errorf("the etcd database %s is in use by another process: stop that process, or choose another data directory", path)
	case err != nil:
		return 0, damaged(err)
	}
	defer func() { _ = db.Close() }()
	err = supervise.Call(func() error { // bbolt panics if the file is damaged
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
	// errEmpty means that a file is empty that always has content.
	errEmpty = errors.New("it is empty")
	// errGone means that the database is missing although its snapshots exist.
	errGone = errors.New("it is missing, and snapshots of its log exist")
)

// readApplied reads the consistent index. It does not read pages beyond the end of
// the file, which would cause SIGBUS.
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

// logDir returns the directory of the log.
func logDir(dir string) string { return filepath.Join(dir, "member", "wal") }

// logFiles returns the names of the log files in order.
func logFiles(dir string) ([]string, error) {
	names, err := fileutil.ReadDir(dir, fileutil.WithExt(".wal"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return names, err
}

// checkLog compares the log with the database. A single member writes an entry to
// the log before the database. Other members get entries that a power failure lost
// from the leader.
func checkLog(dir string, applied uint64, single bool) error {
	damaged := func(path string, err error) error {
		return damage("log", path, err, "restore it from a copy together with the database, make a new data directory of the database alone (etcdutl snapshot restore --skip-hash-check), or choose another one")
	}
	names, err := logFiles(dir)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		if applied > 0 {
			return damaged(dir, errors.New("it is missing, and the database exists"))
		}
		return nil
	}
	for _, name := range names {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Size() == 0 {
			return damaged(path, errEmpty)
		}
	}
	if !single {
		return nil
	}
	last := filepath.Join(dir, names[len(names)-1])
	end, _, err := endOfLog(last)
	if err == nil && end < applied {
		err = fmt.Errorf("it ends before the database, at entry %d of %d", end, applied)
	}
	if err != nil {
		return damaged(last, err)
	}
	return nil
}

// endOfLog reads the last log file. It returns the index of the last entry and the
// number of bytes used. An incomplete last record is ignored.
func endOfLog(path string) (index uint64, size int64, err error) {
	var sequence uint64
	if _, err := fmt.Sscanf(filepath.Base(path), "%016x-%016x.wal", &sequence, &index); err != nil {
		return 0, 0, fmt.Errorf("its name: %w", err)
	}
	index -= min(index, 1) // the name has the index of the file's first entry
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

// indexAfter returns the index of the last entry after a record.
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
