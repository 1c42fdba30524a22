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

	"github.com/coracle-io/coracle/internal/beneath"
	"github.com/coracle-io/coracle/internal/clusternames"
	"github.com/coracle-io/coracle/internal/sharedfile"
)

// Claim is a data directory that this process has locked.
type Claim struct {
	Dir   string
	Lock  *sharedfile.Lock `json:"-"`
	Known bool             // it held the cluster's data before
	Made  []string         // directories that ClaimDir made, the outermost first
	Found []string         // what was in it before, relative to Dir
}

// New reports whether the directory held no cluster before.
func (c *Claim) New() bool { return !c.Known }

// FoundKeys returns the keys that were in the directory before, see Settings.Found.
func (c *Claim) FoundKeys() (keys []string) {
	for _, key := range sharedKeys() {
		if slices.Contains(c.Found, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// ClaimDir locks a cluster's data directory, which it makes if it is missing.
// It returns an error, and changes nothing, if the directory holds something
// else or another cluster, or if other users can write to it. It sets the mode
// to 0700. known says that the directory is the cluster's even without
// settings, as one of an earlier version. ClaimDir returns a BusyError if
// another process has locked the directory for the same cluster.
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
	// Check again what was added before the lock was held.
	if err := claimable(dir, cluster, known); err != nil {
		return nil, errors.Join(err, c.Lock.Release())
	}
	c.Known = known || slices.Contains(c.Found, settingsName)
	return c, nil
}

// BusyError reports that another process starts, runs or ends the cluster.
type BusyError struct {
	Cluster string
	PID     int
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("cluster %s runs or is being started by process %d: wait for it, or end it with coracle stop --name=%s", e.Cluster, e.PID, e.Cluster)
}

// claimable returns an error if a directory cannot hold the data of a cluster.
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
	case err == nil && kept.Options.Name != cluster:
		return fmt.Errorf("--data-dir=%s holds the data of cluster %s: choose another for cluster %s, or say --name=%s", dir, kept.Options.Name, cluster, kept.Options.Name)
	case err == nil:
		return nil
	case !errors.Is(err, ErrNoSettings):
		return err
	case known:
		return nil
	}
	var foreign []string
	for _, e := range entries {
		if !mayPrecede(e.Name()) || e.Name() == lockName && !isLock(dir) {
			foreign = append(foreign, e.Name())
		}
	}
	if len(foreign) > 0 {
		return fmt.Errorf("--data-dir=%s is not empty and holds no cluster (%s): choose an empty or a new directory", dir, firstFew(foreign))
	}
	return nil
}

// ownContent returns an error if other users may have written what a cluster
// would take for its own. An empty directory has nothing of others.
func ownContent(dir string, entries []fs.DirEntry) error {
	for _, e := range entries {
		if e.Name() == "lost+found" {
			continue
		}
		for _, path := range []string{dir, filepath.Join(dir, e.Name())} {
			info, err := os.Lstat(path)
			if err == nil && (path == dir || mayPrecede(e.Name())) {
				err = sharedfile.CheckOwner(path, info)
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// mayPrecede reports whether a name may be in a data directory before its
// cluster: keys of another server, the configuration of registries and of
// containerd, and manifests, which users put there; what each new file system has;
// and what a first start leaves if it is killed before it has stored settings.
func mayPrecede(name string) bool {
	return slices.Contains([]string{"pki", "registries", "containerd.d", manifestsName, "lost+found"}, name) || leftByStart(name)
}

// leftByStart reports whether a name belongs to the lock or to an unfinished
// settings file.
func leftByStart(name string) bool {
	of, ok := sharedfile.Unfinished(name)
	return name == lockName || ok && of == settingsName
}

// isLock reports whether the file with the lock's name is a lock, or there is
// no such file. Other programs may have files of this name.
func isLock(dir string) bool {
	_, err := sharedfile.ReadHolder(filepath.Join(dir, lockName))
	return err == nil || errors.Is(err, fs.ErrNotExist)
}

// RemoveStart removes what a first start has left in a directory if it was
// killed before it had stored settings. It also removes the directory if itself
// is set and nothing else is in it.
func RemoveStart(ctx context.Context, dir string, itself bool) error {
	isStart := func() bool {
		entries, err := os.ReadDir(dir)
		_, noSettings := ReadSettings(dir)
		foreign := slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return !mayPrecede(e.Name()) })
		left := slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return leftByStart(e.Name()) })
		return err == nil && errors.Is(noSettings, ErrNoSettings) && left && !foreign && isLock(dir)
	}
	if !isStart() {
		return nil
	}
	l, err := LockData(ctx, dir, "", 0)
	if err != nil {
		return err
	}
	defer func() { _ = l.Release() }()
	if !isStart() { // another process has made it a cluster's since it was checked
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

// firstFew names the first few of several things.
func firstFew(names []string) string {
	const few = 3
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
}

// closeToOthers sets the mode of a directory of this user to 0700.
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

// listTree returns what is in a directory that Coracle did not leave there,
// relative to it: the first level, and the files of pki.
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

// Vacate is Vacate for the claimed directory.
func (c *Claim) Vacate() error { return Vacate(c.Dir, c.Made) }

// RealPath returns the absolute path of a file or directory without symbolic
// links. The last elements may be missing.
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
		return "", fmt.Errorf("%s is a dangling symbolic link: remove it, or create its target", path)
	}
	parent, err := RealPath(filepath.Dir(path))
	return filepath.Join(parent, filepath.Base(path)), err
}

// Within reports whether a path is a directory or in it. Both must be real
// paths.
func Within(path, dir string) bool {
	_, in := beneath.Rel(dir, path)
	return in
}

// LogFile returns the path of a cluster's log.
func LogFile(dataDir string) string { return filepath.Join(dataDir, "coracle.log") }

// ContainerdSocket returns the socket of the bundled container runtime of a node,
// numbered from 1.
func ContainerdSocket(name string, node int) string {
	return filepath.Join(clusternames.NodeRunDir(name, node), "containerd", "containerd.sock")
}

// EtcdSocket returns the socket of a cluster's embedded etcd, given the directory of
// the cluster's sockets.
func EtcdSocket(runDir string) string { return filepath.Join(runDir, "etcd", "etcd.sock") }
