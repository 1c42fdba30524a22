package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/coracle-io/coracle/internal/sharedfile"
)

// Claim is a data directory whose lock this process holds.
type Claim struct {
	Dir   string
	Lock  *sharedfile.Lock `json:"-"`
	Known bool             // it held the cluster before
	Made  []string         // directories that were missing, the outermost first
	Found []string         // what was in it before, relative to Dir
}

// New reports whether the directory held no cluster before.
func (c *Claim) New() bool { return !c.Known }

// ClaimDir makes a cluster's data directory if it is missing and locks it. It
// refuses, before anything is touched, a directory that holds something else,
// that another cluster has, or that others can write to. A directory that is
// open to others is closed to them. known says that the cluster has its data
// there even if it has no settings, as one of an earlier version.
func ClaimDir(ctx context.Context, dir, cluster string, known bool) (*Claim, error) {
	if err := claimable(dir, cluster, known); err != nil {
		return nil, err
	}
	c := &Claim{Dir: dir}
	for missing := dir; ; missing = filepath.Dir(missing) {
		if _, err := os.Lstat(missing); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		c.Made = slices.Insert(c.Made, 0, missing)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the data directory (choose another with --data-dir): %w", err)
	}
	var err error
	if c.Found, err = listTree(dir); err != nil {
		return nil, err
	}
	if err := closeToOthers(dir); err != nil {
		return nil, err
	}
	if c.Lock, err = LockData(ctx, dir, cluster, 0); err != nil {
		var held *sharedfile.HeldError
		if errors.As(err, &held) {
			if held.Holder.Cluster == cluster {
				return nil, &BusyError{Cluster: cluster, PID: held.Holder.PID}
			}
			return nil, fmt.Errorf("--data-dir=%s is in use by %s: choose another for cluster %s", dir, held.Holder, cluster)
		}
		return nil, err
	}
	// What came between the first look and the lock is seen now.
	if err := claimable(dir, cluster, known); err != nil {
		return nil, errors.Join(err, c.Lock.Release())
	}
	c.Known = known || slices.Contains(c.Found, settingsName)
	return c, nil
}

// BusyError says that another process starts, runs or ends the cluster.
type BusyError struct {
	Cluster string
	PID     int
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("cluster %s runs or is being started by process %d: wait for it, or end it with coracle stop --name=%s", e.Cluster, e.PID, e.Cluster)
}

// claimable reports why a directory cannot hold the data of a cluster.
func claimable(dir, cluster string, known bool) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("use the data directory (choose another with --data-dir): %w", err)
	}
	if err := ownContent(dir, entries); err != nil {
		return fmt.Errorf("--data-dir=%s: %w", dir, err)
	}
	kept, err := ReadSettings(dir)
	switch {
	case err == nil && kept.Name != cluster:
		return fmt.Errorf("--data-dir=%s holds the data of cluster %s: choose another for cluster %s, or say --name=%s", dir, kept.Name, cluster, kept.Name)
	case err == nil:
		return nil
	case !errors.Is(err, ErrNoSettings):
		return err
	case known:
		return nil
	}
	var foreign []string
	for _, e := range entries {
		if !maybeBefore(e.Name()) || e.Name() == lockName && !isOwnLock(dir) {
			foreign = append(foreign, e.Name())
		}
	}
	if len(foreign) > 0 {
		return fmt.Errorf("--data-dir=%s is not empty and holds no cluster (%s): choose an empty or a new directory", dir, some(foreign))
	}
	return nil
}

