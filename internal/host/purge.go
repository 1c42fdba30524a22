package host

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/coracle-io/coracle/internal/host/tree"
	"github.com/coracle-io/coracle/internal/pki"
	"github.com/coracle-io/coracle/internal/sharedfile"
)

// manifest lists what Coracle makes in a data directory, in the order in which
// it goes. A pattern without a slash at its end is a file, and what is to be put
// in its place; one with it is a directory that is Coracle's with everything in
// it; a directory with patterns of its own below is removed when nothing else
// is in it.
func manifest() []string {
	all := []string{
		"coracle.log", "coracle.log.[1-9]",
		"kubelet/", "containerd/", "logs/", "node/",
		"cni/conf/", "cni/leases/",
		"etcd/member/", "etcd/etcd.sock", "etcd/*.invalid",
	}
	for _, name := range pki.Files() {
		all = append(all, "pki/"+name)
	}
	return append(all, settingsName)
}

// RemoveData removes from a data directory what Coracle made there, all but
// the lock, which must be held. What is left in the directory is returned.
func RemoveData(dir string) (left []string, err error) { return removeManifest(dir, nil) }

// Vacate removes the lock of a data directory, which must be held, so that
// others may have the directory from then on; and those of the directories
// made for it that are empty, given the outermost first.
func Vacate(dir string, made []string) error {
	if err := os.Remove(filepath.Join(dir, lockName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, made := range slices.Backward(made) {
		_ = os.Remove(made) // unless something is in it, or mounted there
	}
	return nil
}

// removeManifest removes from a data directory what is in the manifest, but
// not what was there before, and returns what is left.
func removeManifest(dir string, before []string) (left []string, err error) {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if mounts, err := mountsBelow(dir); err != nil || len(mounts) > 0 {
		return nil, errors.Join(err, mountedError(mounts))
	}
	for _, pattern := range manifest() {
		wanted := strings.TrimSuffix(pattern, "/")
		names, err := matches(dir, wanted)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if slices.Contains(before, name) {
				continue
			}
			if err := removeOwn(filepath.Join(dir, name), wanted != pattern); err != nil {
				return nil, err
			}
		}
	}
	for _, sub := range []string{"cni", "etcd", "pki"} {
		if !slices.Contains(before, sub) {
			_ = unix.Rmdir(filepath.Join(dir, sub)) // only when empty, and no link
		}
	}
	return leftIn(dir)
}

// matches lists what in a data directory a pattern means, relative to it. What
// is behind a link is not in the directory.
func matches(dir, pattern string) (names []string, err error) {
	sub, pattern := filepath.Split(pattern)
	at := filepath.Join(dir, sub)
	if info, err := os.Lstat(at); errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
		return nil, nil
	}
	entries, err := os.ReadDir(at)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name := e.Name()
		if of, ok := sharedfile.Unfinished(name); ok {
			name = of
		}
		if ok, err := filepath.Match(pattern, name); err != nil {
			return nil, err
		} else if ok {
			names = append(names, filepath.Join(sub, e.Name()))
		}
	}
	return names, nil
}

// removeOwn removes a file, or a directory with everything in it. What is of
// another kind than Coracle makes is somebody else's and stays.
func removeOwn(path string, whole bool) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if whole && info.IsDir() {
		return tree.Remove(path)
	}
	if whole || info.IsDir() {
		return nil
	}
	return os.Remove(path)
}

// leftIn lists what is in a data directory besides the lock: of directories
// that Coracle shares with others what is in them.
func leftIn(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var left []string
	for _, e := range entries {
		if e.Name() != lockName {
			left = append(left, e.Name())
		}
	}
	return left, nil
}

// removeEmptyRoot removes the folder that clusters' folders are in by default
// once it is empty.
func removeEmptyRoot(dir string) {
	if parent := filepath.Dir(dir); filepath.Base(parent) == "coracle" {
		_ = os.Remove(parent) // only when empty
	}
}

// RemoveRun removes the directory of a cluster's sockets.
func RemoveRun(dir string) error {
	if err := tree.Remove(dir); err != nil {
		return err
	}
	removeEmptyRoot(dir)
	return nil
}

// ForeignMounts lists the mount points in a cluster's data directory that
// Coracle did not make there, as of a disk of the containers' own.
func ForeignMounts(dataDir string) ([]string, error) {
	mounts, err := mountsBelow(dataDir)
	if err != nil {
		return nil, err
	}
	own := ownPlaces(dataDir)
	return slices.DeleteFunc(mounts, func(m string) bool { return below(m, own) }), nil
}

// ownPlaces are the directories below which the kubelet mounts volumes and
// containerd what containers have: in the data directory, where a link there
// leads, or where the kubelet was told to have them.
func ownPlaces(dataDir string) []string {
	kubelet := filepath.Join(dataDir, "kubelet")
	if s, err := ReadSettings(dataDir); err == nil {
		for _, argument := range s.KubeletArgs {
			if name, dir, _ := strings.Cut(strings.TrimPrefix(argument, "--"), "="); name == "root-dir" {
				kubelet = dir
			}
		}
	}
	places := []string{filepath.Join(kubelet, "pods"), filepath.Join(kubelet, "plugins"), filepath.Join(dataDir, "containerd", "root")}
	for _, place := range places {
		if real, err := filepath.EvalSymlinks(place); err == nil && real != place {
			places = append(places, real)
		}
	}
	return places
}

// below reports whether a path is below one of several directories.
func below(path string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return strings.HasPrefix(path, dir+"/") })
}

func mountedError(points []string) error {
	if len(points) == 0 {
		return nil
	}
	return fmt.Errorf("something is mounted at %s, which may hold what is not the cluster's: unmount it first (umount %s)", some(points), points[0])
}

// RefuseForeignMounts is an error that names them.
func RefuseForeignMounts(dataDir string) error {
	foreign, err := ForeignMounts(dataDir)
	return errors.Join(err, mountedError(foreign))
}

// UnmountOwn unmounts what Coracle mounted for a cluster with that data directory
// and everything below its run directory, the deepest first.
func UnmountOwn(dataDir, runDir string) error {
	points, err := mountPoints()
	if err != nil {
		return err
	}
	slices.SortFunc(points, func(a, b string) int { return len(b) - len(a) })
	own := append(ownPlaces(dataDir), runDir)
	var errs []error
	for _, m := range points {
		if !below(m, own) {
			continue
		}
		if err := unix.Unmount(m, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("unmount %s: %w", m, err))
		}
	}
	return errors.Join(errs...)
}

// mountsBelow lists the mount points in a directory, without its own.
func mountsBelow(dir string) ([]string, error) {
	points, err := mountPoints()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(points, func(m string) bool { return !strings.HasPrefix(m, dir+"/") }), nil
}

// mountPoints reads /proc/self/mountinfo (proc(5)), where space, tab, newline
// and backslash are written in octal.
func mountPoints() ([]string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var points []string
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if fields := strings.Fields(lines.Text()); len(fields) > 4 {
			points = append(points, unescape.Replace(fields[4]))
		}
	}
	return points, lines.Err()
}
