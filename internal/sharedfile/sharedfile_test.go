package sharedfile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestReplace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	for _, c := range []Content{
		{Data: []byte("one"), Mode: 0o644},
		{Data: []byte("two"), Mode: 0o600, Durable: true, Owner: &Owner{UID: os.Getuid(), GID: os.Getgid()}},
	} {
		if err := Replace(path, c); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != string(c.Data) {
			t.Errorf("got %q, %v, want %q", got, err, c.Data)
		}
		if info, err := os.Stat(path); err != nil || info.Mode() != c.Mode {
			t.Errorf("mode %v, %v, want %v", info.Mode(), err, c.Mode)
		}
	}
}

// TestReplaceThatFails checks that a failed Replace leaves the file, and
// nothing next to it.
func TestReplaceThatFails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Replace(path, Content{Mode: 0o600}); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a directory was replaced, or is not named: %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("left are %v, %v", entries, err)
	}
	if err := Replace(filepath.Join(dir, "none", "a"), Content{Mode: 0o600}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without its directory: %v", err)
	}
}

// TestUnfinished checks which names Unfinished recognizes.
func TestUnfinished(t *testing.T) {
	for name, want := range map[string]string{
		".a.json.coracle-17": "a.json", ".a.coracle-1.coracle-2": "a.coracle-1",
		".a.17": "", "a.coracle-17": "", ".a.coracle-": "", ".a.coracle-1x": "", ".coracle-1": "", "": "",
	} {
		if of, ok := Unfinished(name); ok != (want != "") || ok && of != want {
			t.Errorf("%q is of %q, %v", name, of, ok)
		}
	}
	dir := t.TempDir()
	for _, name := range []string{"a", ".a.coracle-1", ".a.coracle-22", ".b.coracle-1", ".a.1"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := RemoveUnfinished(filepath.Join(dir, "a")); err != nil {
		t.Fatal(err)
	}
	var left []string
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if got := strings.Join(left, " "); err != nil || got != ".a.1 .b.coracle-1 a" {
		t.Errorf("left is %s, %v", got, err)
	}
	f, err := create(filepath.Join(dir, "a"))
	if err != nil {
		t.Fatal(err)
	}
	if of, ok := Unfinished(filepath.Base(f.Name())); !ok || of != "a" {
		t.Errorf("of a Replace that is killed %s is left", f.Name())
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// TestAcquireIsBounded checks that Acquire gives up after its timeout and names
// the holder.
func TestAcquireIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	l, err := Acquire(t.Context(), path, Holder{Cluster: "a", PID: 7}, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Acquire(t.Context(), path, Holder{PID: 8}, 30*time.Millisecond)
	var held *HeldError
	if !errors.As(err, &held) || held.Holder.PID != 7 || !strings.Contains(err.Error(), "cluster a (process 7)") {
		t.Errorf("a second lock: %v", err)
	}
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
}

// TestAcquireWaitsForTheHoldersName checks that Acquire, which does not wait for
// the lock, names a holder that records itself a moment later, and gives up on
// one that never does.
func TestAcquireWaitsForTheHoldersName(t *testing.T) {
	synctest.Test(t, testAcquireWaitsForTheHoldersName)
}

func testAcquireWaitsForTheHoldersName(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if _, err := Acquire(t.Context(), path, Holder{PID: 8}, 0); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("a lock of a silent holder: %v", err)
	}
	time.AfterFunc(lockRetry, func() { (&Lock{file: f}).SetHolder(Holder{Cluster: "a", PID: 7}) })
	var held *HeldError
	if _, err := Acquire(t.Context(), path, Holder{PID: 8}, 0); !errors.As(err, &held) || held.Holder.PID != 7 {
		t.Errorf("a lock of a holder that records itself late: %v", err)
	}
}