// ownContent is an error if others may have put there what a cluster would take
// for its own. Nobody has put anything into an empty directory.
func ownContent(dir string, entries []fs.DirEntry) error {
	for _, e := range entries {
		if e.Name() == "lost+found" {
			continue
		}
		for _, path := range []string{dir, filepath.Join(dir, e.Name())} {
			info, err := os.Lstat(path)
			if err == nil && (path == dir || maybeBefore(e.Name())) {
				err = sharedfile.CheckOwner(path, info)
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// maybeBefore says what may be in a data directory before its cluster: keys of
// another server and the configuration of registries, which users put there,
// what every new file system has, and what a first start leaves that is killed
// before it has kept any settings.
func maybeBefore(name string) bool {
	return slices.Contains([]string{"pki", "registries", "lost+found"}, name) || leftByStart(name)
}

// leftByStart reports whether a name is that of the lock, or of settings that
// nobody has finished.
func leftByStart(name string) bool {
	of, ok := sharedfile.Unfinished(name)
	return name == lockName || ok && of == settingsName
}

// isOwnLock reports whether the file that is named as the lock is one, or there
// is none: others name their files so, too.
func isOwnLock(dir string) bool {
	_, err := sharedfile.ReadHolder(filepath.Join(dir, lockName))
	return err == nil || errors.Is(err, fs.ErrNotExist)
}

// RemoveStart removes from a directory that holds no cluster what a first start
// has left there that was killed before it had kept any settings, and the
// directory itself if that is asked for and nothing else is in it.
func RemoveStart(ctx context.Context, dir string, itself bool) error {
	isStart := func() bool {
		entries, err := os.ReadDir(dir)
		_, noSettings := ReadSettings(dir)
		foreign := slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return !maybeBefore(e.Name()) })
		left := slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return leftByStart(e.Name()) })
		return err == nil && errors.Is(noSettings, ErrNoSettings) && left && !foreign && isOwnLock(dir)
	}
	if !isStart() {
		return nil
	}
	l, err := LockData(ctx, dir, "", 0)
	if err != nil {
		return err
	}
	defer func() { _ = l.Release() }()
	if !isStart() { // one has come meanwhile
		return nil
	}
	if err := sharedfile.RemoveUnfinished(SettingsFile(dir)); err != nil {
		return err
	}
	if !itself {
		return Vacate(dir, nil)
	}
	return Vacate(dir, []string{dir})
}

// some names the first few of several things.
func some(names []string) string {
	const few = 3
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
}

// closeToOthers gives a directory of this user the mode 0700.
func closeToOthers(dir string) error {
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return fmt.Errorf("%s is not a directory", dir)
	}
	if int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to user %d, who could replace what is in it: give it to user %d, or choose another directory", dir, st.Uid, os.Geteuid())
	}
	if st.Mode&0o077 == 0 {
		return nil
	}
	return os.Chmod(dir, 0o700)
}

// listTree lists what is in a directory that Coracle did not leave there,
// relative to it. Of a cluster's data only the first level counts.
func listTree(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, e := range entries {
		if leftByStart(e.Name()) {
			continue
		}
		all = append(all, e.Name())
		if e.Name() != "pki" || !e.IsDir() {
			continue
		}
		keys, err := os.ReadDir(filepath.Join(dir, "pki"))
		if err != nil {
			return nil, err
		}
		for _, k := range keys {
			all = append(all, filepath.Join("pki", k.Name()))
		}
	}
	return all, nil
}

// Abandon removes what was made in the directory since it was claimed.
func (c *Claim) Abandon() error {
	_, err := removeManifest(c.Dir, c.Found)
	return err
}

// Vacate gives the directory up, as Vacate.
func (c *Claim) Vacate() error { return Vacate(c.Dir, c.Made) }

// RealPath is the path of a file or directory without symbolic links, whether
// or not its end is there yet.
func RealPath(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	real, err := filepath.EvalSymlinks(path)
	if !errors.Is(err, fs.ErrNotExist) || path == filepath.Dir(path) {
		return real, err
	}
	if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSymlink != 0 {
		return "", fmt.Errorf("%s is a link to nothing: remove it, or make what it names", path)
	}
	parent, err := RealPath(filepath.Dir(path))
	return filepath.Join(parent, filepath.Base(path)), err
}

// Within reports whether a path is a directory or in it; both are real paths.
func Within(path, dir string) bool {
	return dir != "" && (path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/"))
}

// RunDir is where a cluster's sockets are.
func RunDir(name string) string { return "/run/coracle/" + name }

// LogFile is where a cluster's log is.
func LogFile(dataDir string) string { return filepath.Join(dataDir, "coracle.log") }

// EtcdSocket is where the embedded etcd of a cluster listens.
func EtcdSocket(name string) string { return filepath.Join(RunDir(name), "etcd", "etcd.sock") }
