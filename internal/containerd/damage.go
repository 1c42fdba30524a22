package containerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/host/tree"
	"github.com/coracle-io/coracle/internal/supervise"
)

// containerd has two databases in its root. Each is useless without the other:
//
//	io.containerd.metadata.v1.bolt/meta.db                images, containers, leases, names of snapshots
//	io.containerd.snapshotter.v1.overlayfs/metadata.db    snapshots, by these names
//	io.containerd.snapshotter.v1.overlayfs/snapshots/N    their files
//
// A file that has lost its beginning or its end is found before containerd starts.
// Damage inside of it is found by containerd: it checks or reads the page, and
// crashes.
const (
	metadataPlugin = "io.containerd.metadata.v1.bolt"
	snapshotPlugin = "io.containerd.snapshotter.v1.overlayfs"
)

const (
	// fatalCrashes is how many containerds in a row must have crashed in their
	// databases, soon after their start, before these count as damaged. The first may
	// be an accident.
	fatalCrashes = 2
	// asidePrefix begins the names of the directories in containerd's root to which
	// damaged databases were moved, and mostAside bounds how many there are: a disk
	// that fails must not be filled with them.
	asidePrefix = "damaged-"
	mostAside   = 3
	// lockTimeout is how long to wait for another process to release a database.
	lockTimeout = time.Second
	// maxCrash bounds how much of a log is searched for a crash, in bytes.
	maxCrash = 1 << 20
)

// errDamaged means that a database has lost content, so that a retry cannot help.
var errDamaged = errors.New("is damaged")

// databases observes the databases of one containerd after another. Only the
// goroutine of Run uses it.
type databases struct {
	runtime *Runtime
	since   time.Time // when the last process was started, or found
	logged  int64     // size of containerd's log then
	crashes int       // processes in a row that crashed in a database
}

// starting records that a containerd is about to start.
func (d *databases) starting() {
	d.since, d.logged = time.Now(), 0
	if info, err := os.Stat(d.runtime.LogFile()); err == nil {
		d.logged = info.Size()
	}
}

// ended records that a containerd has ended by itself.
func (d *databases) ended() {
	crashed := crashedInDatabase(d.runtime.LogFile(), d.logged)
	if !crashed || time.Since(d.since) > stableAfter {
		d.crashes = 0
	}
	if crashed {
		d.crashes++
	}
}

// check returns an errDamaged if the databases cannot be used. containerd must not
// run.
func (d *databases) check() error {
	root := d.runtime.rootDir()
	if d.crashes >= fatalCrashes {
		return fmt.Errorf("the database in %s %w: %d containerds in a row have crashed in it", root, errDamaged, d.crashes)
	}
	snapshots, err := os.ReadDir(filepath.Join(root, snapshotPlugin, "snapshots"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, path := range []string{filepath.Join(root, metadataPlugin, "meta.db"), filepath.Join(root, snapshotPlugin, "metadata.db")} {
		if err := checkDatabase(path, len(snapshots) > 0); err != nil {
			return err
		}
	}
	return nil
}

// checkDatabase returns an errDamaged for a file that is no database or incomplete,
// and for one that is missing or empty although it is in use. A file that cannot be
// read may be intact.
func checkDatabase(path string, used bool) error {
	damaged := func(cause error) error {
		if number := syscall.Errno(0); errors.As(cause, &number) {
			return fmt.Errorf("cannot read containerd's database %s: %w", path, cause)
		}
		return fmt.Errorf("containerd's database %s %w (%w)", path, errDamaged, cause)
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && used:
		return fmt.Errorf("containerd's database %s %w (it is missing)", path, errDamaged)
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return damaged(err)
	case info.Size() == 0 && used:
		return damaged(errors.New("it is empty"))
	case info.Size() == 0:
		return nil
	}
	err = supervise.Call(func() error { // bbolt panics if some of the file is damaged
		db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: lockTimeout})
		if err != nil {
			return err
		}
		defer func() { _ = db.Close() }()
		return db.View(func(tx *bbolt.Tx) error {
			if info.Size() < tx.Size() {
				return fmt.Errorf("it has %d bytes of %d", info.Size(), tx.Size())
			}
			return nil
		})
	})
	if err == nil || errors.Is(err, bolterrors.ErrTimeout) { // another process has it open
		return nil
	}
	return damaged(err)
}

// crashedInDatabase reports whether a program has crashed in the code of a database,
// according to its log from an offset. One that was short of memory has not.
func crashedInDatabase(path string, from int64) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return false
	}
	if info.Size() < from {
		from = 0 // the log was truncated
	}
	raw, err := io.ReadAll(io.NewSectionReader(f, max(from, info.Size()-maxCrash), maxCrash))
	if err != nil {
		return false
	}
	for _, start := range []string{"\npanic: ", "\nfatal error: "} {
		_, report, found := strings.Cut("\n"+string(raw), start)
		if !found {
			continue
		}
		cause, report, _ := strings.Cut(report, "\n")
		_, trace, _ := strings.Cut(report, "\ngoroutine ") // the one that crashed comes first
		trace, _, _ = strings.Cut(trace, "\n\n")
		return strings.Contains(trace, "\ngo.etcd.io/bbolt") && !strings.Contains(cause, "memory")
	}
	return false
}

// moveAside moves what containerd keeps aside, because its databases are damaged:
// into a directory of its own in containerd's root, which may be a mount point. It
// ends all containers, which no containerd can find any more. Its error says what
// was done: the next Run starts with nothing, and imports the bundled images again.
func (r *Runtime) moveAside(ctx context.Context, why error) error {
	klog.FromContext(ctx).Error(why, "Starting over without containerd's databases")
	root := r.rootDir()
	entries, err := os.ReadDir(root)
	if err != nil {
		return errors.Join(why, err)
	}
	aside := 0
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), asidePrefix) {
			aside++
		}
	}
	if aside >= mostAside {
		return fmt.Errorf("%w; it was not moved aside, because %d others were before: look whether the disk fails, and remove %s", why, aside, filepath.Join(root, asidePrefix+"*"))
	}
	ended, cancel := context.WithTimeout(ctx, orphanTimeout)
	defer cancel()
	if err := r.killShims(ended); err != nil {
		return errors.Join(why, err)
	}
	for _, dir := range []string{r.config.stateDir(), root} {
		if err := unmountBelow(dir); err != nil {
			return errors.Join(why, err)
		}
	}
	for _, dir := range []string{r.config.stateDir(), r.config.runcRoot()} {
		if err := tree.Remove(dir); err != nil {
			return errors.Join(why, err)
		}
	}
	to := filepath.Join(root, asidePrefix+time.Now().UTC().Format("20060102T150405Z"))
	if err := os.Mkdir(to, 0o700); err != nil {
		return errors.Join(why, err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), asidePrefix) {
			continue
		}
		if err := os.Rename(filepath.Join(root, e.Name()), filepath.Join(to, e.Name())); err != nil {
			return errors.Join(why, err)
		}
	}
	return fmt.Errorf("%w; all containers were ended and start again, and what containerd had is in %s: images that are neither bundled nor in a registry must be loaded again, and the directory can be removed", why, to)
}
