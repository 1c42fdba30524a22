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

// used makes a data directory whose files have 400 KiB and more.
func used(t *testing.T) (dir string) {
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

// Damage is named before etcd starts, which would wait for ever or end the
// process over it.
func TestDamageIsNamed(t *testing.T) {
	database, log := "member/snap/db", "member/wal/0000000000000000-0000000000000000.wal"
	cut := func(name string, size int64) func(dir string) error {
		return func(dir string) error { return os.Truncate(filepath.Join(dir, name), size) }
	}
	for what, test := range map[string]struct {
		damage func(dir string) error
		want   []string
	}{
		"nothing":        {func(string) error { return nil }, nil},
		"database cut":   {cut(database, 40_000), []string{database, "it has 40000 bytes of "}},
		"database empty": {cut(database, 0), []string{database, "it is empty"}},
		"log file empty": {cut(log, 0), []string{log, "it is empty"}},
		"log cut":        {cut(log, 300_000), []string{log, "it ends before the database, at "}},
		"log gone":       {func(dir string) error { return os.RemoveAll(filepath.Join(dir, "member/wal")) }, []string{"member/wal", "it is gone"}},
		"log files gone": {func(dir string) error { return os.Remove(filepath.Join(dir, log)) }, []string{"member/wal", "it is gone"}},
		"database gone": {func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, database)), os.WriteFile(filepath.Join(dir, "member/snap/0000000000000002-0000000000001388.snap"), []byte("a log's"), 0o600))
		}, []string{database, "it is gone"}},
		"log overwritten": {overwrite(log, 300_000), []string{log, "crc mismatch"}},
	} {
		t.Run(what, func(t *testing.T) {
			dir := used(t)
			if err := test.damage(dir); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
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

// What cannot be read now may be whole: it is no damage, which nobody tries to
// start again over.
func TestWhatCannotBeReadIsNoDamage(t *testing.T) {
	for _, name := range []string{"member/snap/db", "member/wal/0000000000000000-0000000000000000.wal"} {
		dir := used(t)
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

// A log may end in a record that was not written to its end: etcd cuts it off.
func TestATornLogIsNoDamage(t *testing.T) {
	dir := used(t)
	folder := logFolder(dir)
	files, err := logFiles(folder)
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	_, size, err := endOfLog(filepath.Join(folder, files[0]))
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

// A panic of etcd while it starts ends nothing else.
func TestAPanicOfTheStartIsAnError(t *testing.T) {
	if _, err := start(nil, newFatal()); err == nil || !strings.Contains(err.Error(), "nil pointer") {
		t.Errorf("got %v", err)
	}
}
