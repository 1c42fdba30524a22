package host

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coracle-io/coracle/internal/sharedfile"
)

func TestLockNamesItsHolder(t *testing.T) {
	dir := t.TempDir()
	l, err := LockData(t.Context(), dir, "a", 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = LockData(t.Context(), dir, "b", 30*time.Millisecond)
	var held *sharedfile.HeldError
	if !errors.As(err, &held) || held.Holder.Cluster != "a" || held.Holder.PID != os.Getpid() || held.Holder.PIDStart == 0 {
		t.Errorf("a second lock: %v", err)
	}
	fd, err := unix.Dup(int(l.File().Fd()))
	if err != nil {
		t.Fatal(err)
	}
	inherited := os.NewFile(uintptr(fd), "inherited")
	HandOver(l, "c", os.Getppid())
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
	if _, err := LockData(t.Context(), dir, "b", 0); !errors.As(err, &held) || held.Holder.Cluster != "c" || held.Holder.PID != os.Getppid() {
		t.Errorf("locked though a child still holds it, or it is not named: %v", err)
	}
	if err := inherited.Close(); err != nil {
		t.Fatal(err)
	}
	if l, err = LockData(t.Context(), dir, "b", 0); err != nil {
		t.Fatal(err)
	}
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
}

// A lock that is a link, or somebody else's, is not used.
func TestLockIsAFileOfItsOwn(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, lockName)); err != nil {
		t.Fatal(err)
	}
	if _, err := LockData(t.Context(), dir, "a", 0); err == nil {
		t.Error("locked through a link")
	}
	if os.Geteuid() != 0 {
		return
	}
	dir = t.TempDir()
	files(t, dir, lockName)
	if err := os.Chown(filepath.Join(dir, lockName), 1234, 1234); err != nil {
		t.Fatal(err)
	}
	if _, err := LockData(t.Context(), dir, "a", 0); err == nil || !strings.Contains(err.Error(), "not a file of this user") {
		t.Errorf("locked a file of another user: %v", err)
	}
}

// The registry's lock goes with its folders and is still one lock.
func TestRegistryLock(t *testing.T) {
	r := NewRegistry(filepath.Join(t.TempDir(), "lib", "coracle"))
	var inside, most atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 5 {
				err := r.Locked(t.Context(), func() error {
					most.Store(max(most.Load(), inside.Add(1)))
					defer inside.Add(-1)
					if err := r.Put(Record{Occupied: Occupied{Name: "a"}}); err != nil {
						return err
					}
					return r.Delete("a")
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if most.Load() != 1 {
		t.Errorf("%d had the lock at once", most.Load())
	}
	if _, err := os.Stat(r.root); !os.IsNotExist(err) {
		t.Errorf("the folder is left: %v", err)
	}
}
