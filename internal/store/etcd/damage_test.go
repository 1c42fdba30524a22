package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// dataDir returns a data directory with a database and a log of at least 400 KiB.
func dataDir(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	e, err := Embed(t.Context(), Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer e.stop(func() {}, false)
	value := bytes.Repeat([]byte("value"), 4<<10)
	for i := range 24 {
		if _, err := e.Create(t.Context(), fmt.Sprintf("/registry/%d", i), value, 0); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestDamagedFilesAreReported checks that damaged files are reported before
// etcd starts. etcd would wait forever or exit.
func TestDamagedFilesAreReported(t *testing.T) {
	database, log := "member/snap/db", "member/wal/0000000000000000-0000000000000000.wal"
	cut := func(name string, size int64) func(dir string) error {
		return func(dir string) error { return os.Truncate(filepath.Join(dir, name), size) }
	}
	for what, test := range map[string]struct {
		damage func(dir string) error
		want   []string
	}{
		"nothing":            {func(string) error { return nil }, nil},
		"database truncated": {cut(database, 40_000), []string{database, "it has 40000 bytes of "}},
		"database empty":     {cut(database, 0), []string{database, "it is empty"}},
		"log file empty":     {cut(log, 0), []string{log, "it is empty"}},
		"log truncated":      {cut(log, 300_000), []string{log, "it ends before the database, at "}},
		"log missing":        {func(dir string) error { return os.RemoveAll(filepath.Join(dir, "member/wal")) }, []string{"member/wal", "it is missing"}},
		"log files missing":  {func(dir string) error { return os.Remove(filepath.Join(dir, log)) }, []string{"member/wal", "it is missing"}},
		"database missing": {func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, database)), os.WriteFile(filepath.Join(dir, "member/snap/0000000000000002-0000000000001388.snap"), []byte("a log's"), 0o600))
		}, []string{database, "it is missing"}},
		"log overwritten": {overwrite(log, 300_000), []string{log, "crc mismatch"}},
	} {
		t.Run(what, func(t *testing.T) {
			dir := dataDir(t)
			if err := test.damage(dir); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			e, err := Embed(ctx, Config{Dir: dir})
			if err == nil {
				e.stop(func() {}, false)
			}
			if (err != nil) != (test.want != nil) {
				t.Fatal(err)
			}
			for _, want := range append(test.want, "is damaged", "from a copy") {
				if err != nil && !strings.Contains(err.Error(), want) {
					t.Errorf("no %q in: %v", want, err)
				}
			}
		})
	}
}

// TestUnreadableFileIsNotDamaged checks that a file that cannot be read is not
// reported as damaged, because a damaged file ends all attempts to start.
func TestUnreadableFileIsNotDamaged(t *testing.T) {
	for _, name := range []string{"member/snap/db", "member/wal/0000000000000000-0000000000000000.wal"} {
		dir := dataDir(t)
		path := filepath.Join(dir, name)
		if err := os.Rename(path, path+".away"); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, path); err != nil { // to itself
			t.Fatal(err)
		}
		_, err := Embed(t.Context(), Config{Dir: dir})
		if !errors.Is(err, syscall.ELOOP) || errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// overwrite changes some bytes of a file.
func overwrite(name string, at int64) func(dir string) error {
	return func(dir string) error {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		_, err = f.WriteAt([]byte("something else"), at)
		return err
	}
}

// TestTornLogIsNotDamaged checks that an incomplete last record of the log is not
// reported as damage, because etcd removes it.
func TestTornLogIsNotDamaged(t *testing.T) {
	dir := dataDir(t)
	logs := logDir(dir)
	files, err := logFiles(logs)
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	_, size, err := endOfLog(filepath.Join(logs, files[0]))
	if err != nil {
		t.Fatal(err)
	}
	if err := overwrite(filepath.Join("member/wal", files[0]), size)(dir); err != nil {
		t.Fatal(err)
	}
	e, err := Embed(t.Context(), Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	e.stop(func() {}, false)
}

// TestPanicDuringStartIsAnError checks that a panic during etcd's start is
// returned as an error.
func TestPanicDuringStartIsAnError(t *testing.T) {
	if _, err := start(nil, newFatal()); err == nil || !strings.Contains(err.Error(), "nil pointer") {
		t.Errorf("got %v", err)
	}
}
